"""Answers for inputs, and injection into any forward or generation of the model itself."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import Oracle, reference_ids, reference_last_logits
from tiny_models import WORDS
from upper_fixtures import model_state, word_task

from site_interp.adapter import Adapter
from site_interp.embedding import embed_task
from site_interp.errors import UserError
from site_interp.generation import generate, inject
from site_interp.injection import injected_text
from site_interp.model import Model, load_model
from site_interp.prefixes import encode_prompts
from site_interp.prompts import QA, Template
from site_interp.selection import HeadSelection

INPUTS = ["aa", "ab ac ad ae af ag ah ai aj ba", "bb bc", "bd be bf bg", "bh"]
CLOSE = 1e-4  # logits of a tiny model in fp32


@pytest.fixture(scope="module")
def adapters(tiny_folders: dict[str, Path]) -> dict[str, Adapter]:
    """An adapter for each tiny model that moves it a lot, without a fit."""
    made = {}
    for family, folder in tiny_folders.items():
        model = load_model(folder)
        logits = 3 * torch.randn(model.n_layers, model.n_heads, generator=torch.Generator().manual_seed(2))
        made[family] = Adapter(embed_task(model, word_task(), n_prompts=3, n_shots=2), HeadSelection(logits))
    return made


def expected(oracle: Oracle, prompt: str, adapter: Adapter | None, n_tokens: int = 6) -> str:
    injected = () if adapter is None else (adapter.embedding.mean, adapter.selection.alpha)
    ids = reference_ids(oracle, prompt, n_tokens, *injected)
    kept = ids[: ids.index(2)] if 2 in ids else ids
    text: str = oracle.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.split("\n")[0].strip()


def test_answers_are_those_of_the_oracle_in_the_order_of_the_inputs(
    model: Model, oracle: Oracle, family: str, adapters: dict[str, Adapter]
) -> None:
    adapter = adapters[family]
    wanted = [expected(oracle, f"Q: {text}\nA:", adapter) for text in INPUTS]
    assert generate(model, INPUTS, adapter, max_new_tokens=6) == wanted
    assert generate(model, INPUTS[::-1], adapter, max_new_tokens=6) == wanted[::-1]
    plain = generate(model, INPUTS, max_new_tokens=6)
    assert plain == [expected(oracle, f"Q: {text}\nA:", None) for text in INPUTS]
    assert plain != wanted


def test_answers_are_the_injected_text_cut_and_stripped(llama: Model, adapters: dict[str, Adapter]) -> None:
    adapter = adapters["llama"]
    for text, answer in zip(INPUTS, generate(llama, INPUTS, adapter), strict=True):
        (prefixes,) = encode_prompts(llama, [QA.zero_shot(text)])
        (written,) = injected_text(prefixes, adapter.intervention(), max_new_tokens=20, stop="\n")
        assert answer == written.split("\n")[0].strip()


def test_more_inputs_than_fit_in_a_batch_or_in_memory_are_answered(llama: Model) -> None:
    many = [f"{first} {second}" for first in WORDS[:9] for second in WORDS[:9]]
    answers = generate(llama, many, max_new_tokens=2)
    assert answers[::27] == [generate(llama, [text], max_new_tokens=2)[0] for text in many[::27]]
    assert generate(llama, many[:9], max_new_tokens=2, memory=1) == answers[:9]


def test_raw_inputs_are_whole_prompts(llama: Model, adapters: dict[str, Adapter]) -> None:
    prompts = [QA.zero_shot(text) for text in INPUTS]
    answers = generate(llama, prompts, adapters["llama"], raw=True)
    assert answers == generate(llama, INPUTS, adapters["llama"])
    assert answers != generate(llama, INPUTS, adapters["llama"], raw=True)


def test_prompts_are_written_by_the_template_of_the_adapter_and_another_one_is_refused(
    llama: Model, adapters: dict[str, Adapter]
) -> None:
    embedding = replace(adapters["llama"].embedding, template=replace(QA, input_prefix="ab "))
    own = Adapter(embedding, HeadSelection(torch.full((3, 4), -5.0)))
    raw = [generate(llama, [f"{start} aa\nA:"], own, raw=True)[0] for start in ("ab", "ba bb")]
    assert raw[0] != raw[1]
    assert generate(llama, ["aa"], own) == raw[:1]
    assert generate(llama, ["aa"], own, template=replace(own.template, name="same")) == raw[:1]
    with pytest.raises(UserError, match="input_prefix 'ab ' against 'ba bb '"):
        generate(llama, ["aa"], own, template=replace(QA, input_prefix="ba bb "))


def test_an_answer_ends_at_the_stop_text_of_the_template(llama: Model) -> None:
    text, long = next((text, answer) for text in WORDS for answer in generate(llama, [text]) if answer.count(" ") > 3)
    stop = " " + long.split()[3]
    template = Template("own", "Q: ", "\nA:", " ", "\n\n", stop)
    assert generate(llama, [text], template=template) == [long[: long.index(stop)].strip()]


def test_no_inputs_give_no_answers(llama: Model) -> None:
    assert generate(llama, []) == []


def test_an_adapter_of_another_model_is_refused(llama: Model, adapters: dict[str, Adapter]) -> None:
    with pytest.raises(UserError, match="type gpt2 against llama"):
        generate(llama, ["aa"], adapters["gpt2"])
    with pytest.raises(UserError, match="type gpt2 against llama"):
        inject(llama, adapters["gpt2"])


def test_an_empty_prompt_is_refused(llama: Model) -> None:
    with pytest.raises(UserError, match="empty prompt"):
        generate(llama, [""], raw=True)


def test_generation_of_the_bridge_is_injected_once_and_writes_the_same(
    model: Model, oracle: Oracle, family: str, adapters: dict[str, Adapter]
) -> None:
    adapter = adapters[family]
    ids = torch.tensor([model.token_ids("Q: bd be\nA:")])
    before = model_state(model)
    with inject(model, adapter) as receipt:
        written = model.bridge.generate(
            ids, max_new_tokens=4, do_sample=False, stop_at_eos=False, verbose=False, return_type="tokens"
        )
    n_prompt = ids.shape[1]
    target, alpha = adapter.embedding.mean, adapter.selection.alpha
    assert written[0, n_prompt:].tolist() == reference_ids(oracle, "Q: bd be\nA:", 4, target, alpha)
    assert (receipt.n_forwards, receipt.n_injected, receipt.columns) == (1, model.n_layers, [n_prompt - 1])
    assert model_state(model) == before


def test_generation_of_the_hugging_face_model_is_injected_once_and_writes_the_same(
    model: Model, oracle: Oracle, family: str, adapters: dict[str, Adapter]
) -> None:
    adapter = adapters[family]
    ids = torch.tensor([model.token_ids("Q: bd be\nA:")])
    with inject(model, adapter) as receipt:
        written = model.inner.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, min_new_tokens=4, do_sample=False
        )
    n_prompt = ids.shape[1]
    wanted = reference_ids(oracle, "Q: bd be\nA:", 4, adapter.embedding.mean, adapter.selection.alpha)
    assert 2 not in wanted, "an end of sequence would be suppressed here: take another prompt"
    assert written[0, n_prompt:].tolist() == wanted
    assert (receipt.n_forwards, receipt.n_injected) == (1, model.n_layers)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_forward_on_a_padded_batch_is_injected_at_each_last_token(
    model: Model, oracle: Oracle, family: str, adapters: dict[str, Adapter], side: str
) -> None:
    adapter, prompts = adapters[family], ["Q: aa\nA:", "Q: ab ac ad\nA:"]
    rows = [model.token_ids(prompt) for prompt in prompts]
    width = max(map(len, rows))
    gap = [[0] * (width - len(row)) for row in rows]
    ids = torch.tensor([g + row if side == "left" else row + g for g, row in zip(gap, rows, strict=True)])
    ones = [[1] * len(row) for row in rows]
    mask = torch.tensor([g + row if side == "left" else row + g for g, row in zip(gap, ones, strict=True)])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad(), inject(model, adapter) as receipt:
        logits = model.bridge(ids, attention_mask=mask, position_ids=positions, return_type="logits")
    last = [width - 1, width - 1] if side == "left" else [len(row) - 1 for row in rows]
    assert receipt.columns == last
    assert receipt.n_injected == 2 * model.n_layers
    for row, prompt in enumerate(prompts):
        wanted = reference_last_logits(oracle, prompt, adapter.embedding.mean, adapter.selection.alpha)
        torch.testing.assert_close(logits[row, last[row]], wanted, atol=CLOSE, rtol=0)


def test_nothing_stays_on_the_model_after_an_exception_inside_the_block(
    llama: Model, adapters: dict[str, Adapter]
) -> None:
    before = model_state(llama)
    with pytest.raises(KeyError, match="mine, hooked: True"), inject(llama, adapters["llama"]):
        raise KeyError(f"mine, hooked: {model_state(llama) != before}")
    assert model_state(llama) == before
    ids = torch.tensor([llama.token_ids("Q: aa\nA:")])
    with torch.no_grad():
        plain = llama.bridge(ids, return_type="logits")
        with inject(llama, adapters["llama"]):
            changed = llama.bridge(ids, return_type="logits")
        assert torch.equal(llama.bridge(ids, return_type="logits"), plain)
    assert not torch.equal(changed, plain)


def test_a_block_in_which_nothing_ran_is_an_error(llama: Model, adapters: dict[str, Adapter]) -> None:
    with pytest.raises(RuntimeError, match="no forward ran"), inject(llama, adapters["llama"]):
        pass
