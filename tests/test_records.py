"""What a record refuses, and what a unit hash depends on."""

import math
from typing import Any

import pytest

from site_interp.records import Record, unit_hash

IDENTITY: dict[str, Any] = {
    "model": "tiny",
    "model_fingerprint": "f",
    "dtype": "float32",
    "task": "bundled/antonym",
    "split_hash": "s",
    "method": "site",
    "seed": 0,
    "unit_hash": "u",
    "version": "0",
}
FIELDS = (
    "model model_fingerprint dtype task split_hash method variant seed metric value ci_low ci_high n scores labels "
    "n_parameters n_prompt_tokens fit_seconds eval_seconds peak_memory_mb unit_hash status reason version"
)


def test_a_record_has_the_agreed_fields_in_the_agreed_order() -> None:
    assert list(Record.__dataclass_fields__) == FIELDS.split()


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": None},
        {"value": None},
        {"scores": None},
        {"n": 3},
        {"value": math.nan},
        {"scores": (0.0, math.inf)},
        {"status": "failed", "reason": "out of memory"},
        {"status": "failed", "metric": None, "value": None, "scores": None},
    ],
)
def test_a_record_whose_fields_contradict_each_other_is_refused(changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {**IDENTITY, "metric": "prefix_match", "value": 0.5, "n": 2, "scores": (0.0, 1.0)}
    Record(**good)
    with pytest.raises(ValueError, match="Cannot make a record of site on bundled/antonym"):
        Record(**{**good, **changes})


def test_a_unit_hash_depends_on_every_setting_and_not_on_their_order() -> None:
    base = unit_hash(task="a", settings={"lr": 0.2, "steps": 400}, seeds=(0, 1))
    assert base == unit_hash(seeds=[0, 1], settings={"steps": 400, "lr": 0.2}, task="a")
    others = {
        unit_hash(task="a", settings={"lr": 0.1, "steps": 400}, seeds=(0, 1)),
        unit_hash(task="b", settings={"lr": 0.2, "steps": 400}, seeds=(0, 1)),
        unit_hash(task="a", settings={"lr": 0.2, "steps": 400}, seeds=(1, 0)),
        unit_hash(task="a", settings={"lr": 0.2, "steps": 400}),
        unit_hash(task="a", setting={"lr": 0.2, "steps": 400}, seeds=(0, 1)),
    }
    assert base not in others
    assert len(others) == 5
    assert len(base) == 16
    assert int(base, 16) >= 0


def test_a_unit_hash_is_the_same_in_every_process_and_version() -> None:
    # sha256 of the text {"seed":0,"task":"a"}
    assert unit_hash(task="a", seed=0) == "5aedc99e0a78cfc9"


@pytest.mark.parametrize("value", [math.nan, object(), {1, 2}])
def test_what_has_no_canonical_text_is_not_hashed(value: object) -> None:
    with pytest.raises(ValueError, match="Cannot hash a unit"):
        unit_hash(value=value)
