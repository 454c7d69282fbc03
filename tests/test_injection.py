"""Where an injection goes, how often, and what its receipt says; the right values come from `reference.py`."""

from typing import Any

import pytest
import torch
from reference import Oracle, n_hooks, reference_ids, reference_last_logits, reference_logits
from torch import Tensor

TOLERANCE = 1e-4  # logits reach 6, and cached and padded forwards of tiny fp32 models differ from plain ones by 5e-6
LONG, SHORT, LAST = "Q: aa bc ed ab ca dj eb\nA:", "Q: bd\nA:", "Q: ce da ac bb\nA:"
PROMPTS = (LONG, SHORT, LAST)
N_TOKENS = 6


@pytest.fixture
def target(model: Any) -> Tensor:
    """One target for each of three rows."""
    draw = torch.Generator().manual_seed(1)
    return torch.randn(3, model.n_layers, model.n_heads, model.d_head, generator=draw)


@pytest.fixture
def alpha(model: Any) -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.rand(3, model.n_layers, model.n_heads, generator=draw)


@pytest.fixture
def intervention(target: Tensor, alpha: Tensor) -> Any:
    from site_interp.injection import Intervention

    return Intervention(target, alpha)


def padded(model: Any, side: str, prompts: tuple[str, ...] = PROMPTS) -> dict[str, Tensor]:
    """Arguments of a forward of prompts padded on one side, with the tokenizer's pad token."""
    rows = [model.token_ids(prompt) for prompt in prompts]
    longest = max(map(len, rows))
    before = [longest - len(row) if side == "left" else 0 for row in rows]
    after = [longest - len(row) - start for row, start in zip(rows, before, strict=True)]
    triples = list(zip(before, rows, after, strict=True))
    pad = model.tokenizer.pad_token_id
    ids = torch.tensor([[pad] * start + row + [pad] * end for start, row, end in triples])
    mask = torch.tensor([[0] * start + [1] * len(row) + [0] * end for start, row, end in triples])
    return {"input": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}


def expected(oracle: Oracle, prompts: tuple[str, ...], target: Tensor, alpha: Tensor) -> Tensor:
    rows = zip(prompts, target, alpha, strict=True)
    return torch.stack([reference_last_logits(oracle, *row) for row in rows])


def close(found: Tensor, wanted: Tensor) -> bool:
    return bool(torch.allclose(found.detach(), wanted, rtol=0, atol=TOLERANCE))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_forward_injects_each_row_and_layer_once_at_its_last_real_token(
    model: Any, oracle: Oracle, intervention: Any, side: str
) -> None:
    from site_interp.injection import injecting

    arguments = padded(model, side)
    with injecting(model, intervention) as receipt:
        logits = model.bridge(**arguments)
    n_columns = arguments["input"].shape[1]
    ends = [n_columns - 1] * 3 if side == "left" else [len(model.token_ids(prompt)) - 1 for prompt in PROMPTS]
    assert (receipt.n_forwards, receipt.n_injected, receipt.columns) == (1, 3 * model.n_layers, ends)
    found = logits[torch.arange(3), torch.tensor(ends)]
    assert close(found, expected(oracle, PROMPTS, intervention.target, intervention.alpha))


def test_no_other_position_is_written_to(model: Any, oracle: Oracle, intervention: Any) -> None:
    from site_interp.injection import injecting

    ids = model.token_ids(LONG)
    with injecting(model, intervention.rows(torch.tensor([0])), torch.tensor([3])) as receipt:
        logits = model.bridge(torch.tensor([ids]))
    assert receipt.columns == [3]
    wanted = reference_logits(oracle, ids, 3, intervention.target[0], intervention.alpha[0])
    assert close(logits[0], wanted)
    assert not close(wanted[4:], reference_logits(oracle, ids)[4:])


def test_one_position_given_for_all_rows_counts_every_row(model: Any, oracle: Oracle, intervention: Any) -> None:
    from site_interp.injection import injecting

    ids = torch.tensor([model.token_ids(LONG)] * 3)
    with injecting(model, intervention, torch.tensor([4])) as receipt:
        logits = model.bridge(ids)
    assert (receipt.n_injected, receipt.columns) == (3 * model.n_layers, [4, 4, 4])
    for row in range(3):
        wanted = reference_logits(oracle, ids[row].tolist(), 4, intervention.target[row], intervention.alpha[row])
        assert close(logits[row], wanted)


