"""Token ids, hooks and frozen parameters of a loaded model."""

from typing import Any

import pytest
import torch
from reference import n_hooks
from tiny_models import FAMILIES, on_every_family

TEXTS = ("Q: aa bc\nA:", "Q: aa\nA: bc\n\nQ: ed", "aa", " ab unknown words")


@on_every_family
def test_token_ids_are_those_of_the_models_own_files(model: Any, family: str, tiny_folders: Any) -> None:
    from transformers import AutoTokenizer

    plain = AutoTokenizer.from_pretrained(tiny_folders[family])
    for text in TEXTS:
        assert model.token_ids(text) == plain(text).input_ids
        assert model.token_ids(text).count(plain.bos_token_id) == int(FAMILIES[family].add_bos)
    assert model.bridge.tokenizer is not model.tokenizer
    assert model.tokenizer.padding_side == plain.padding_side == FAMILIES[family].padding_side


@on_every_family
def test_a_prompt_that_repeats_the_bos_is_refused(model: Any, family: str) -> None:
    from site_interp.errors import UserError

    text = "<bos>Q: aa" if FAMILIES[family].add_bos else "<bos><bos>Q: aa"
    with pytest.raises(UserError, match="BOS token twice"):
        model.token_ids(text)


def test_a_prompt_without_tokens_or_beyond_the_context_is_refused(llama: Any) -> None:
    from site_interp.errors import UserError

    assert len(llama.token_ids(" aa" * 256)) == 256
    with pytest.raises(UserError, match=r"257 tokens is longer than the context of .* \(256\)"):
        llama.token_ids(" aa" * 257)
    with pytest.raises(UserError, match="empty prompt"):
        llama.token_ids("")


def test_answer_ids_are_what_follows_the_prompt(model: Any) -> None:
    vocabulary = model.tokenizer.get_vocab()
    assert model.answer_ids("Q: aa\nA:", " bc") == [vocabulary[" bc"]]
    assert model.answer_ids("Q: aa\nA:", " bc ed\n") == [vocabulary[" bc"], vocabulary[" ed"], vocabulary["\n"]]


def test_an_answer_that_merges_with_its_prompt_or_has_no_token_is_refused(model: Any) -> None:
    from site_interp.errors import UserError

    with pytest.raises(UserError, match="merge into one token"):
        model.answer_ids("Q: aa\nA:", "bc")
    with pytest.raises(UserError, match="merge into one token"):
        model.answer_ids("Q: aa\nA: ", "bc")
    with pytest.raises(UserError, match="no token of its own"):
        model.answer_ids("Q: aa\nA:", "")


def test_decoding_leaves_special_tokens_out_and_spaces_in(model: Any) -> None:
    ids = model.tokenizer(" aa bc\n").input_ids
    assert model.decode([3, *ids, 2]) == " aa bc\n"


@pytest.mark.slow
def test_digits_of_the_real_model_follow_the_cue_without_a_space(real_model: Any) -> None:
    from site_interp.prompts import QA

    prompt = "Q: four plus one\nA:"
    (five,) = real_model.answer_ids(prompt, QA.answer("5"))
    assert real_model.decode([five]) == "5"
    # With a space the first token would be the bare space, the same for every number.
    assert {real_model.answer_ids(prompt, f" {n}")[0] for n in range(10)} == {real_model.answer_ids(prompt, " ")[0]}
    assert real_model.decode(real_model.answer_ids(prompt, QA.answer("cold"))[:1]) == " cold"
    assert real_model.token_ids("Q:")[0] != real_model.tokenizer.bos_token_id


def test_hooks_and_callbacks_are_removed_after_an_exception(llama: Any) -> None:
    ids, seen = torch.tensor([[4, 8, 20]]), []

    def fail(z: torch.Tensor) -> None:
        raise ZeroDivisionError

    before = n_hooks(llama.bridge)
    plain = llama.bridge(ids)
    with (
        pytest.raises(ZeroDivisionError),
        llama.hooked([(llama.hook_z(0), fail)], before=seen.append, after=lambda: seen.append("after")),
    ):
        llama.bridge(ids)
    assert n_hooks(llama.bridge) == before
    assert [(call.ids.tolist(), call.n_past) for call in seen] == [([[4, 8, 20]], 0)]
    assert torch.equal(llama.bridge(ids), plain)


def test_a_hook_that_returns_a_tensor_replaces_the_activation(llama: Any) -> None:
    ids = torch.tensor([[4, 8, 20]])
    with llama.hooked([(llama.hook_z(0), lambda z: torch.zeros_like(z))]):
        replaced = llama.bridge(ids)
    with llama.hooked([(llama.hook_z(0), lambda z: None)]):
        seen = llama.bridge(ids)
    assert torch.equal(seen, llama.bridge(ids))
    assert not torch.allclose(replaced, seen, atol=0.01)


def test_frozen_parameters_ask_again_afterwards_even_after_an_exception(llama: Any) -> None:
    flags = [parameter.requires_grad for parameter in llama.inner.parameters()]

    def run() -> None:
        with llama.frozen():
            assert not any(parameter.requires_grad for parameter in llama.inner.parameters())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert [parameter.requires_grad for parameter in llama.inner.parameters()] == flags
    assert all(flags)


def test_no_tensor_is_made_on_the_default_device(llama: Any, task: Any) -> None:
    # On a GPU such a tensor would meet others on another device; here that other device is one without values.
    from site_interp.baselines import SITE, ZeroShot
    from site_interp.evaluation import evaluate
    from site_interp.generation import generate
    from site_interp.selection import FitSettings
    from site_interp.tasks import Labelled

    site = SITE(n_prompts=3, n_shots=2, fitting=FitSettings(n_steps=2, batch_size=2, validate_every=2, n_valid=4))

    def work() -> tuple[Any, Any, list[str]]:
        adapter = site.fit(llama, Labelled(task), 0)
        scores = evaluate(llama, task, [ZeroShot(), adapter])
        return adapter, scores, generate(llama, ["aa", "bc ed"], {"a": adapter}, adapter_names=["a", "__base__"])

    here = work()
    with torch.device("meta"):
        elsewhere = work()
    assert torch.equal(elsewhere[0].selection.logits, here[0].selection.logits)
    assert (str(elsewhere[1]), elsewhere[2]) == (str(here[1]), here[2])
