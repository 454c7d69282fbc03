"""SITE set against itself: hard heads and other targets are what their names say, and change no older result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from upper_fixtures import QUICK, quick_site, word_task

from site_interp.adapter import Adapter
from site_interp.baselines import SITE, known_methods, named_method
from site_interp.embedding import embed_task
from site_interp.errors import UserError
from site_interp.experiments.plan import plan_units, unit_cost
from site_interp.experiments.run import run_units
from site_interp.model import Model
from site_interp.store import read_results
from site_interp.tasks import Labelled, Task

TASKS = tuple(replace(word_task(), name=f"file/{name}") for name in ("one", "two", "three"))


def fitted(model: Model, method: SITE, task: Task = TASKS[0], seed: int = 0) -> Adapter:
    return method.fit(model, Labelled(task), seed)


def test_hard_heads_are_those_whose_alpha_is_above_one_half(llama: Model) -> None:
    soft, hard = fitted(llama, quick_site()), fitted(llama, replace(quick_site(), heads="hard"))
    above = soft.selection.alpha > 0.5
    assert 0 < int(above.sum()) < above.numel(), "all heads are on one side: the test sees nothing"
    assert torch.equal(hard.intervention().alpha[0], above.float())
    assert hard.selection.trace == soft.selection.trace
    assert hard.n_labels == soft.n_labels


@pytest.mark.parametrize(("share", "n_open"), [(0.01, 1), (0.25, 3), (1, 12)])
def test_top_heads_are_a_share_of_all_that_ranks_first(llama: Model, share: float, n_open: int) -> None:
    soft = fitted(llama, quick_site())
    hard = fitted(llama, replace(quick_site(), heads="top", share=share))
    assert torch.equal(hard.intervention().alpha[0], soft.selection.top(n_open))


def test_all_heads_are_open_without_a_fit(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site_interp.baselines.site.fit_selections", lambda *_, **__: pytest.fail("was fitted"))
    adapter = fitted(llama, replace(quick_site(), heads="all"))
    assert torch.equal(adapter.intervention().alpha[0], torch.ones(3, 4))
    assert adapter.selection.trace is None
    assert adapter.n_labels == adapter.embedding.n_labels


def test_a_random_target_has_the_norms_of_the_embedding_and_nothing_else_of_it(llama: Model) -> None:
    method = replace(quick_site(), target="random")
    own = quick_site().embed(llama, Labelled(TASKS[0]), 0).mean
    first, other_seed = (method.embed(llama, Labelled(TASKS[0]), seed).mean for seed in (0, 1))
    assert torch.allclose(first.norm(dim=-1), own.norm(dim=-1), rtol=1e-4)
    cosines = torch.nn.functional.cosine_similarity(first, own, dim=-1)
    assert cosines.abs().mean() < 0.6
    assert not torch.allclose(first, other_seed)
    assert torch.equal(first, method.embed(llama, Labelled(TASKS[0]), 0).mean)


def test_targets_of_other_tasks_are_their_embeddings(llama: Model) -> None:
    base = replace(quick_site(), donors=TASKS)
    means = [embed_task(llama, t, n_prompts=base.n_prompts, n_shots=base.n_shots, seed=0).mean for t in TASKS]
    assert not torch.allclose(means[0], means[1])
    for place, following in ((0, 1), (1, 2), (2, 0)):
        found = replace(base, target="other").embed(llama, Labelled(TASKS[place]), 0)
        assert torch.allclose(found.mean, means[following])
        assert (found.task, found.n_labels) == (TASKS[place].name, 0)
    found = replace(base, target="mean").embed(llama, Labelled(TASKS[1]), 0)
    assert torch.allclose(found.mean, (means[0] + means[2]) / 2)
    labelled = Labelled(TASKS[1])
    adapter = replace(base, target="mean").fit(llama, labelled, 0)
    assert 0 < adapter.n_labels == labelled.n_used < 24 + len(TASKS[1].valid)


def test_what_is_the_default_leaves_the_settings_as_they_were() -> None:
    before = {"n_prompts", "n_shots", "template"} | set(QUICK.to_dict())
    assert set(SITE().settings()) == before
    assert SITE().variant() == ""
    methods = known_methods(n_shots=10, n_prompts=50, fitting=SITE().fitting, donors=TASKS)
    assert methods["site"].settings() == SITE().settings()
    assert named_method("site:heads=hard", methods).variant() == "heads=hard"
    assert named_method("site:heads=top,share=0.5", methods).variant() == "heads=top,share=0.5"
    assert named_method("site:target=other", methods).variant() == "target=other"
    hashes = {task.split_hash for task in TASKS}
    assert set(named_method("site:target=mean", methods).settings()["donors"]) == hashes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"share": 0.0}, "share 0.0. Give a number above 0, at most 1"),
        ({"share": 1.5}, "share 1.5"),
    ],
)
def test_settings_of_no_meaning_are_refused(changes: dict[str, Any], told: str) -> None:
    known = known_methods(n_shots=2, n_prompts=2, fitting=QUICK)
    text = ",".join(f"{name}={value}" for name, value in changes.items())
    with pytest.raises(UserError, match=told):
        named_method(f"site:{text}", known)


def test_a_run_of_several_tasks_lends_targets_and_one_alone_is_inapplicable(llama: Model, tmp_path: Path) -> None:
    variants = [replace(quick_site(), donors=TASKS, target=target) for target in ("other", "mean", "random")]
    units = plan_units(llama, TASKS, [quick_site(), *variants], (0,), 3)
    outcome = run_units(llama, units, tmp_path / "several")
    assert (outcome.done, outcome.failed, outcome.inapplicable) == (12, 0, 0)
    found = {(r.variant, r.task): r.scores for r in read_results(tmp_path / "several") if r.metric == "answer_log_prob"}
    assert len(found) == 12
    assert len(set(found.values())) == 12, "two targets gave the same scores"
    own = unit_cost(llama, units[0]).embedding
    assert [unit_cost(llama, u).embedding / own for u in units if u.task is TASKS[0]] == pytest.approx([1, 1, 2, 1])
    alone = plan_units(llama, TASKS[:1], [replace(quick_site(), donors=TASKS[:1], target="other")], (0,), 3)
    outcome = run_units(llama, alone, tmp_path / "alone")
    assert (outcome.done, outcome.inapplicable) == (0, 1)
    assert "no other was given. Run several tasks together" in outcome.reasons[0]
