"""What the analyses refuse: adapters of other models or splits, heads that are not there, counts that mean nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from upper_fixtures import QUICK, fitted_adapter, word_task

import site_interp as si
from site_interp.adapter import Adapter
from site_interp.errors import UserError
from site_interp.experiments.patch import PatchSettings
from site_interp.experiments.transfer import TransferSettings
from site_interp.fit_plan import FitRun
from site_interp.fitting import fit_joint_selection, fit_selection
from site_interp.patching import n_of_share
from site_interp.tasks import Labelled

TASK, OTHER = word_task(), word_task("file/others")


@pytest.fixture(scope="module")
def adapter(llama: Any) -> Adapter:
    return fitted_adapter(llama, TASK)


def of_another_model(adapter: Adapter) -> Adapter:
    fingerprint = adapter.embedding.fingerprint
    changed = replace(fingerprint, probe=tuple(1 + value for value in fingerprint.probe))
    return Adapter(replace(adapter.embedding, fingerprint=changed), adapter.selection)


Use = Callable[[Any, Any, Adapter], Any]
USES: dict[str, Use] = {
    "sufficiency": lambda model, task, a: si.sufficiency_curves(model, task, a, si.rankings(a, {}), n_test=2),
    "necessity": lambda model, task, a: si.necessity_curves(model, task, a, si.rankings(a, {}), n_test=2),
    "ablation": lambda model, task, a: si.icl_ablation_curves(model, task, a, si.rankings(a, {}), n_test=2),
    "sweep": lambda model, task, a: si.sweep_heads(model, task, a.embedding, n_prompts=2),
    "attribution": lambda model, task, a: si.attribute_heads(model, task, a.embedding, n_prompts=2),
    "fit": lambda model, task, a: fit_selection(model, task, a.embedding, settings=QUICK),
    "joint fit": lambda model, task, a: fit_joint_selection(
        model, [FitRun(a.embedding, Labelled(task), 0)], settings=QUICK
    ),
    "transfer": lambda model, task, a: si.transfer(model, [task, OTHER], [a, fitted_adapter(model, OTHER)]),
    "evaluation": lambda model, task, a: si.evaluate(model, task, [a], n_test=2),
}


@pytest.mark.parametrize("use", USES)
def test_an_adapter_of_another_model_is_refused(llama: Any, adapter: Adapter, use: str) -> None:
    with pytest.raises(UserError, match=r"was made with .*, and the model is"):
        USES[use](llama, TASK, of_another_model(adapter))


@pytest.mark.parametrize("use", USES)
def test_the_same_task_with_another_split_is_refused(llama: Any, adapter: Adapter, use: str) -> None:
    moved = replace(TASK, train=TASK.test + TASK.train[8:], test=TASK.train[:8], split_seed=3)
    with pytest.raises(UserError, match=r"task 'file/words': its \w+ is of another split \(split_seed 0, now 3\)"):
        USES[use](llama, moved, adapter)


def test_another_task_is_no_other_split(llama: Any, adapter: Adapter) -> None:
    si.sweep_heads(llama, OTHER, adapter.embedding, n_prompts=2)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda top: [(layer - 3, head) for layer, head in top], "of 12 entries 0 are different heads"),
        (lambda top: [(place, 0) for place in range(12)], "of 12 entries 3 are different heads"),
        (lambda top: [*top[:11], top[0]], "of 12 entries 11 are different heads"),
        (lambda top: [*top, top[0]], "of 13 entries 12 are different heads"),
    ],
)
def test_a_ranking_holds_every_head_once(llama: Any, adapter: Adapter, change: Any, found: str) -> None:
    with pytest.raises(UserError, match=f"{found} of this model, which has 12"):
        si.sufficiency_curves(llama, TASK, adapter, {"mine": change(adapter.selection.ranking())}, n_test=2)


def test_curves_need_a_ranking_and_counts_that_mean_something(llama: Any, adapter: Adapter) -> None:
    ranked = si.rankings(adapter, {})
    with pytest.raises(UserError, match="no ranking was given"):
        si.necessity_curves(llama, TASK, adapter, {}, n_test=2)
    with pytest.raises(UserError, match="-1 random sets"):
        si.sufficiency_curves(llama, TASK, adapter, ranked, n_random=-1)
    with pytest.raises(UserError, match="-1 test examples"):
        si.sufficiency_curves(llama, TASK, adapter, ranked, n_test=-1)
    for share in (-5, 101, float("nan")):
        with pytest.raises(UserError, match="Give a number from 0 to 100"):
            n_of_share(share, 12)
        with pytest.raises(UserError, match="Give a number from 0 to 100"):
            TransferSettings(share=share)
    for settings in ({"n_test": 0}, {"n_shuffled": -1}):
        with pytest.raises(UserError, match="Cannot measure transfer on"):
            TransferSettings(**settings)
    for settings in ({"n_test": 0}, {"n_queries": 0}, {"n_random": -1}):
        with pytest.raises(UserError, match="Cannot patch heads on"):
            PatchSettings(**settings)


@pytest.mark.parametrize("spoil", [lambda t: t[:1], lambda t: t[..., :4], lambda t: t / 0])
def test_what_heads_write_is_read_from_a_whole_target(llama: Any, adapter: Adapter, spoil: Any) -> None:
    with pytest.raises(UserError, match=r"finite numbers \[layer head d_head\] = \[3, 4, 8\]"):
        si.head_writes(llama, spoil(adapter.embedding.mean), [(0, 0)], n_tokens=2)


def test_transfer_takes_one_adapter_for_each_task_and_one_seed(llama: Any, adapter: Adapter) -> None:
    other, second = fitted_adapter(llama, OTHER), fitted_adapter(llama, TASK, seed=1)
    for adapters in ([adapter, second, other], [second, other]):
        with pytest.raises(UserError, match="Give one for each task, all of one seed"):
            si.transfer(llama, [TASK, OTHER], adapters)


def test_overlap_of_seeds_that_differ_has_no_seed(llama: Any, adapter: Adapter) -> None:
    other = fitted_adapter(llama, OTHER)
    assert si.overlap([adapter, other]).seed == 0
    assert si.overlap([fitted_adapter(llama, TASK, seed=1), other]).seed is None
    with pytest.raises(UserError, match="there are jaccard, weighted_jaccard"):
        si.overlap([adapter, other]).matrix("jacard")
    for k in (0, 13):
        with pytest.raises(UserError, match=f"sets of {k} heads"):
            si.seed_stability([adapter, fitted_adapter(llama, TASK, seed=1)], k=k)
