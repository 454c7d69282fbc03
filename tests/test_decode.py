"""Greedy decoding on a cache against whole forwards of plain transformers."""

from typing import Any

import pytest
import torch
from reference import Oracle, reference_ids
from tiny_models import WORDS, on_every_family

PROMPTS = tuple(f"Q: {' '.join(WORDS[(5 * n + i) % 50] for i in range(n))}\nA:" for n in (7, 1, 12, 2, 6, 3))
NEVER = "nothing writes this"


def decoded(model: Any, prompts: tuple[str, ...], n_tokens: int, stop: str | list[str]) -> list[str]:
    from site_interp.model import decode_greedy, pad_left

    with torch.no_grad():
        ids, mask = pad_left([model.token_ids(prompt) for prompt in prompts], model.device)
        logits, cache = model.forward(ids, mask, n_logits=1)
        return decode_greedy(model, logits[:, -1], mask, cache, max_new_tokens=n_tokens, stop=stop)


def wanted(model: Any, ids: list[int], stop: str = NEVER) -> str:
    """Text up to the first end-of-sequence token, or up to and including the token that completes the stop text."""
    for n_tokens in range(len(ids)):
        if ids[n_tokens] in model.stop_ids:
            return str(model.decode(ids[:n_tokens]))
        if stop in model.decode(ids[: n_tokens + 1]):
            return str(model.decode(ids[: n_tokens + 1]))
    return str(model.decode(ids))


@on_every_family
def test_rows_of_unequal_prompts_decode_as_whole_forwards_do_one_by_one(model: Any, oracle: Oracle) -> None:
    texts = decoded(model, PROMPTS, 10, NEVER)
    assert texts == [wanted(model, reference_ids(oracle, prompt, 10)) for prompt in PROMPTS]
    assert len(set(texts)) > 1


def test_a_row_that_meets_the_stop_text_ends_while_the_others_go_on(model: Any, oracle: Oracle) -> None:
    ids = [reference_ids(oracle, prompt, 10) for prompt in PROMPTS]
    words = [word for row in ids for word in model.decode(row[1:8]).split() if word in WORDS]
    stop = max(set(words), key=words.count)  # some rows write it, at different steps
    texts = decoded(model, PROMPTS, 10, stop)
    assert texts == [wanted(model, row, stop) for row in ids]
    assert len({len(text) for text in texts}) > 1


def test_each_row_ends_at_its_own_stop_text(model: Any, oracle: Oracle) -> None:
    ids = [reference_ids(oracle, prompt, 10) for prompt in PROMPTS]
    written = [model.decode(row).split() for row in ids]
    stops = [words[min(place, len(words) - 1)] if words else NEVER for place, words in enumerate(written)]
    texts = decoded(model, PROMPTS, 10, stops)
    assert texts == [wanted(model, row, stop) for row, stop in zip(ids, stops, strict=True)]
    assert texts != decoded(model, PROMPTS, 10, stops[::-1])


def test_stop_texts_that_are_not_one_for_each_row_are_an_error(llama: Any) -> None:
    with pytest.raises(ValueError, match="6 rows with 5 stop texts"):
        decoded(llama, PROMPTS, 10, [NEVER] * 5)


def test_an_end_of_sequence_token_ends_its_row_and_is_not_written(
    llama: Any, tiny_folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from reference import load_oracle

    oracle = load_oracle(tiny_folders["llama"])
    ids = [reference_ids(oracle, prompt, 10) for prompt in PROMPTS]
    ends = next(index for index in ids[0][2:] if index not in ids[0][:2])
    monkeypatch.setattr(llama.inner.generation_config, "eos_token_id", [ends])
    assert llama.stop_ids == {ends, llama.tokenizer.eos_token_id}
    texts = decoded(llama, PROMPTS, 10, NEVER)
    assert texts == [wanted(llama, row) for row in ids]
    assert texts[0] == llama.decode(ids[0][: ids[0].index(ends)]) != llama.decode(ids[0])


def test_a_first_token_that_ends_the_sequence_gives_an_empty_text(llama: Any) -> None:
    from site_interp.model import decode_greedy, pad_left

    ids, mask = pad_left([llama.token_ids("Q: aa\nA:")], llama.device)
    _, cache = llama.forward(ids, mask)
    logits = torch.zeros(1, llama.d_vocab)
    logits[0, llama.tokenizer.eos_token_id] = 1
    assert decode_greedy(llama, logits, mask, cache, max_new_tokens=5, stop=NEVER) == [""]


@pytest.mark.parametrize("n_tokens", [1, 4])
def test_no_row_has_more_tokens_than_asked_for(model: Any, oracle: Oracle, n_tokens: int) -> None:
    texts = decoded(model, PROMPTS, n_tokens, NEVER)
    assert texts == [wanted(model, reference_ids(oracle, prompt, n_tokens)) for prompt in PROMPTS]


def test_the_prompts_cache_is_left_unchanged(model: Any) -> None:
    from site_interp.model import decode_greedy, pad_left

    ids, mask = pad_left([model.token_ids(prompt) for prompt in PROMPTS], model.device)
    with torch.no_grad():
        logits, cache = model.forward(ids, mask, n_logits=1)
        first, second = (
            decode_greedy(model, logits[:, -1], mask, cache, max_new_tokens=6, stop=NEVER) for _ in range(2)
        )
    assert first == second


@on_every_family
def test_a_row_whose_context_is_full_ends_while_the_others_go_on(model: Any, oracle: Oracle) -> None:
    # The last token written need not be read again, so a prompt of n tokens leaves room for n_ctx - n + 1.
    prompts = (f"Q:{' aa' * (model.n_ctx - 5)}", "Q: aa bc\nA:")
    room = model.n_ctx - len(model.token_ids(prompts[0])) + 1
    assert room < 8
    texts = decoded(model, prompts, 8, NEVER)
    assert texts[0] == wanted(model, reference_ids(oracle, prompts[0], room))
    assert texts[1] == wanted(model, reference_ids(oracle, prompts[1], 8))
