"""What counts as the same model: the same weights however they came, and nothing else."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tiny_models import on_every_family, save_tiny_model, save_tokenizer


def hf_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def logits_of(inner: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = inner(torch.tensor([[4, 8, 20, 5, 6]])).logits
    return found


@on_every_family
def test_the_same_weights_have_the_same_fingerprint_however_they_came(
    model: Any, family: str, tiny_folders: Any
) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    from site_interp.model import load_model

    bridge = TransformerBridge.boot_transformers(str(tiny_folders[family]), dtype=torch.float32, device="cpu")
    for source in (tiny_folders[family], hf_model(tiny_folders[family]), bridge):
        with load_model(source, device="cpu") as other:
            assert other.fingerprint.id == model.fingerprint.id
            assert other.fingerprint.differences(model.fingerprint, "float32") == []


def test_the_fingerprint_survives_json(model: Any) -> None:
    from site_interp.model import Fingerprint

    back = Fingerprint.from_dict(json.loads(json.dumps(model.fingerprint.to_dict())))
    assert back == model.fingerprint
    assert back.id == model.fingerprint.id


@on_every_family
def test_half_precision_counts_as_the_same_model(model: Any, family: str, tiny_folders: Any) -> None:
    from site_interp.model import load_model

    with load_model(tiny_folders[family], device="cpu", dtype="bfloat16") as half:
        assert half.dtype_name == "bfloat16"
        assert half.fingerprint.differences(model.fingerprint, "bfloat16") == []


def altered(folder: Path, into: Path, change: Any) -> Any:
    """The fingerprint of a model after a change of its weights."""
    from site_interp.model import load_model

    inner = hf_model(folder)
    with torch.no_grad():
        change(inner)
    inner.save_pretrained(into)
    save_tokenizer(into, padding_side="right", add_bos=False)
    return load_model(into, device="cpu").fingerprint


def test_perturbed_weights_have_another_fingerprint(llama: Any, tiny_folders: Any, tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)

    def perturb(inner: Any) -> None:
        for parameter in inner.parameters():
            parameter += 0.05 * parameter.std() * torch.randn(parameter.shape, generator=draw)

    found = altered(tiny_folders["llama"], tmp_path, perturb)
    assert found.id != llama.fingerprint.id
    (difference,) = found.differences(llama.fingerprint, "float32")
    assert "other weights" in difference


def test_folded_value_biases_have_another_fingerprint_though_logits_are_the_same(
    tiny_folders: Any, tmp_path: Path
) -> None:
    from site_interp.model import load_model

    def fold(inner: Any) -> None:
        for block in inner.transformer.h:
            values = block.attn.c_attn.bias[64:].clone()
            block.attn.c_proj.bias += values @ block.attn.c_proj.weight
            block.attn.c_attn.bias[64:] = 0

    plain = load_model(tiny_folders["gpt2"], device="cpu")
    found = altered(tiny_folders["gpt2"], tmp_path, fold)
    assert torch.allclose(logits_of(hf_model(tmp_path)), logits_of(hf_model(tiny_folders["gpt2"])), atol=1e-4)
    assert found.id != plain.fingerprint.id
    (difference,) = found.differences(plain.fingerprint, "float32")
    assert "other weights" in difference


def test_another_tokenizer_has_another_fingerprint(llama: Any, tiny_folders: Any, tmp_path: Path) -> None:
    from site_interp.model import load_model

    hf_model(tiny_folders["llama"]).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, padding_side="right", add_bos=True)  # the same vocabulary, but a BOS in front
    found = load_model(tmp_path, device="cpu").fingerprint
    assert found.id != llama.fingerprint.id
    assert "another tokenizer" in found.differences(llama.fingerprint, "float32")


def test_another_architecture_is_named_field_by_field(llama: Any) -> None:
    own = llama.fingerprint
    other = replace(own, architecture={**own.architecture, "n_layers": 30, "type": "gpt2"})
    assert own.differences(other, "float32") == ["n_layers 3 against 30", "type llama against gpt2"]


def test_two_draws_of_one_architecture_have_two_fingerprints(llama: Any, tmp_path: Path) -> None:
    from site_interp.model import load_model

    other = load_model(save_tiny_model(tmp_path, "llama", seed=1), device="cpu").fingerprint
    assert other.id != llama.fingerprint.id
    assert other.differences(llama.fingerprint, "bfloat16")
