"""Other ways to fit than SITE's: each step is that of the slow way, and adapters are injected as they were fitted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Oracle, reference_added_logits, reference_logits
from torch import Tensor
from upper_fixtures import QUICK, quick_site, word_task

from site_interp.adapter import Adapter
from site_interp.errors import UserError
from site_interp.fit_plan import FitRun, draw_plan
from site_interp.fitting import fit_selections, fit_weights
from site_interp.injection import injected_logits
from site_interp.prefixes import encode_prompts
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled

TOLERANCE = 1e-3
WAYS = {
    "add": replace(QUICK, mixing="add"),
    "init": replace(QUICK, init=2.0),
    "per layer": replace(QUICK, per="layer"),
    "whole answer": replace(QUICK, loss="answer"),
    "all of them": replace(QUICK, mixing="add", init=-1.0, per="layer", loss="answer"),
}


def slow_loss(
    oracle: Oracle, prompt: str, answer: tuple[int, ...], target: Tensor, share: Tensor, *, adds: bool, whole: bool
) -> Tensor:
    ids = oracle.ids(prompt)
    last, wanted = len(ids) - 1, list(answer if whole else answer[:1])
    run = reference_added_logits if adds else reference_logits
    logits = run(oracle, [*ids, *wanted[:-1]], last, target, share)
    return -logits[last:].log_softmax(-1)[range(len(wanted)), wanted].sum()


def slow_fit(oracle: Oracle, steps: Any, target: Tensor, how: FitSettings, *, weigh: bool = False) -> Tensor:
    """Logits, or weights, after torch's Adam, one example at a time through whole forwards."""
    n_heads = target.shape[1]
    values = torch.full((len(target), 1 if how.per == "layer" else n_heads), float(how.init), requires_grad=True)
    optimizer = torch.optim.Adam([values], lr=how.lr)
    for items in steps:
        optimizer.zero_grad()
        for prompt, answer in items:
            share = (values if weigh else torch.sigmoid(values)).expand(-1, n_heads)
            adds, whole = weigh or how.mixing == "add", how.loss == "answer"
            (slow_loss(oracle, prompt, answer, target, share, adds=adds, whole=whole) / len(items)).backward()
        optimizer.step()
    return values.detach().expand(-1, n_heads)


def run_on(model: Any) -> FitRun:
    labelled = Labelled(word_task())
    return FitRun(quick_site().embed(model, labelled, 0), labelled, 0)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_fitting_is_the_slow_way(model: Any, oracle: Oracle, way: str) -> None:
    how, run = replace(WAYS[way], checkpoint="last"), run_on(model)
    (found,) = fit_selections(model, [run], settings=how)
    steps = draw_plan(model, run, how).steps
    assert torch.allclose(found.logits, slow_fit(oracle, steps, run.embedding.mean, how), atol=TOLERANCE)
    (plain,) = fit_selections(model, [run], settings=replace(QUICK, checkpoint="last"))
    assert not torch.allclose(found.logits, plain.logits, atol=10 * TOLERANCE)


def test_weights_are_those_of_the_slow_way(model: Any, oracle: Oracle) -> None:
    how, run = replace(QUICK, checkpoint="last", lr=0.05), run_on(model)
    ((weights, trace),) = fit_weights(model, [run], settings=how)
    wanted = slow_fit(oracle, draw_plan(model, run, how).steps, run.embedding.mean, how, weigh=True)
    assert torch.allclose(weights, wanted, atol=TOLERANCE)
    assert (trace.chosen_step, float(weights.abs().max()) > 0.05) == (how.n_steps, True)


def test_the_validation_loss_of_whole_answers_is_theirs(llama: Any, tiny_folders: dict[str, Path]) -> None:
    from reference import load_oracle

    oracle, run = load_oracle(tiny_folders["llama"]), run_on(llama)
    how = replace(WAYS["all of them"], checkpoint="last")
    (found,) = fit_selections(llama, [run], settings=how)
    assert found.trace is not None
    losses = [
        float(slow_loss(oracle, *item, run.embedding.mean, found.alpha, adds=True, whole=True))
        for item in draw_plan(llama, run, how).valid
    ]
    assert found.trace.valid_loss[-1] == pytest.approx(sum(losses) / len(losses), abs=TOLERANCE)


def test_rows_of_a_small_budget_give_the_same_losses_of_whole_answers(llama: Any) -> None:
    how, run = replace(QUICK, loss="answer"), run_on(llama)
    one, other = (fit_selections(llama, [run], settings=how, memory=memory)[0] for memory in (1 << 30, 60_000))
    assert torch.allclose(one.logits, other.logits, atol=TOLERANCE)


def test_an_adapter_is_injected_saved_and_counted_as_it_was_fitted(llama: Any, oracle: Any, tmp_path: Path) -> None:
    adapter = quick_site(fitting=WAYS["all of them"]).fit(llama, Labelled(word_task()), 0)
    assert (adapter.intervention().adds, adapter.n_parameters) == (True, llama.n_layers)
    adapter.save_pretrained(tmp_path / "kept")
    again = Adapter.from_pretrained(tmp_path / "kept", llama)
    assert (again.selection.settings, again.intervention().adds) == (adapter.selection.settings, True)
    (prefixes,) = encode_prompts(llama, ["Q: aa bc\nA:"])
    plain = replace(adapter, selection=replace(adapter.selection, settings=QUICK))
    ours, theirs = (injected_logits(prefixes, one.intervention()) for one in (again, plain))
    assert not torch.allclose(ours, theirs, atol=TOLERANCE)


def test_settings_that_came_later_leave_the_hash_of_a_unit_alone() -> None:
    from site_interp.baselines import SITE

    assert set(SITE().settings()) == {
        "n_prompts", "n_shots", "template", "n_steps", "batch_size", "lr", "validate_every", "n_valid", "checkpoint",
    }  # fmt: skip
    method = SITE(fitting=FitSettings(mixing="add", loss="answer"))
    assert method.settings()["mixing"] == "add"
    assert method.variant() == "loss=answer,mixing=add"


def test_a_first_alpha_that_is_no_number_is_refused() -> None:
    with pytest.raises(UserError, match="init nan"):
        FitSettings(init=float("nan"))
