"""Budgets of labels: what a method sees within one, who runs with every seed, and what the records say."""

from pathlib import Path
from typing import Any

import pytest
from upper_fixtures import word_task

from site_interp.baselines import ICL, KNN, SITE, LoRA, ZeroShot, known_methods, named_method
from site_interp.errors import UserError
from site_interp.experiments.plan import plan_units, within_budget
from site_interp.experiments.run import run_units
from site_interp.selection import FitSettings
from site_interp.store import read_results
from site_interp.tasks import Labelled, Task

KNOWN = known_methods(n_shots=10, n_prompts=3, fitting=FitSettings(n_steps=4, validate_every=2))


QUICK = (
    "icl", "many_shot_icl", "site", "ltv:n_steps=2", "lora:n_epochs=1", "i2cl:n_epochs=1", "knn", "majority",
    "task_vector", "function_vector:n_prompts=2", "mtv:n_steps=2,n_samples=2,n_prompts=2",
)  # fmt: skip


def parts(task: Task, n: int, *, holds_out: bool, seed: int = 0) -> tuple[list[str], list[str]]:
    labelled = Labelled(task, n, seed=seed, holds_out=holds_out)
    train = labelled.train(range(labelled.n_train))
    return [e.input for e in train], [e.input for e in labelled.valid(range(labelled.n_valid))]


def test_a_fifth_is_held_out_where_validation_is_needed_and_nothing_else_is_seen() -> None:
    task = word_task(n_train=30)
    train, valid = parts(task, 10, holds_out=True)
    assert (len(train), len(valid)) == (8, 2)
    whole, none = parts(task, 10, holds_out=False)
    assert (sorted(whole), none) == (sorted(train + valid), [])
    assert set(whole) < {e.input for e in task.train}, "the task's own validation examples stay out of reach"


@pytest.mark.parametrize("n", [2, 5, 6, 7, 11, 24])
def test_every_label_of_a_budget_is_on_one_side_and_both_have_some(n: int) -> None:
    train, valid = parts(word_task(n_train=30), n, holds_out=True)
    assert (len(train) + len(valid), len(valid)) == (n, (n + 3) // 5)
    assert train
    assert within_budget(SITE(n_shots=100), n).n_shots == max(1, len(train) - 1)  # type: ignore[attr-defined]


def test_larger_budgets_hold_the_smaller_ones_and_seeds_choose_others() -> None:
    task = word_task(n_train=30)
    small, large = (parts(task, n, holds_out=True) for n in (10, 20))
    assert all(set(one) < set(other) for one, other in zip(small, large, strict=True))
    assert parts(task, 10, holds_out=True, seed=1) != small == parts(task, 10, holds_out=True)


@pytest.mark.parametrize("n", [1, 31, -1])
def test_a_budget_that_the_task_cannot_give_is_refused(n: int) -> None:
    with pytest.raises(UserError, match=f"Cannot use {n} labels .* has 30 training examples"):
        Labelled(word_task(n_train=30), n)


def test_methods_show_no_more_than_the_budget_leaves_them() -> None:
    assert within_budget(ICL(10), 10) == ICL(10)
    assert within_budget(ICL(10), 6) == ICL(6)
    assert within_budget(SITE(n_shots=10), 10) == SITE(n_shots=7)
    assert within_budget(SITE(n_shots=10), 50) == SITE(n_shots=10)
    assert within_budget(LoRA(), 50) == LoRA(n_examples=40)
    assert within_budget(KNN(), 10) == KNN()


def test_what_sees_no_label_runs_once_and_what_sees_some_with_every_seed(llama: Any) -> None:
    units = plan_units(llama, [word_task()], [ZeroShot(), KNN(), ICL(2)], (0, 1), 4, (10, 20))
    found = [(unit.method.name, unit.n_labels, unit.seed) for unit in units]
    assert found == [
        ("zero_shot", None, 0),
        *[("knn", 10, seed) for seed in (0, 1)], *[("icl", 10, seed) for seed in (0, 1)],
        *[("knn", 20, seed) for seed in (0, 1)], *[("icl", 20, seed) for seed in (0, 1)],
    ]  # fmt: skip
    assert len({unit.hash for unit in units}) == len(units)
    (plain,) = plan_units(llama, [word_task()], [ICL(2)], (0,), 4)
    assert plain.variant == "n_shots=2"
    assert units[3].variant == "labels=10,n_shots=2"


def test_records_count_no_more_labels_than_the_budget_and_a_larger_one_is_inapplicable(
    llama: Any, tmp_path: Path
) -> None:
    methods = [named_method(text, KNOWN) for text in QUICK]
    task = word_task(n_train=24)
    outcome = run_units(llama, plan_units(llama, [task], methods, (0,), 2, (10, 24, 25)), tmp_path)
    assert (outcome.done, outcome.inapplicable, outcome.failed) == (2 * len(methods), len(methods), 0)
    assert all("has 24 training examples" in reason for reason in outcome.reasons)
    used = {(r.method, r.variant.split(",")[0]): r.labels for r in read_results(tmp_path) if r.metric == "first_token"}
    for (_, variant), labels in used.items():
        assert labels is not None
        assert labels <= int(variant.removeprefix("labels="))
    assert used["site", "labels=10"] == used["lora", "labels=10"] == used["icl", "labels=10"] == 10
    assert list((tmp_path / "adapters").glob("file-words__labels-10-*-n_shots-7-*__seed-0"))
