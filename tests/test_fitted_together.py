"""Fits that share a batch come out as each alone, are kept as they are done, and one that fails leaves the others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from upper_fixtures import model_state, quick_site, word_task

from site_interp.adapter import Adapter
from site_interp.baselines import I2CL, LTV, MTV, FitsTogether, I2CLFitted, Kept, Steered
from site_interp.experiments import fit_units
from site_interp.experiments.plan import plan_units
from site_interp.experiments.run import adapter_folder, run_units
from site_interp.injection import Intervention
from site_interp.model import Model
from site_interp.store import read_results
from site_interp.tasks import Example, Labelled, Task

SMALL: dict[str, Any] = {"n_prompts": 3, "n_shots": 2, "n_valid": 3}
METHODS = {
    "site": quick_site(),
    "ltv": LTV(**SMALL, n_steps=6),
    "mtv": MTV(**SMALL, n_steps=6, n_samples=4, init=0.2, lr=0.3),
    "i2cl": I2CL(n_examples=5, n_epochs=3, noise=0.05, lr=0.05),
}
ROUNDING = 2e-3  # of an answer's fit: Adam turns rounding of gradients near 0 into a part of a step


def numbers(fitted: Kept) -> list[Tensor]:
    if isinstance(fitted, Adapter):
        return [fitted.embedding.mean, fitted.selection.alpha]
    if isinstance(fitted, I2CLFitted):
        return [fitted.vectors, fitted.shares]
    assert isinstance(fitted, Steered)
    assert isinstance(fitted.written, Intervention)
    return [fitted.written.target, fitted.written.alpha]


def two_tasks() -> list[Task]:
    one, two = word_task("file/one"), word_task("file/two", n_train=20, n_valid=3)
    longer = tuple(Example(example.input, (f"{example.answer} ab",)) for example in two.train)
    return [one, replace(two, train=longer)]


@pytest.mark.parametrize("name", METHODS)
def test_fits_that_share_a_batch_come_out_as_each_alone(model: Model, name: str) -> None:
    method: Any = METHODS[name]
    assert isinstance(method, FitsTogether)
    runs = [(task, seed) for task in two_tasks() for seed in (0, 1)]
    alone = [method.fit(model, Labelled(task), seed) for task, seed in runs]
    state = model_state(model)
    steps: list[int] = []
    prepared = [method.prepare(model, Labelled(task), seed, lambda _: None) for task, seed in runs]
    together = method.fit_prepared(model, prepared, steps.append)
    assert sum(steps) == 4 * method.n_fit_steps
    assert model_state(model) == state
    for one, other in zip(alone, together, strict=True):
        for mine, theirs in zip(numbers(one), numbers(other), strict=True):
            assert torch.allclose(mine, theirs, atol=ROUNDING)
        assert one.n_labels == other.n_labels
        if not isinstance(one, Adapter):
            assert one.origin == other.origin
            for told in ("train_loss", "valid_loss"):  # Adam does not see the scale of a loss, a reader does
                assert other.notes.get(told, ()) == pytest.approx(one.notes.get(told, ()), abs=ROUNDING)
    assert not torch.allclose(numbers(together[0])[1], numbers(together[1])[1], atol=10 * ROUNDING), "seeds differ"


def test_memory_of_a_few_rows_changes_nothing(llama: Model) -> None:
    for method in (METHODS["ltv"], METHODS["mtv"], replace(METHODS["i2cl"], noise=0.0)):
        wide, narrow = (replace(method, memory=memory).fit(llama, Labelled(word_task()), 0) for memory in (1 << 32, 1))
        for mine, theirs in zip(numbers(wide), numbers(narrow), strict=True):
            assert torch.allclose(mine, theirs, atol=ROUNDING)


@pytest.mark.parametrize("name", METHODS)
def test_prompts_read_are_counted(llama: Model, name: str) -> None:
    method: Any = METHODS[name]
    read: list[int] = []
    method.prepare(llama, Labelled(word_task()), 0, read.append)
    assert sum(read) == method.n_read("file/words")


@pytest.mark.parametrize("name", METHODS)
def test_what_a_killed_run_had_fitted_is_not_fitted_again(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    units = plan_units(llama, two_tasks(), [METHODS[name]], (0,), 3)
    assert run_units(llama, units, tmp_path).done == 2
    first = {(r.task, r.metric): (r.scores, r.fit_seconds) for r in read_results(tmp_path)}
    assert all(adapter_folder(tmp_path, unit).is_dir() for unit in units)
    (tmp_path / "results.jsonl").unlink()
    monkeypatch.setattr(fit_units, "_prepare", lambda *_: pytest.fail("was fitted again"))
    assert run_units(llama, units, tmp_path).done == 2
    again = {(r.task, r.metric): (r.scores, r.fit_seconds) for r in read_results(tmp_path)}
    assert again.keys() == first.keys()
    for key, (scores, seconds) in first.items():
        assert again[key][1] == pytest.approx(seconds, abs=1e-2)
        assert again[key][0] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_a_task_that_cannot_be_fitted_leaves_the_others_of_its_batch(llama: Model, tmp_path: Path, name: str) -> None:
    tiny = word_task("file/tiny", n_train=2)  # fewer than the demonstrations
    units = plan_units(llama, [two_tasks()[0], tiny, two_tasks()[1]], [METHODS[name]], (0,), 3)
    outcome = run_units(llama, units, tmp_path)
    assert (outcome.done, outcome.inapplicable, outcome.failed) == (2, 1, 0)
    assert "file/tiny" in outcome.reasons[0]
