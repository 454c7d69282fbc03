"""Buckets, padding, memory and what a prefix keeps; the identities are in test_identities.py."""

from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from reference import Oracle, reference_last_logits, reference_logits
from tiny_models import WORDS, on_every_family

TOLERANCE = 1e-4  # logits reach 6, and cached and padded forwards of tiny fp32 models differ from plain ones by 5e-6
PROMPTS = tuple(f"Q: {' '.join(WORDS[(5 * n + i) % 50] for i in range(n))}\nA:" for n in (9, 1, 30, 2, 8, 1, 3, 29))


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool(torch.allclose(found.detach(), wanted, rtol=0, atol=TOLERANCE))


def test_rows_say_which_prompt_they_are_and_every_prompt_is_encoded_once(model: Any) -> None:
    from site_interp.prefixes import encode_prompts

    found = {}
    for prefixes in encode_prompts(model, PROMPTS):
        for row, ids, mask in zip(prefixes.rows.tolist(), prefixes.ids, prefixes.mask, strict=True):
            assert row not in found
            found[row] = ids[mask.bool()].tolist()
            assert mask[-1] == 1
    assert found == {row: model.token_ids(prompt) for row, prompt in enumerate(PROMPTS)}


SHARED = "".join(f"Q: {WORDS[i % 50]}\nA: {WORDS[(3 * i) % 50]}\n\n" for i in range(12))


@on_every_family
@pytest.mark.parametrize("short_ends", [True, False])
def test_a_start_that_all_prompts_share_is_computed_once_and_gives_the_same_logits(
    model: Any, oracle: Oracle, monkeypatch: pytest.MonkeyPatch, short_ends: bool
) -> None:
    from site_interp.model import Model
    from site_interp.prefixes import iterate_prefixes

    computed: list[int] = []
    prefill, forward = Model.prefill, Model.forward

    def noting_prefill(self: Any, ids: Any, mask: Any) -> Any:
        computed.append(ids.numel())
        return prefill(self, ids, mask)

    def noting_forward(self: Any, ids: Any, *args: Any, **rest: Any) -> Any:
        computed.append(ids.numel())
        return forward(self, ids, *args, **rest)

    monkeypatch.setattr(Model, "prefill", noting_prefill)
    monkeypatch.setattr(Model, "forward", noting_forward)
    ends = (*PROMPTS, "Q:", "") if short_ends else PROMPTS
    prompts = [SHARED + text for text in ends]
    lengths = [len(model.token_ids(text)) for text in prompts]
    batches = list(iterate_prefixes(model, prompts, max_rows=4))
    if model.lean.serves:
        assert sum(computed) < sum(lengths) / 3, "the start is not computed for every prompt"
    found: dict[int, torch.Tensor] = {}
    for prefixes in batches:
        logits, cache = prefixes.run_last()
        again, _ = prefixes.run_last()
        assert torch.equal(logits, again), "what is kept is not appended to"
        found.update(zip(prefixes.rows.tolist(), logits[:, -1], strict=True))
        assert cache.get_seq_length() == prefixes.ids.shape[1]
    for row, text in enumerate(prompts):
        assert close(found[row], reference_last_logits(oracle, text))


@on_every_family
def test_a_smaller_budget_makes_smaller_buckets_and_the_same_logits(model: Any, oracle: Oracle) -> None:
    from site_interp.prefixes import encode_prompts, iterate_prefixes

    whole = encode_prompts(model, PROMPTS)
    assert len(whole) < len(PROMPTS)
    splits = {
        "memory": list(iterate_prefixes(model, PROMPTS, memory=1)),
        "rows": list(iterate_prefixes(model, PROMPTS, max_rows=1)),
    }
    for buckets in (whole, *splits.values()):
        for prefixes in buckets:
            logits, _ = prefixes.run_last()
            for place, row in enumerate(prefixes.rows.tolist()):
                assert close(logits[place, -1], reference_last_logits(oracle, PROMPTS[row]))
    assert all(len(prefixes) == 1 for buckets in splits.values() for prefixes in buckets)


def test_a_budget_between_the_extremes_is_kept(llama: Any) -> None:
    from site_interp.prefixes import forward_bytes, iterate_prefixes, kv_bytes

    prompts = ["Q: aa bc\nA:"] * 12
    n_tokens = len(llama.token_ids(prompts[0]))
    memory = kv_bytes(llama, 4 * n_tokens) + forward_bytes(llama, 4 * n_tokens, n_rows=4)
    assert [len(prefixes) for prefixes in iterate_prefixes(llama, prompts, memory=memory)] == [4, 4, 4]
    assert [len(prefixes) for prefixes in iterate_prefixes(llama, prompts, memory=memory - 1)] == [3, 3, 3, 3]


@on_every_family
def test_keys_and_values_of_a_token_take_what_the_cache_holds(model: Any) -> None:
    from site_interp.prefixes import encode_prompts, kv_bytes

    (prefixes,) = encode_prompts(model, ["Q: aa\nA:"] * 2)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in prefixes.cache.layers)
    assert kv_bytes(model, 2 * (prefixes.ids.shape[1] - 1)) == held


@on_every_family
def test_a_prefix_can_be_used_again_and_again(model: Any) -> None:
    from site_interp.prefixes import encode_prompts

    for prefixes in encode_prompts(model, PROMPTS):
        first, _ = prefixes.run_last()
        prefixes.run_last(torch.full((len(prefixes), 3), 9))
        chosen = prefixes.select(torch.zeros(2, dtype=torch.long))
        chosen.run_last()
        again, _ = prefixes.run_last()
        assert torch.equal(again, first)


