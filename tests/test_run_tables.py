"""A run as tables and figures: every method stands there with its footing, also one that could not run."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from upper_fixtures import quick_site, word_task

from site_interp.baselines import ICL, Echo, ZeroShot
from site_interp.experiments.plan import plan_units
from site_interp.experiments.run import run_units
from site_interp.experiments.summary import MEAN, summarise, summarise_records
from site_interp.experiments.tables import (
    difference_table,
    footings,
    markdown,
    overall_table,
    task_table,
    write_tables,
)
from site_interp.experiments.tradeoffs import make_tradeoffs, split_budget
from site_interp.model import Model
from site_interp.records import Record
from site_interp.store import read_results

SCORES = {
    ("one", "zero_shot"): (0.0, 0.0, 1.0, 0.0),
    ("two", "zero_shot"): (0.0, 0.0, 0.0, 0.0),
    ("one", "site"): (1.0, 1.0, 1.0, 0.0),
    ("two", "site"): (1.0, 0.0, 1.0, 0.0),
    ("one", "lora"): (1.0, 0.0, 0.0, 0.0),
}


def record(task: str, method: str, seed: int = 0, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "model": "tiny",
        "model_fingerprint": "f",
        "dtype": "float32",
        "task": task,
        "split_hash": "s",
        "method": method,
        "seed": seed,
        "unit_hash": f"{task} {method} {changes.get('variant', '')} {seed}",
        "version": "0",
    }
    return Record(**{**fields, **changes})


def scored(task: str, method: str, scores: tuple[float, ...], **changes: Any) -> Record:
    value = sum(scores) / len(scores)
    costs = {"labels": 0, "n_parameters": 0, "n_prompt_tokens": 10.0, "fit_seconds": 0.0, "eval_seconds": 2.0}
    fields = {"metric": "first_token", "value": value, "ci_low": 0.0, "ci_high": 1.0, "n": len(scores)}
    return record(task, method, **{**fields, "scores": scores, "peak_memory_mb": 100.0, **costs, **changes})


@pytest.fixture
def records() -> list[Record]:
    found = [scored(*place, scores) for place, scores in SCORES.items() if place[1] == "zero_shot"]
    found.append(scored("one", "site", SCORES["one", "site"], labels=30, n_parameters=12, fit_seconds=4.0))
    costly = {"labels": 40, "n_parameters": 12, "fit_seconds": 6.0, "eval_seconds": 6.0, "peak_memory_mb": 2500.0}
    found.append(scored("two", "site", SCORES["two", "site"], n_prompt_tokens=14.0, **costly))
    found.append(scored("one", "lora", SCORES["one", "lora"], labels=24, n_parameters=4096))
    found.append(record("two", "lora", status="inapplicable", reason="Cannot use 50 labels: it has 24."))
    return found


def test_a_method_that_cannot_run_on_a_task_is_there_neither_dropped_nor_zero(records: list[Record]) -> None:
    made = summarise_records(records)
    lines = task_table(made, "first_token")
    assert lines[0] == ["task", "zero_shot", "site", "lora"]
    assert [line[0] for line in lines[1:]] == ["one", "two", MEAN]
    assert lines[2][3] == "inapplicable"
    assert lines[3][3] == "–", "a mean over other tasks than the others' is none"
    assert lines[3][2].startswith("62.5 [")
    rows = {line[0]: line for line in overall_table(made, records)}
    assert rows["lora"][1:3] == ["–", "1 of 2"]
    assert rows["site"][1].startswith("62.5 [")
    assert rows["site"][2] == "2 of 2"


def test_the_footing_is_that_of_the_records(records: list[Record]) -> None:
    site = footings(summarise_records(records), records)["site"]
    assert (site.n_done, site.n_missing, site.labels, site.n_parameters) == (2, 0, (30, 40), 12)
    assert (site.prompt_tokens, site.added_tokens, site.fit_seconds) == (12.0, 2.0, 5.0)
    assert site.seconds_per_1000 == pytest.approx((2.0 / 4 + 6.0 / 4) / 2 * 1000)
    assert site.peak_memory_mb == 2500.0
    lora = footings(summarise_records(records), records)["lora"]
    assert (lora.n_done, lora.n_missing) == (1, 1)
    cells = overall_table(summarise_records(records), records)[2][3:]
    assert cells == ["30–40", "12", "+2", "5.0", "1000.0", "2,500"]


def test_chance_stands_beside_tasks_of_multiple_choice(records: list[Record]) -> None:
    choices = [replace(r, metric="choice_match") if r.status == "ok" else r for r in records]
    lines = task_table(summarise_records(choices), "choice_match", {"one": 0.25, "two": 0.5})
    assert [line[1] for line in lines] == ["chance", "25.0", "50.0", "37.5"]


def test_differences_can_be_those_of_one_method(records: list[Record]) -> None:
    made = summarise_records(records)
    every = difference_table(made)
    assert {line[0] for line in every[1:]} == {"site - zero_shot"}, "lora has one task in common: no mean"
    assert every[0][4] == "won-tied-lost"
    assert every[1][2].startswith("+50.0 [")
    assert difference_table(made, "icl") == every[:1]
    assert len(difference_table(made, "site", ("first_token",))) == 2


def test_files_hold_every_number_and_reason(records: list[Record], tmp_path: Path) -> None:
    folder = write_tables(tmp_path, summarise_records(records), records, "tiny")
    text = (folder / "tables.md").read_text()
    assert "| two | lora | inapplicable: Cannot use 50 labels: it has 24. |" in text
    assert "## Paired differences" in text
    scores = list(csv.DictReader((folder / "scores.csv").open()))
    one = next(row for row in scores if (row["task"], row["method"]) == ("one", "site"))
    assert (one["metric"], float(one["value"]), one["n"], one["status"]) == ("first_token", 0.75, "4", "ok")
    assert next(row for row in scores if row["status"] != "ok")["value"] == ""
    costs = {row["method"]: row for row in csv.DictReader((folder / "costs.csv").open())}
    assert (costs["site"]["labels"], float(costs["site"]["peak_memory_mb"])) == ("30-40", 2500.0)
    differences = list(csv.DictReader((folder / "differences.csv").open()))
    mean = next(row for row in differences if row["task"] == MEAN)
    assert (mean["first"], mean["second"], float(mean["value"])) == ("site", "zero_shot", 0.5)


def test_names_of_tasks_stay_text_in_markdown_and_in_spreadsheets(tmp_path: Path) -> None:
    evil = "=1|<b>`x`](javascript:0)"
    records = [scored(evil, method, (1.0, 0.0)) for method in ("zero_shot", "site")]
    folder = write_tables(tmp_path, summarise_records(records), records, "<i>tiny")
    text = (folder / "tables.md").read_text()
    assert "<b>" not in text
    assert "<i>" not in text
    assert "](javascript" not in text
    assert "=1\\|&lt;b&gt;'x']\\(javascript:0)" in text
    with (folder / "scores.csv").open() as file:
        assert {row["task"] for row in csv.DictReader(file)} == {f"'{evil}"}


def test_markdown_keeps_its_columns() -> None:
    lines = markdown([["a", "b"], ["1\n2", "-3"]]).splitlines()
    assert lines == ["| a | b |", "|---|--:|", "| 1 2 | -3 |"]


def test_records_alone_give_the_same_summary_as_with_their_units(llama: Model, tmp_path: Path) -> None:
    tasks = [word_task("file/one"), word_task("file/two", n_train=3)]
    units = plan_units(llama, tasks, [Echo(), ZeroShot(), ICL(2), quick_site()], (0, 1), 4, (None, 10))
    run_units(llama, units, tmp_path)
    records = read_results(tmp_path)
    with_units, alone = summarise(units, records), summarise_records(records)
    assert set(with_units.methods) == set(alone.methods)
    assert any("labels=10" in method for method in alone.methods)
    assert alone.missing == with_units.missing != {}
    place = {(c.task, c.method, c.metric): c for c in alone.cells}
    assert place == {(c.task, c.method, c.metric): c for c in with_units.cells}
    found = {(d.task, frozenset((d.first, d.second)), d.metric): abs(d.interval.value) for d in alone.differences}
    wanted = {(d.task, frozenset((d.first, d.second)), d.metric): abs(d.interval.value) for d in with_units.differences}
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("label", "method", "budget"),
    [
        ("icl(labels=10,n_shots=9)", "icl", 10),
        ("i2cl(labels=5,n_examples=5)", "i2cl", 5),
        ("lora(labels=50,lr=0.1,n_epochs=10)", "lora(lr=0.1,n_epochs=10)", 50),
        ("site(mixing=add)", "site(mixing=add)", None),
        ("zero_shot", "zero_shot", None),
    ],
)
def test_a_budget_is_taken_out_of_a_label(label: str, method: str, budget: int | None) -> None:
    assert split_budget(label) == (method, budget)


def test_accuracy_is_drawn_against_labels_and_against_cost(records: list[Record]) -> None:
    alone = make_tradeoffs(summarise_records(records), records)
    assert set(alone) == {"accuracy_by_cost_first_token"}
    rows = {row["method"]: row for row in alone["accuracy_by_cost_first_token"][1]["rows"]}
    assert set(rows) == {"zero_shot", "site"}, "lora has no mean over the tasks"
    assert rows["site"]["x"] == pytest.approx(1000.0)
    assert rows["site"]["value"] == 0.625
    budgets = [
        replace(r, variant=f"labels={n}", unit_hash=f"{r.unit_hash} {n}")
        for r in records
        for n in (10, 50)
        if r.method == "site"
    ]
    several = [r for r in records if r.method == "zero_shot"] + budgets
    drawn = make_tradeoffs(summarise_records(several), several)
    rows_by_labels = drawn["accuracy_by_labels_first_token"][1]["rows"]
    assert [(row["method"], row["x"]) for row in rows_by_labels] == [("zero_shot", 0), ("site", 10), ("site", 50)]


def test_many_methods_are_printed_as_lines_with_what_each_cost(tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    from site_interp.cli.app import app

    rows = [f"{a},{a} {b}" for a in ("aa", "ab", "ac", "ad", "ae", "af", "ag", "ah") for b in ("ba", "bb", "bc")]
    table = tmp_path / "words.csv"
    table.write_text("input,output\n" + "\n".join(f"{row.split(',')[1]},{row.split(',')[0]}" for row in rows))
    methods = ["zero_shot", "icl", "many_shot_icl", "task_vector:n_prompts=2,n_shots=2", "knn"]
    asked = [part for method in methods for part in ("--method", method)]
    arguments = ["run", "--task", str(table), "--model", str(tiny_folders["llama"]), "--n-shots", "2", *asked]
    made = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out"), "--device", "cpu"])
    assert made.exit_code == 0, made.output
    assert "s per 1,000 queries" in made.output
    assert (tmp_path / "out/tables/tables.md").is_file()
    assert (tmp_path / "out/figures/accuracy_by_cost_first_token.json").is_file()


def test_a_run_of_multiple_choice_prints_the_likeliest_option_beside_chance(
    tiny_folders: dict[str, Path], tmp_path: Path
) -> None:
    from site_interp.cli.app import app

    (tmp_path / "bbh").mkdir()
    rows = [{"input": f"a{a} b{b}\nOptions:\n- aa\n- bb", "target": "aa"} for a in "abcde" for b in "abc"]
    (tmp_path / "bbh/words.json").write_text(json.dumps({"examples": rows}))
    where = ["--data-dir", str(tmp_path), "--model", str(tiny_folders["llama"]), "--device", "cpu"]
    arguments = ["run", "--task", "bbh/words", *where, "--method", "zero_shot", "--out", str(tmp_path / "out")]
    made = CliRunner().invoke(app, arguments)
    assert made.exit_code == 0, made.output
    table = made.output.partition("likeliest option right, %")[2]
    assert re.search(r"task +chance +echo +majority +zero_shot", table)
    assert re.search(r"bbh/words +50\.0 +0\.0 \[0\.0, 0\.0\] +100\.0 \[100\.0, 100\.0\]", table)
    found = {r.method for r in read_results(tmp_path / "out") if r.metric == "choice_match"}
    assert found == {"echo", "majority", "zero_shot"}


def test_seconds_that_were_measured_apart_take_the_place_of_the_records(records: list[Record]) -> None:
    drawn = make_tradeoffs(summarise_records(records), records, {"site": 50.0, "zero_shot": 40.0, "icl": 9.0})
    rows = drawn["accuracy_by_cost_first_token"][1]["rows"]
    assert {row["method"]: row["x"] for row in rows} == {"zero_shot": 40.0, "site": 50.0}