def test_one_target_may_serve_rows_with_their_own_alphas(
    model: Any, oracle: Oracle, target: Tensor, alpha: Tensor
) -> None:
    from site_interp.injection import Intervention, injecting

    ids = torch.tensor([model.token_ids(LONG)] * 3)
    for shared in (Intervention(target[:1], alpha), Intervention(target, alpha[:1])):
        with injecting(model, shared):
            logits = model.bridge(ids)
        rows = zip([LONG] * 3, shared.target.expand_as(target), shared.alpha.expand_as(alpha), strict=True)
        assert close(logits[:, -1], torch.stack([reference_last_logits(oracle, *row) for row in rows]))


def test_choosing_rows_of_an_intervention_keeps_what_is_shared_shared(target: Tensor, alpha: Tensor) -> None:
    from site_interp.injection import Intervention

    chosen = Intervention(target[:1], alpha).rows(torch.tensor([2, 2, 0]))
    assert torch.equal(chosen.target, target[:1])
    assert torch.equal(chosen.alpha, alpha[[2, 2, 0]])
    assert torch.equal(Intervention(target, alpha[:1]).rows(torch.tensor([1])).target, target[[1]])


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("who", ["inner", "bridge"])
def test_generation_injects_once_with_a_cache_and_in_every_step_without(
    model: Any, oracle: Oracle, intervention: Any, who: str, cached: bool
) -> None:
    from site_interp.injection import injecting

    arguments = padded(model, "left")
    ids, mask = arguments["input"], arguments["attention_mask"]
    with injecting(model, intervention) as receipt:
        if who == "inner":
            # No end-of-sequence token: every row writes all its tokens.
            made = model.inner.generate(
                ids, attention_mask=mask, max_new_tokens=N_TOKENS, do_sample=False, use_cache=cached, eos_token_id=None
            )
        else:
            made = model.bridge.generate(
                ids, attention_mask=mask, max_new_tokens=N_TOKENS, do_sample=False, use_past_kv_cache=cached,
                stop_at_eos=False, verbose=False,
            )  # fmt: skip
    n_forwards = 1 if cached else N_TOKENS
    assert (receipt.n_forwards, receipt.n_injected) == (n_forwards, n_forwards * 3 * model.n_layers)
    for row, prompt in enumerate(PROMPTS):
        wanted = reference_ids(oracle, prompt, N_TOKENS, intervention.target[row], intervention.alpha[row])
        assert made[row, ids.shape[1] :].tolist() == wanted


def test_a_prompt_of_one_token_is_injected_in_its_prefill_only(model: Any, oracle: Oracle, intervention: Any) -> None:
    from site_interp.injection import injecting

    prompt = "" if model.tokenizer("").input_ids else "A:"
    ids = torch.tensor([model.token_ids(prompt)])
    assert ids.shape == (1, 1)
    with injecting(model, intervention.rows(torch.tensor([1]))) as receipt:
        made = model.inner.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=N_TOKENS, do_sample=False, eos_token_id=None
        )
    assert (receipt.n_forwards, receipt.n_injected, receipt.columns) == (1, model.n_layers, [0])
    assert made[0, 1:].tolist() == reference_ids(
        oracle, prompt, N_TOKENS, intervention.target[1], intervention.alpha[1]
    )


def test_a_prompt_computed_in_chunks_is_injected_where_the_columns_say(
    model: Any, oracle: Oracle, intervention: Any
) -> None:
    from site_interp.injection import injecting

    arguments = padded(model, "right")
    ids, mask = arguments["input"], arguments["attention_mask"]
    ends = torch.tensor([len(model.token_ids(prompt)) - 1 for prompt in PROMPTS])
    cut = int(ends.min()) + 1  # the shortest prompt ends in the first chunk, the others in the second
    with injecting(model, intervention, ends) as receipt:
        first, cache = model.forward(ids[:, :cut], mask[:, :cut])
        assert (receipt.n_forwards, receipt.n_injected) == (1, model.n_layers)
        second, _ = model.forward(ids[:, cut:], mask, cache)
    assert (receipt.n_forwards, receipt.n_injected) == (2, 3 * model.n_layers)
    logits = torch.cat([first, second], dim=1)[torch.arange(3), ends]
    assert close(logits, expected(oracle, PROMPTS, intervention.target, intervention.alpha))


