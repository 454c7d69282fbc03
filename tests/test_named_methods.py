"""Methods by name and setting, in one run of the command line with everything they leave behind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from upper_fixtures import word_task

from site_interp.adapter import Adapter
from site_interp.baselines import (
    I2CL,
    IA3,
    KNN,
    LTV,
    METHOD_NAMES,
    MTV,
    SITE,
    Fitted,
    FunctionVector,
    LoRA,
    Method,
    TaskVector,
    known_methods,
    load_fitted,
    named_method,
)  # fmt: skip
from site_interp.cli.run_verb import METHOD_HELP
from site_interp.errors import UserError
from site_interp.evaluation import evaluate_fitted
from site_interp.experiments.plan import plan_units, unit_cost
from site_interp.experiments.run import adapter_folder, run_units
from site_interp.selection import FitSettings
from site_interp.store import read_results

KNOWN = known_methods(n_shots=2, n_prompts=3, fitting=FitSettings(n_steps=4))
SMALL = (
    "zero_shot", "icl", "many_shot_icl:max_tokens=60", "site:n_valid=4,validate_every=2",
    "function_vector:n_prompts=3,n_shots=2,n_queries=2,n_valid=3", "task_vector:n_shots=2,n_valid=3",
    "mtv:n_prompts=3,n_shots=2,n_steps=3,n_samples=4,n_valid=3", "i2cl:n_examples=3,n_epochs=2",
    "ltv:n_steps=3,n_valid=3", "lora:n_epochs=1,n_examples=9", "ia3:n_epochs=1,n_examples=9",
    "knn:k=1", "majority", "echo",
)  # fmt: skip


@pytest.fixture(scope="module")
def finished(llama: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[Any]]:
    """A run of every method on one task."""
    out = tmp_path_factory.mktemp("all")
    units = plan_units(llama, [word_task()], [named_method(text, KNOWN) for text in SMALL], (1,), 4)
    outcome = run_units(llama, units, out)
    assert (outcome.failed, outcome.inapplicable, outcome.reasons) == (0, 0, ())
    return out, units


def test_every_name_is_a_method_that_calls_itself_so_and_the_help_lists_it() -> None:
    assert tuple(KNOWN) == METHOD_NAMES
    for name, method in KNOWN.items():
        assert isinstance(method, Method)
        assert method.name == name
        assert name in METHOD_HELP
    assert KNOWN["ltv"] == LTV(n_prompts=3, n_shots=2)
    assert KNOWN["site"] == SITE(3, 2, FitSettings(n_steps=4))


def test_every_method_leaves_records_with_its_variant_labels_and_parameters(finished: Any) -> None:
    out, _ = finished
    records = {record.method: record for record in read_results(out) if record.metric == "first_token"}
    assert set(records) == set(METHOD_NAMES)
    assert records["lora"].variant == "n_epochs=1,n_examples=9"
    labels = {name: record.labels for name, record in records.items()}
    assert labels["zero_shot"] == labels["echo"] == 0
    assert (labels["i2cl"], labels["lora"], labels["ia3"], labels["knn"], labels["majority"]) == (3, 15, 15, 24, 24)
    assert labels["task_vector"] == 2 + 3
    trained = {name for name, record in records.items() if record.n_parameters}
    assert trained == {"site", "mtv", "i2cl", "ltv", "lora", "ia3"}
    again = run_units_again(out, finished[1])
    assert again == len(SMALL), "everything was finished before"


def run_units_again(out: Path, units: Sequence[Any]) -> int:
    from site_interp.model import load_model

    model = load_model(units[0].model, device="cpu")
    return run_units(model, units, out).skipped


def test_what_was_fitted_comes_back_from_the_run_and_scores_the_same(llama: Any, finished: Any) -> None:
    out, units = finished
    kept = {unit.method.name: unit for unit in units if adapter_folder(out, unit).is_dir()}
    assert set(kept) == {"site", "function_vector", "task_vector", "mtv", "i2cl", "ltv", "lora", "ia3"}
    scores = {(r.method, r.metric): r.scores for r in read_results(out)}
    for name, unit in kept.items():
        fitted = load_fitted(adapter_folder(out, unit), llama)
        assert isinstance(fitted, Fitted)
        made = evaluate_fitted(llama, unit.task, fitted, seed=1, n_test=4)
        for metric, found in made.scores.items():
            assert found == pytest.approx(scores[name, metric], abs=1e-4), (name, metric)
    (site,) = [path for path in (out / "adapters").iterdir() if "__" in path.name and path.name.startswith("file")]
    assert isinstance(load_fitted(site, llama), Adapter)


def test_methods_that_fit_cost_more_than_those_that_only_ask(llama: Any) -> None:
    units = {
        unit.method.name: unit_cost(llama, unit).total
        for unit in plan_units(llama, [word_task()], list(KNOWN.values()), (0,), 4)
    }
    for name in ("site", "function_vector", "task_vector", "mtv", "i2cl", "ltv", "lora", "ia3", "icl", "many_shot_icl"):
        assert units[name] > units["zero_shot"] > units["knn"], name


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("lora:lr=0.003,rank=4", LoRA(lr=0.003, rank=4)),
        ("lora:lr=1", LoRA(lr=1)),
        ("ia3", IA3()),
        ("mtv: init = 0.5", MTV(init=0.5)),
        ("function_vector:n_heads=3", FunctionVector(n_heads=3)),
        ("task_vector:n_prompts=7,", TaskVector(n_prompts=7)),
        ("i2cl:noise=0.0", I2CL(noise=0.0)),
        ("knn:k=9", KNN(k=9)),
        ("site:mixing=add,loss=answer", SITE(3, 2, FitSettings(n_steps=4, mixing="add", loss="answer"))),
    ],
)
def test_settings_stand_behind_a_colon(text: str, method: Method) -> None:
    assert named_method(text, KNOWN) == method


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lor", "Cannot find the method 'lor'.*Did you mean lora"),
        ("lora:rnak=3", "Cannot set 'rnak' of lora: it has rank,.*Did you mean rank"),
        ("lora:rank", "Cannot read the setting 'rank' of lora"),
        ("lora:rank=two", "Cannot set rank of lora to 'two': it must be like 8"),
        ("lora:rank=2.5", "must be like 8"),
        ("lora:rank=true", "must be like 8"),
        ("lora:rank=0", "with rank 0"),
        ("zero_shot:x=1", "Cannot set 'x' of zero_shot: it has none"),
        ("lora:memory=1", "Cannot set 'memory'"),
        ("site:fitting=1", "Cannot set 'fitting'"),
    ],
)
def test_mistakes_in_settings_are_told(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        named_method(text, KNOWN)
