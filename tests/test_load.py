"""Getting a model, the check at load, and giving a caller's own model back as it was."""

from pathlib import Path
from typing import Any

import pytest
import torch
from reference import n_hooks
from tiny_models import FAMILIES, on_every_family, save_tokenizer

PROMPT = "Q: aa bc\nA:"


def hf_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def state(inner: Any) -> dict[str, Any]:
    """What a caller can see of a model."""
    return {
        "modules": [(name, type(module), module.training) for name, module in inner.named_modules()],
        "attributes": [sorted(vars(module)) for module in inner.modules()],
        "flags": [(name, parameter.requires_grad) for name, parameter in inner.named_parameters()],
        "config": inner.config.to_dict(),
        "attention": inner.config._attn_implementation,
    }


def logits_of(inner: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = inner(torch.tensor([[4, 8, 20, 5, 6]])).logits
    return found


@on_every_family
def test_a_folder_is_loaded_with_the_sizes_of_its_configuration(model: Any, family: str, tiny_folders: Any) -> None:
    assert (model.n_layers, model.n_heads, model.d_model, model.d_vocab, model.n_ctx) == (3, 4, 32, 64, 256)
    assert (model.n_kv_heads, model.d_head) == (FAMILIES[family].n_kv_heads, FAMILIES[family].d_head)
    assert (model.name, model.dtype_name, model.device.type) == (str(tiny_folders[family]), "float32", "cpu")
    assert not model.inner.training


def test_a_loaded_model_is_returned_as_it_is(model: Any) -> None:
    from site_interp.model import load_model

    assert load_model(model) is model


@on_every_family
@pytest.mark.parametrize("training", [True, False])
def test_a_hugging_face_model_is_given_back_as_it_was(tiny_folders: Any, family: str, training: bool) -> None:
    from transformers import AutoTokenizer

    from site_interp.model import load_model

    inner, tokenizer = hf_model(tiny_folders[family]), AutoTokenizer.from_pretrained(tiny_folders[family])
    inner.train(training)
    next(iter(inner.parameters())).requires_grad_(False)
    inner.model_tags = ["mine"]
    before, logits = state(inner), logits_of(inner)
    side, vocabulary = tokenizer.padding_side, tokenizer(PROMPT).input_ids
    with load_model(inner, tokenizer=tokenizer) as model:
        assert model.inner is inner
        assert model.tokenizer is tokenizer
        assert not inner.training
        assert model.token_ids(PROMPT) == vocabulary
        assert torch.allclose(model.bridge(torch.tensor([[4, 8, 20, 5, 6]])), logits, atol=1e-5)
    assert state(inner) == before
    assert torch.equal(logits_of(inner), logits)
    assert (tokenizer.padding_side, tokenizer(PROMPT).input_ids) == (side, vocabulary)
    assert tokenizer(["aa", "aa bc"], padding=True).input_ids[0][0 if side == "left" else -1] == 0


def test_a_hugging_face_model_without_architectures_can_be_used_and_keeps_none(tiny_folders: Any) -> None:
    from site_interp.model import load_model

    inner = hf_model(tiny_folders["gemma3"])
    inner.config.architectures = None
    with load_model(inner) as model:
        assert model.n_layers == 3
    assert inner.config.architectures is None


@on_every_family
def test_a_bridge_is_given_back_as_it_was(tiny_folders: Any, family: str) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    from site_interp.model import load_model

    bridge = TransformerBridge.boot_transformers(str(tiny_folders[family]), dtype=torch.float32, device="cpu")
    calls: list[Any] = []
    bridge.add_hook("blocks.1.attn.hook_z", lambda z, hook: calls.append(z))
    next(iter(bridge.original_model.parameters())).requires_grad_(False)
    bridge.train()
    ids = torch.tensor([[4, 8, 20, 5, 6]])
    logits = bridge(ids)
    before, hooks, tokenizer = state(bridge.original_model), n_hooks(bridge), bridge.tokenizer
    told = {name: getattr(tokenizer, name) for name in ("padding_side", "bos_token", "pad_token", "eos_token")}
    with load_model(bridge) as model:
        assert model.bridge is bridge
        assert not model.inner.training
    assert state(bridge.original_model) == before
    assert (n_hooks(bridge), bridge.tokenizer) == (hooks, tokenizer)
    assert {name: getattr(tokenizer, name) for name in told} == told
    calls.clear()
    assert torch.equal(bridge(ids), logits)
    assert len(calls) == 1


def test_a_model_whose_check_fails_is_given_back_too(tiny_folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from site_interp.errors import UserError
    from site_interp.model import load_model

    inner = hf_model(tiny_folders["llama"]).train()
    before = state(inner)
    break_cache(monkeypatch)
    with pytest.raises(UserError, match="failed the check"):
        load_model(inner)
    assert state(inner) == before


def break_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the bridge lose the cache, as transformers 5.24 makes it: each decoded token sees itself only."""
    from transformer_lens.model_bridge import TransformerBridge

    forward = TransformerBridge.forward

    def forgetful(self: Any, ids: Any, *, past_key_values: Any = None, attention_mask: Any = None, **rest: Any) -> Any:
        if past_key_values is not None:
            attention_mask = attention_mask[:, -ids.shape[1] :]
        return forward(self, ids, attention_mask=attention_mask, **rest)

    monkeypatch.setattr(TransformerBridge, "forward", forgetful)


@on_every_family
def test_a_broken_cache_is_caught_at_load_and_the_versions_are_named(
    family: str, tiny_folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    from site_interp.errors import UserError
    from site_interp.model import load_model

    break_cache(monkeypatch)
    with pytest.raises(UserError, match="cache differ") as caught:
        load_model(tiny_folders[family])
    for named in (f"transformers {transformers.__version__}", "transformer-lens 4", torch.__version__):
        assert named in str(caught.value)


def test_weights_that_are_not_finite_are_caught_at_load(tiny_folders: Any, tmp_path: Path) -> None:
    from site_interp.errors import UserError
    from site_interp.model import load_model

    inner = hf_model(tiny_folders["llama"])
    inner.lm_head.weight.data[7, 3] = float("nan")
    inner.save_pretrained(tmp_path)
    save_tokenizer(tmp_path, padding_side="right", add_bos=False)
    with pytest.raises(UserError, match="not finite"):
        load_model(tmp_path)


def test_a_hook_z_of_another_shape_is_caught_at_load(tiny_folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from site_interp.errors import UserError
    from site_interp.model import Model, load_model

    monkeypatch.setattr(Model, "hook_z", lambda self, layer: f"blocks.{layer}.hook_resid_post")
    with pytest.raises(UserError, match="hook_z of layer 0 has shape"):
        load_model(tiny_folders["llama"])


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    from site_interp.errors import UserError
    from site_interp.model import load_model

    with pytest.raises(UserError, match=r"Cannot load the model 'smolm2-135m'.*Did you mean smollm2-135m\b"):
        load_model("smolm2-135m")
    with pytest.raises(UserError, match=r"bundled \(smollm2-135m, gemma-3-270m\)"):
        load_model("nobody/nothing-at-all")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    from site_interp.errors import UserError
    from site_interp.model import load_model

    with pytest.raises(UserError, match="Cannot load the model"):
        load_model(tmp_path)


def test_what_cannot_be_loaded_onto_or_as_is_refused(tiny_folders: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.model import load_model

    for asked, reason in [({"device": "gpu9000"}, "is no device"), ({"dtype": "int8"}, "float32, bfloat16, float16")]:
        with pytest.raises(UserError, match=reason):
            load_model(tiny_folders["llama"], **asked)
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="has no CUDA"):
            load_model(tiny_folders["llama"], device="cuda")
    with pytest.raises(UserError, match="Cannot use a dict as a model"):
        load_model({"a": 1})


def test_a_model_object_that_names_no_files_needs_its_tokenizer(tiny_folders: Any) -> None:
    from transformers import AutoTokenizer

    from site_interp.errors import UserError
    from site_interp.model import load_model

    inner = hf_model(tiny_folders["llama"])
    inner.config._name_or_path = ""
    before = state(inner)
    with pytest.raises(UserError, match=r"tokenizer=\.\.\."):
        load_model(inner)
    assert state(inner) == before
    with load_model(inner, tokenizer=AutoTokenizer.from_pretrained(tiny_folders["llama"])) as model:
        assert model.token_ids("aa") == [1]