def test_calls_that_follow_each_other_in_a_block_are_each_injected(
    model: Any, oracle: Oracle, intervention: Any
) -> None:
    from site_interp.injection import injecting

    # The second prompt begins with the first, the third is the second again, the fourth is shorter.
    prompts = ("Q: aa bc\nA:", "Q: aa bc\nA: ed ab", "Q: aa bc\nA: ed ab", "Q: bd\nA:")
    one = intervention.rows(torch.tensor([2]))
    with injecting(model, one) as receipt:
        for number, prompt in enumerate(prompts, start=1):
            logits = model.bridge(torch.tensor([model.token_ids(prompt)]))
            assert close(logits[0, -1], reference_last_logits(oracle, prompt, one.target[0], one.alpha[0]))
            assert (receipt.n_forwards, receipt.n_injected) == (number, number * model.n_layers)


def test_generations_that_follow_each_other_in_a_block_are_each_injected(
    model: Any, oracle: Oracle, intervention: Any
) -> None:
    from site_interp.injection import injecting

    one = intervention.rows(torch.tensor([0]))
    with injecting(model, one) as receipt:
        for prompt in ("Q: aa bc\nA:", "Q: aa bc\nA: ed", "Q: aa bc\nA: ed"):
            ids = torch.tensor([model.token_ids(prompt)])
            made = model.inner.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False, eos_token_id=None
            )
            wanted = reference_ids(oracle, prompt, 3, one.target[0], one.alpha[0])
            assert made[0, ids.shape[1] :].tolist() == wanted
    assert receipt.n_forwards == 3


def test_a_cache_made_outside_the_block_is_continued_and_its_first_token_injected(
    model: Any, oracle: Oracle, intervention: Any
) -> None:
    from site_interp.injection import injecting
    from site_interp.model import select_rows

    ids, mask = padded(model, "left", (LONG,))["input"], torch.ones(1, len(model.token_ids(LONG)), dtype=torch.long)
    one = intervention.rows(torch.tensor([1]))
    _, cache = model.forward(ids[:, :-1], mask[:, :-1])
    with injecting(model, one) as receipt:
        logits, _ = model.forward(ids[:, -1:], mask, select_rows(cache))
    assert receipt.n_injected == model.n_layers
    assert close(logits[0, -1], reference_last_logits(oracle, LONG, one.target[0], one.alpha[0]))


def test_no_hook_outlives_its_block_and_the_users_own_stays(model: Any, intervention: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import injecting

    calls: list[tuple[int, ...]] = []
    model.bridge.add_hook(model.hook_z(1), lambda z, hook: calls.append(tuple(z.shape)))
    try:
        before = n_hooks(model.bridge)
        plain = model.bridge(**padded(model, "left"))
        with injecting(model, intervention):
            injected = model.bridge(**padded(model, "left"))
            assert n_hooks(model.bridge) > before
        assert n_hooks(model.bridge) == before
        with pytest.raises(UserError, match="a batch of 2 rows"), injecting(model, intervention):
            model.bridge(**padded(model, "left", PROMPTS[:2]))
        assert n_hooks(model.bridge) == before
        assert torch.equal(model.bridge(**padded(model, "left")), plain)
        assert not torch.equal(injected, plain)
        assert len(calls) == 3
    finally:
        model.bridge.reset_hooks()


def test_targets_of_another_precision_are_cast_to_the_models(llama: Any) -> None:
    from site_interp.injection import Intervention, injecting

    ids = torch.tensor([llama.token_ids(LONG)])
    target, alpha = torch.ones(1, 3, 4, 8), torch.full((1, 3, 4), 0.25)
    logits = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):  # the values are exact in all three
        with injecting(llama, Intervention(target.to(dtype), alpha.to(dtype))):
            logits.append(llama.bridge(ids))
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_injected_text_without_an_intervention_is_the_models_own(model: Any, oracle: Oracle) -> None:
    from site_interp.injection import injected_text
    from site_interp.prefixes import encode_prompts

    for prefixes in encode_prompts(model, PROMPTS):
        found = injected_text(prefixes, max_new_tokens=4, stop="nothing writes this")
        for row, text in zip(prefixes.rows.tolist(), found, strict=True):
            ids = reference_ids(oracle, PROMPTS[row], 4)
            stop = [place for place, index in enumerate(ids) if index in model.stop_ids]
            assert text == model.decode(ids[: stop[0]] if stop else ids)
