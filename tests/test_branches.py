"""Branches of the last token give what rows give, on every family, and share nothing but the prefix."""

from typing import Any

import pytest
import torch
from tiny_models import WORDS, on_every_family

from site_interp.branches import first_layers, score_branches
from site_interp.errors import NotFiniteError, UserError
from site_interp.injection import Intervention, injected_logits
from site_interp.prefixes import encode_prompts, join_prefixes

PROMPTS = tuple(f"Q: {' '.join(WORDS[(7 * n + i) % 50] for i in range(n))}\nA:" for n in (1, 3, 9, 20))
TOLERANCE = 1e-5  # of log-probabilities of a few nats, tiny models in fp32


def alphas_of(model: Any) -> torch.Tensor:
    """All one-hots, none, all, and soft ones that begin at every layer."""
    heads = (model.n_layers, model.n_heads)
    generator = torch.Generator().manual_seed(0)
    soft = torch.rand(model.n_layers, *heads, generator=generator)
    for layer in range(model.n_layers):
        soft[layer, :layer] = 0
    one_hots = torch.eye(heads[0] * heads[1]).view(-1, *heads)
    return torch.cat([soft.flip(0), one_hots, torch.zeros(1, *heads), torch.ones(1, *heads)])


def targets_of(model: Any, n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, model.n_layers, model.n_heads, model.d_head, generator=generator)


def by_rows(prefixes: Any, answers: torch.Tensor, target: torch.Tensor, alphas: torch.Tensor) -> torch.Tensor:
    """The same with a row for each (prompt, alpha): [prompt alpha] log-probabilities."""
    rows = []
    for alpha in alphas:
        logits = injected_logits(prefixes, Intervention(target, alpha[None]))
        rows.append(logits.log_softmax(-1).gather(-1, answers[:, None])[:, 0])
    return torch.stack(rows, dim=1)


@on_every_family
def test_branches_equal_rows_for_every_alpha_and_prompt(model: Any) -> None:
    prefixes = join_prefixes(encode_prompts(model, PROMPTS))
    answers, alphas = torch.tensor([5, 9, 11, 20]), alphas_of(model)
    for target in (targets_of(model, 1), targets_of(model, len(PROMPTS))):
        with torch.no_grad():
            expected = by_rows(prefixes, answers, target, alphas)
            clean = prefixes.run_last()[0][:, -1].log_softmax(-1).gather(-1, answers[:, None])[:, 0]
        found = score_branches(prefixes, answers, target, alphas)
        assert torch.allclose(found.branches, expected, atol=TOLERANCE)
        assert torch.allclose(found.clean, clean, atol=TOLERANCE)
        assert torch.allclose(found.effects, expected - clean[:, None], atol=2 * TOLERANCE)
        assert float((expected - clean[:, None]).abs().max()) > 0.1, "the comparison would see nothing"


def test_a_prompt_of_one_token_has_branches_too(llama: Any) -> None:
    (prefixes,) = encode_prompts(llama, ["A"])
    answers, target, alphas = torch.tensor([7]), targets_of(llama, 1), alphas_of(llama)
    with torch.no_grad():
        expected = by_rows(prefixes, answers, target, alphas)
    assert torch.allclose(score_branches(prefixes, answers, target, alphas).branches, expected, atol=TOLERANCE)


@pytest.mark.parametrize("memory", [1, 200_000, 1 << 30])
def test_the_budget_cuts_prompts_and_branches_and_changes_no_number(model: Any, memory: int) -> None:
    prefixes = join_prefixes(encode_prompts(model, PROMPTS))
    answers, target, alphas = torch.tensor([5, 9, 11, 20]), targets_of(model, len(PROMPTS)), alphas_of(model)
    whole = score_branches(prefixes, answers, target, alphas)
    cut = score_branches(prefixes, answers, target, alphas, memory=memory)
    assert torch.allclose(cut.branches, whole.branches, atol=TOLERANCE)
    assert torch.allclose(cut.clean, whole.clean, atol=TOLERANCE)


