"""Kept prompts: the rows asked for, in few tensors, within what was said beforehand."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import WORDS

PROMPTS = tuple(f"Q: {' '.join(WORDS[(5 * n + i) % 50] for i in range(n))}\nA:" for n in (9, 1, 30, 2, 8, 3, 29, 60))


def tensors(kept: Any) -> list[torch.Tensor]:
    layers = [layer for prefixes in kept._groups for layer in prefixes.cache.layers]
    return [values for layer in layers for values in (layer.keys, layer.values)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(PROMPTS), min_size=1, max_size=12), st.integers(1, 5))
def test_batches_hold_every_prompt_asked_for_at_its_place(llama: Any, asked: list[str], max_rows: int) -> None:
    from site_interp.kept import KeptPrefixes

    kept = KeptPrefixes(llama, PROMPTS, 1 << 30)
    seen: dict[int, list[int]] = {}
    for prefixes, places in kept.batches(asked, max_rows):
        assert len(prefixes) == len(places) <= max_rows
        for row, place in enumerate(places):
            assert place not in seen
            seen[place] = prefixes.ids[row][prefixes.mask[row].bool()].tolist()
    assert {place: llama.token_ids(prompt) for place, prompt in enumerate(asked)} == seen


def test_gathered_rows_give_the_logits_of_their_prompts(model: Any) -> None:
    from site_interp.kept import KeptPrefixes
    from site_interp.prefixes import encode_prompts

    asked = [PROMPTS[index] for index in (3, 7, 0, 3, 1)]
    expected = torch.cat([encode_prompts(model, [prompt])[0].run_last()[0] for prompt in asked])
    for prefixes, places in KeptPrefixes(model, PROMPTS, 1 << 30).batches(asked, 5):
        assert torch.allclose(prefixes.run_last()[0], expected[places], atol=1e-4)


def test_buckets_of_similar_length_share_tensors_and_others_do_not(llama: Any) -> None:
    from site_interp.kept import RATIO, SLACK, KeptPrefixes
    from site_interp.prefixes import encode_prompts

    prompts = [*PROMPTS, *(f"Q: {' '.join((word, *WORDS[:n]))}\nA:" for word in WORDS for n in range(8))]
    kept = KeptPrefixes(llama, prompts, 1 << 30)
    assert kept.longest == max(len(llama.token_ids(prompt)) for prompt in prompts)
    buckets = [(len(bucket), bucket.ids.shape[1]) for bucket in encode_prompts(llama, prompts)]
    assert 1 < len(kept._groups) < len(buckets)
    most = 0.0
    for group in kept._groups:
        n_rows, first = buckets.pop(0)
        assert first > most, "it could have shared the tensors of the group before"
        most = first * RATIO + SLACK
        while n_rows < len(group):
            n_rows += buckets[0][0]
            assert buckets.pop(0)[1] <= most
        assert n_rows == len(group)
    assert not buckets


@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[1:2], PROMPTS[2:3] + PROMPTS[6:7]])
def test_what_is_kept_takes_at_most_what_was_said(llama: Any, prompts: tuple[str, ...]) -> None:
    from site_interp.kept import KeptPrefixes, kept_bytes

    took = sum(values.numel() * values.element_size() for values in tensors(KeptPrefixes(llama, prompts, 1 << 30)))
    assert took == kept_bytes(llama, prompts, 1 << 30)


def test_a_group_is_never_larger_than_half_the_budget(llama: Any) -> None:
    """Four lengths of fifty prompts: close enough to share tensors, and too many to do so within the budget."""
    from site_interp.kept import KeptPrefixes

    prompts = [f"Q: {' '.join((word, *WORDS[:n]))}\nA:" for word in WORDS for n in range(4)]
    roomy = KeptPrefixes(llama, prompts, 1 << 30)
    assert len(roomy._groups) == 1
    budget = 3 * sum(values.numel() * values.element_size() for values in tensors(roomy)) // 2
    tight = KeptPrefixes(llama, prompts, budget)
    for prefixes in tight._groups:
        layers = prefixes.cache.layers
        size = sum(values.numel() * values.element_size() for layer in layers for values in (layer.keys, layer.values))
        assert 0 < size <= budget // 2