def test_selected_rows_come_in_the_order_asked_for_repeats_included(model: Any) -> None:
    from site_interp.prefixes import encode_prompts

    prefixes = max(encode_prompts(model, PROMPTS), key=len)
    whole, _ = prefixes.run_last()
    chosen = torch.tensor([len(prefixes) - 1, 0, 0])
    part = prefixes.select(chosen)
    logits, _ = part.run_last()
    assert part.rows.tolist() == prefixes.rows[chosen].tolist()
    assert close(logits, whole[chosen].detach())
    assert not close(logits[0], logits[1].detach())


@on_every_family
def test_further_tokens_follow_the_prompt_and_the_cache_returned_goes_on_from_them(model: Any, oracle: Oracle) -> None:
    from site_interp.prefixes import encode_prompts

    more = model.answer_ids("A:", " bd cc ae")
    for prefixes in encode_prompts(model, PROMPTS):
        rows = torch.tensor([more] * len(prefixes))
        logits, _ = prefixes.run_last(rows, n_logits=0)
        part, cache = prefixes.run_last(rows[:, :2], n_logits=1)
        mask = torch.cat([prefixes.mask, torch.ones_like(rows)], dim=1)
        after, _ = model.forward(rows[:, 2:], mask, cache)
        for place, row in enumerate(prefixes.rows.tolist()):
            wanted = reference_logits(oracle, [*model.token_ids(PROMPTS[row]), *more])[-4:]
            assert close(logits[place], wanted)
            assert close(part[place, -1], wanted[2])
            assert close(after[place, -1], wanted[3])


def test_padding_after_further_tokens_is_harmless(model: Any, oracle: Oracle) -> None:
    from site_interp.prefixes import encode_prompts

    (prefixes,) = encode_prompts(model, ["Q: aa\nA:", "Q: aa bc\nA:"])
    more = torch.tensor([[9, 0, 0], [10, 11, 12]])
    logits, _ = prefixes.run_last(more, n_logits=0)
    wanted = reference_logits(oracle, [*model.token_ids("Q: aa\nA:"), 9])[-2:]
    assert close(logits[0, :2], wanted)


@on_every_family
def test_joined_prompts_keep_their_order_and_their_logits_and_leave_the_parts_alone(model: Any, oracle: Oracle) -> None:
    from site_interp.prefixes import encode_prompts, join_prefixes

    one_token = "" if model.tokenizer("").input_ids else "A:"
    prompts = (*PROMPTS, one_token)
    parts = encode_prompts(model, prompts)[::-1]  # the one-token prompt comes last
    alone = [part.run_last()[0] for part in parts]
    joined = join_prefixes(parts)
    assert joined.rows.tolist() == [row for part in parts for row in part.rows.tolist()]
    logits, _ = joined.run_last()
    for place, row in enumerate(joined.rows.tolist()):
        assert close(logits[place, -1], reference_last_logits(oracle, prompts[row]))
    assert all(torch.equal(part.run_last()[0], before) for part, before in zip(parts, alone, strict=True))
    assert join_prefixes(parts[:1]) is parts[0]


def test_prefixes_ask_for_no_gradient(model: Any) -> None:
    from site_interp.prefixes import encode_prompts

    (prefixes,) = encode_prompts(model, ["Q: aa\nA:"])
    assert not any(layer.keys.requires_grad or layer.values.requires_grad for layer in prefixes.cache.layers)


def test_a_prompt_longer_than_the_context_is_refused_by_its_length(llama: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.prefixes import encode_prompts

    with pytest.raises(UserError, match="256"):
        encode_prompts(llama, ["Q: aa\nA:", "Q:" + " aa" * 300])
    longest = encode_prompts(llama, ["Q:" + " aa" * 255])[0]
    assert longest.ids.shape[1] == 256


def test_left_padding_ends_every_row_in_the_last_column() -> None:
    from site_interp.model import pad_left

    ids, mask = pad_left([[5, 6, 7], [8]], torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


@example([2, 1, 3, 1], 4)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(1, 8))
def test_buckets_hold_every_row_once_and_keep_to_the_budget(lengths: list[int], most: int) -> None:
    from site_interp.prefixes import length_buckets

    buckets = length_buckets(lengths, lambda n_rows, length: n_rows <= most)
    assert sorted(index for bucket in buckets for index in bucket) == list(range(len(lengths)))
    for bucket in buckets:
        inside = [lengths[index] for index in bucket]
        assert len(bucket) <= most
        assert max(inside) == 1 or min(inside) > 1


@given(st.lists(st.sampled_from([1, 2, 3, 5, 8, 13, 30, 60, 90]), min_size=1, max_size=8), st.integers(0, 60))
def test_no_grouping_by_length_costs_less(lengths: list[int], start: int) -> None:
    from site_interp.prefixes import length_buckets

    ordered = sorted(lengths)
    costs = []
    for cuts in product([False, True], repeat=len(ordered) - 1):  # every way to cut the sorted rows into stretches
        bounds = [0, *(place for place, cut in enumerate(cuts, start=1) if cut), len(ordered)]
        stretches = [ordered[first:end] for first, end in pairwise(bounds)]
        if all(rows[0] > 1 or rows[-1] == 1 for rows in stretches):
            costs.append(sum(start + len(rows) * rows[-1] for rows in stretches))
    buckets = length_buckets(lengths, lambda n_rows, length: True, start=start)
    assert sum(start + len(rows) * max(lengths[row] for row in rows) for rows in buckets) == min(costs)