def test_a_model_that_is_watched_elsewhere_goes_row_by_row(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from site_interp import branches

    prefixes = join_prefixes(encode_prompts(model.bridged(), PROMPTS))
    answers, target, alphas = torch.tensor([5, 9, 11, 20]), targets_of(model, 1), alphas_of(model)
    monkeypatch.setattr(branches, "forward_branches", None)
    found = score_branches(prefixes, answers, target, alphas)
    with torch.no_grad():
        assert torch.allclose(found.branches, by_rows(prefixes, answers, target, alphas), atol=TOLERANCE)


def test_the_model_is_left_as_it_was(llama: Any) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    (prefixes,) = encode_prompts(llama, PROMPTS[2:3])
    before = (dict(ALL_ATTENTION_FUNCTIONS), llama.inner.config._attn_implementation, prefixes.run_last()[0])
    n_hooks = sum(len(module._forward_pre_hooks) for module in llama.inner.modules())
    length = prefixes.cache.get_seq_length()
    bad = targets_of(llama, 1)
    bad[0, 1, 0, 0] = float("nan")
    for target in (targets_of(llama, 1), bad):
        try:
            score_branches(prefixes, torch.tensor([5]), target, alphas_of(llama))
        except NotFiniteError:
            assert target is bad
        assert sum(len(module._forward_pre_hooks) for module in llama.inner.modules()) == n_hooks
        assert dict(ALL_ATTENTION_FUNCTIONS) == before[0]
        assert llama.inner.config._attn_implementation == before[1]
        assert prefixes.cache.get_seq_length() == length
        assert torch.equal(prefixes.run_last()[0], before[2])


def test_values_that_are_not_finite_name_the_prompt(llama: Any) -> None:
    prefixes = join_prefixes(encode_prompts(llama, PROMPTS))
    target = targets_of(llama, len(PROMPTS))
    target[2] = float("nan")
    with pytest.raises(NotFiniteError, match="of prompt 2, 'Q: "):
        score_branches(prefixes, torch.tensor([5, 9, 11, 20]), target, alphas_of(llama))


def test_attention_that_does_more_than_is_known_here_is_an_error(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from site_interp.model import branches

    plain = branches._Attention.__call__

    def forgetful(self: Any, module: Any, query: Any, *rest: Any, **named: Any) -> Any:
        return plain(self, module, 0.5 * query, *rest, **named)

    monkeypatch.setattr(branches._Attention, "__call__", forgetful)
    (prefixes,) = encode_prompts(llama, PROMPTS[2:3])
    with pytest.raises(RuntimeError, match="plain logits come out different"):
        score_branches(prefixes, torch.tensor([5]), targets_of(llama, 1), alphas_of(llama))


def test_wrong_shapes_and_open_injections_are_refused(llama: Any) -> None:
    from site_interp.injection import injecting

    prefixes = join_prefixes(encode_prompts(llama, PROMPTS))
    answers, target, alphas = torch.tensor([5, 9, 11, 20]), targets_of(llama, 1), alphas_of(llama)
    fewer = ((target[:, :2], alphas[:, :2]), (target[:, :, :1], alphas[:, :, :1]), (target[..., :3], alphas))
    for wrong in (*fewer, (target, alphas[:0])):
        with pytest.raises(UserError, match="Cannot inject into 4 prompts"):
            score_branches(prefixes, answers, *wrong)
    with pytest.raises(UserError, match="Leave that block first"), injecting(llama, Intervention(target, alphas[:1])):
        score_branches(prefixes, answers, target, alphas)


def test_the_first_layer_of_an_alpha_is_the_first_it_changes() -> None:
    alphas = torch.zeros(3, 4, 2)
    alphas[0, 2, 1] = 0.5
    alphas[2, 0, 0] = alphas[2, 3, 1] = 1.0
    assert first_layers(alphas).tolist() == [2, 4, 0]
