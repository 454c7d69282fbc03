"""Tables, differences and figures of a run, from records made by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from upper_fixtures import QUICK, fitted_adapter, quick_site, word_task

from site_interp.baselines import ICL, Echo, Method, ZeroShot
from site_interp.comparison import bootstrap_mean, nested_difference, nested_mean, paired_difference
from site_interp.experiments.plan import Unit
from site_interp.experiments.run import adapter_folder
from site_interp.experiments.summary import MEAN, Summary, comparison_rows, label_of, make_figures, summarise
from site_interp.metrics import Metric
from site_interp.model import Model
from site_interp.records import Record
from site_interp.similarity import holm
from site_interp.store import save_figures, write_comparisons

ONE, TWO = word_task("file/one", n_test=4), word_task("file/two", n_test=4)
SITE_3 = quick_site()
SITE_LABEL = f"site({SITE_3.variant()})"
Scores = Sequence[float]


def unit(method: Method, task: Any = ONE, seed: int = 0) -> Unit:
    return Unit(task, method, seed, 4, "tiny", "fingerprint", "float32")


def record(made: Unit, scores: Scores | None, metric: Metric | None = "prefix_match", **fields: Any) -> Record:
    shared: dict[str, Any] = {
        "model": "tiny",
        "model_fingerprint": "fingerprint",
        "dtype": "float32",
        "task": made.task.name,
        "split_hash": made.task.split_hash,
        "method": made.method.name,
        "variant": made.method.variant(),
        "seed": made.seed,
        "unit_hash": made.hash,
        "version": "0",
    }
    if scores is None:
        return Record(**shared, **fields)
    value = sum(scores) / len(scores)
    return Record(**shared, metric=metric, value=value, n=len(scores), scores=tuple(map(float, scores)), **fields)


def summary_of(*pairs: tuple[Unit, Scores], metric: Metric = "prefix_match") -> Summary:
    return summarise([made for made, _ in pairs], [record(made, scores, metric) for made, scores in pairs])


def test_a_cell_of_one_seed_is_the_mean_over_examples_with_its_interval() -> None:
    summary = summary_of((unit(ZeroShot()), [1, 0, 0, 1]))
    cell = summary.cell("file/one", "zero_shot", "prefix_match")
    assert cell is not None
    assert cell.interval == bootstrap_mean([1.0, 0.0, 0.0, 1.0])
    assert (cell.interval.value, cell.n_seeds) == (0.5, 1)
    assert summary.cell("file/one", "zero_shot", "strict_match") is None
    assert (summary.tasks, summary.methods, len(summary.cells), summary.differences) == (
        ("file/one",), ("zero_shot",), 1, ()
    )  # fmt: skip


def test_seeds_share_a_cell_and_tasks_count_the_same_in_the_mean() -> None:
    rows = {"file/one": [[1, 1, 1, 1], [1, 0, 1, 0]], "file/two": [[0, 0, 0, 1]]}
    summary = summary_of(
        (unit(ICL(2), ONE, 0), rows["file/one"][0]),
        (unit(ICL(2), ONE, 1), rows["file/one"][1]),
        (unit(ICL(2), TWO, 0), rows["file/two"][0]),
    )
    cells = {cell.task: cell for cell in summary.cells}
    assert set(cells) == {"file/one", "file/two", MEAN}
    assert cells["file/one"].interval == nested_mean({"file/one": rows["file/one"]})
    assert (cells["file/one"].interval.value, cells["file/one"].n_seeds) == (0.75, 2)
    assert cells[MEAN].interval == nested_mean(rows)
    assert (cells[MEAN].interval.value, cells[MEAN].n_seeds, cells[MEAN].interval.n) == (0.5, 1, 2)


def test_a_method_that_lacks_a_task_has_no_mean() -> None:
    both, one = unit(ZeroShot()), unit(ICL(2))
    lacking = unit(ICL(2), TWO)
    units = [both, unit(ZeroShot(), TWO), one, lacking]
    records = [record(made, [1, 0, 0, 0]) for made in units[:3]]
    reason = record(lacking, None, status="inapplicable", reason="too few examples")
    summary = summarise(units, [*records, reason])
    assert {cell.method for cell in summary.cells if cell.task == MEAN} == {"zero_shot"}
    assert summary.missing == {("file/two", "icl(n_shots=2)"): "inapplicable: too few examples"}
    assert [difference.task for difference in summary.differences] == ["file/one"]


def test_differences_are_paired_by_example_and_count_the_later_method_first() -> None:
    zero, few = [1, 0, 0, 1], [1, 1, 0, 1]
    (difference,) = summary_of((unit(ZeroShot()), zero), (unit(ICL(2)), few)).differences
    assert (difference.first, difference.second) == ("icl(n_shots=2)", "zero_shot")
    assert difference.interval == paired_difference(few, zero)
    assert (difference.interval.value, difference.task, difference.n_seeds) == (0.25, "file/one", 1)


def test_a_method_without_seeds_meets_every_seed_of_the_other() -> None:
    zero, few = [1, 0, 0, 1], ([1, 1, 0, 1], [0, 0, 0, 0])
    (difference,) = summary_of(
        (unit(ZeroShot()), zero), (unit(ICL(2), seed=0), few[0]), (unit(ICL(2), seed=1), few[1])
    ).differences
    assert difference.interval == nested_difference({"file/one": few}, {"file/one": [zero]})
    assert (difference.interval.value, difference.n_seeds) == (-0.125, 2)


def test_seeds_are_paired_by_their_number_even_where_one_is_missing() -> None:
    icl = {0: [1, 1, 1, 1], 1: [0, 0, 0, 0], 2: [1, 0, 1, 0]}
    site = {1: [1, 1, 0, 0], 2: [1, 0, 1, 1]}
    failed = unit(SITE_3, seed=0)
    pairs = [(unit(ICL(2), seed=s), icl[s]) for s in icl] + [(unit(SITE_3, seed=s), site[s]) for s in site]
    records = [record(made, scores) for made, scores in pairs]
    units = [made for made, _ in pairs[:3]] + [failed] + [made for made, _ in pairs[3:]]
    summary = summarise(units, [record(failed, None, status="failed", reason="broke"), *records])
    (difference,) = summary.differences
    assert (difference.first, difference.second) == (SITE_LABEL, "icl(n_shots=2)")
    assert difference.interval == nested_difference({"file/one": [site[1], site[2]]}, {"file/one": [icl[1], icl[2]]})
    assert (difference.interval.value, difference.n_seeds) == (0.375, 2)
    cell = summary.cell("file/one", SITE_LABEL, "prefix_match")
    assert cell is not None
    assert cell.n_seeds == 2


def test_methods_without_a_common_seed_are_not_compared() -> None:
    summary = summary_of((unit(ICL(2), seed=0), [1, 0, 0, 1]), (unit(SITE_3, seed=1), [1, 1, 1, 1]))
    assert summary.differences == ()
    assert len(summary.cells) == 2


def test_the_mean_difference_is_over_the_tasks_that_both_have() -> None:
    a = {"file/one": [1, 1, 1, 1], "file/two": [0, 0, 1, 1]}
    b = {"file/one": [1, 0, 1, 0], "file/two": [0, 0, 0, 1]}
    methods: tuple[tuple[Method, dict[str, list[int]]], ...] = ((ZeroShot(), b), (ICL(2), a))
    pairs = [(unit(method, task), rows[task.name]) for method, rows in methods for task in (ONE, TWO)]
    found = {difference.task: difference for difference in summary_of(*pairs).differences}
    assert set(found) == {"file/one", "file/two", MEAN}
    assert found[MEAN].interval == nested_difference({t: [a[t]] for t in a}, {t: [b[t]] for t in b})
    assert (found[MEAN].interval.value, found[MEAN].interval.n) == (0.375, 2)


def test_floors_stand_in_the_table_and_in_no_difference() -> None:
    summary = summary_of((unit(Echo()), [1, 0, 0, 0]), (unit(ZeroShot()), [1, 1, 0, 0]))
    assert [cell.method for cell in summary.cells] == ["echo", "zero_shot"]
    assert summary.differences == ()


def test_records_of_other_units_and_the_order_of_the_file_change_nothing() -> None:
    pairs = [(unit(ZeroShot()), [1, 0, 0, 1]), (unit(ICL(2), seed=0), [1, 1, 0, 1]), (unit(ICL(2), seed=1), [0] * 4)]
    units, records = [made for made, _ in pairs], [record(made, scores) for made, scores in pairs]
    stranger = record(replace(units[1], n_test=3), [0, 0, 0])
    assert summarise(units, [stranger, *records[::-1]]) == summarise(units, records)


def test_tasks_are_won_tied_or_lost_by_their_own_interval() -> None:
    tasks = [word_task(f"file/{name}", n_test=4) for name in ("a", "b", "c", "d")]
    better = [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
    worse = [[0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    pairs = [(unit(ICL(1), task), scores) for task, scores in zip(tasks, worse, strict=True)]
    pairs += [(unit(ICL(2), task), scores) for task, scores in zip(tasks, better, strict=True)]
    found = {one.task: one for one in summary_of(*pairs).differences}
    assert (found[MEAN].wins, found[MEAN].ties, found[MEAN].losses) == (2, 1, 1)
    assert (found["file/a"].wins, found["file/a"].ties) == (0, 0)
    assert found["file/a"].p_value == pytest.approx(2 / 2001)
    assert found["file/b"].p_value > 0.5


def test_p_values_are_corrected_for_the_pairs_of_methods_on_one_task_and_metric() -> None:
    draw = torch.Generator().manual_seed(0)
    scores = [(torch.rand(40, generator=draw) < share).float().tolist() for share in (0.3, 0.6, 0.9)]
    task = word_task("file/one", n_test=40)
    made = [(unit(ICL(n), task), scores[n]) for n in range(3)]
    units = [one for one, _ in made]
    records = [record(one, values, metric) for one, values in made for metric in ("prefix_match", "strict_match")]
    summary = summarise(units, records)
    for metric in ("prefix_match", "strict_match"):
        rows = [one for one in summary.differences if one.metric == metric]
        assert len(rows) == 3
        assert [row.p_corrected for row in rows] == holm([row.p_value for row in rows])
        assert any(row.p_corrected > row.p_value for row in rows)


def test_every_metric_is_kept_apart() -> None:
    made = unit(ZeroShot())
    summary = summarise([made], [record(made, [1, 0]), record(made, [-3.0, -1.0], "answer_log_prob")])
    values = {cell.metric: cell.interval.value for cell in summary.cells}
    assert values == {"prefix_match": 0.5, "answer_log_prob": -2.0}


def test_comparison_rows_are_flat_and_written_one_a_line(tmp_path: Path) -> None:
    summary = summary_of((unit(ZeroShot()), [1, 0, 0, 1]), (unit(ICL(2)), [1, 1, 0, 1]))
    interval, p_value = summary.differences[0].interval, summary.differences[0].p_value
    write_comparisons(tmp_path, comparison_rows(summary))
    (line,) = (tmp_path / "comparisons.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "task": "file/one",
        "first": "icl(n_shots=2)",
        "second": "zero_shot",
        "metric": "prefix_match",
        "n_seeds": 1,
        "p_value": p_value,
        "p_corrected": p_value,
        "wins": 0,
        "ties": 0,
        "losses": 0,
        "value": 0.25,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "n": 4,
    }


def test_an_interval_of_one_example_is_written_as_null(tmp_path: Path) -> None:
    summary = summary_of((unit(ZeroShot()), [1]), (unit(ICL(2)), [0]))
    write_comparisons(tmp_path, comparison_rows(summary))
    row = json.loads((tmp_path / "comparisons.jsonl").read_text())
    assert (row["value"], row["ci_low"], row["ci_high"]) == (-1.0, None, None)


@pytest.mark.parametrize(("variant", "label"), [("", "icl"), ("n_shots=5", "icl(n_shots=5)")])
def test_a_label_names_the_variant_where_there_is_one(variant: str, label: str) -> None:
    assert label_of("icl", variant) == label


@pytest.fixture(scope="module")
def figures(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary, list[Unit]]:
    """Files of the figures of a hand-made run with two fitted tasks."""
    out = tmp_path_factory.mktemp("figures")
    units = [unit(method, task, seed) for method in (ZeroShot(), SITE_3) for task in (ONE, TWO) for seed in (0, 1)
             if seed == 0 or method is SITE_3]  # fmt: skip
    for made in units:
        if made.method is SITE_3:
            fitted_adapter(llama, made.task, made.seed).save_pretrained(adapter_folder(out, made))
    scores = [[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]]
    metrics: tuple[Metric, ...] = ("prefix_match", "first_token")
    records = [record(m, row, metric) for m, row in zip(units, scores, strict=True) for metric in metrics]
    summary = summarise(units, records)
    save_figures(out, make_figures(summary, units, out), png=False)
    return out, summary, units


def numbers(out: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((out / "figures" / f"{name}.json").read_text())
    return loaded


def test_a_run_has_bars_for_two_metrics_a_map_for_each_task_and_the_fitting_curves(
    figures: tuple[Path, Summary, list[Unit]],
) -> None:
    stems = {path.stem for path in (figures[0] / "figures").glob("*.json")}
    assert stems == {"accuracy_prefix_match", "accuracy_first_token", "alpha_file-one", "alpha_file-two", "fitting"}
    assert {path.stem for path in (figures[0] / "figures").glob("*.html")} == stems


def test_the_bars_are_the_cells_with_their_intervals(figures: tuple[Path, Summary, list[Unit]]) -> None:
    out, summary, _ = figures
    shown = numbers(out, "accuracy_first_token")
    assert (shown["metric"], shown["model"]) == ("first_token", "tiny")
    cells = {(c.task.removeprefix("file/"), c.method): c.interval for c in summary.cells if c.metric == "first_token"}
    rows = {(row["task"], row["method"]): row for row in shown["rows"]}
    assert rows.keys() == cells.keys()
    assert {task for task, _ in rows} == {"one", "two", MEAN}
    for key, row in rows.items():
        assert (row["value"], row["low"], row["high"]) == (cells[key].value, cells[key].low, cells[key].high)


def test_maps_and_curves_are_those_of_the_first_seed(llama: Model, figures: tuple[Path, Summary, list[Unit]]) -> None:
    out = figures[0]
    curves = numbers(out, "fitting")["traces"]
    assert list(curves) == ["one", "two"]
    for task in (ONE, TWO):
        adapter = fitted_adapter(llama, task, 0)
        shown = numbers(out, f"alpha_file-{task.name[5:]}")
        assert (shown["task"], shown["seed"], shown["model"]) == (task.name, 0, "tiny")
        assert torch.equal(torch.tensor(shown["alpha"]), adapter.selection.alpha)
        trace = adapter.selection.trace
        assert trace is not None
        curve = curves[task.name[5:]]
        assert (curve["train_loss"], curve["chosen_step"]) == (list(trace.train_loss), trace.chosen_step)
        assert (curve["valid_steps"], curve["valid_loss"]) == ([3, 6], list(trace.valid_loss))
        assert len(curve["train_loss"]) == QUICK.n_steps


def test_a_run_without_a_fit_has_bars_only(tmp_path: Path) -> None:
    made = unit(ZeroShot())
    figures = make_figures(summarise([made], [record(made, [1, 0])]), [made], tmp_path)
    assert list(figures) == ["accuracy_prefix_match"]


def test_a_run_without_scores_has_no_figure(tmp_path: Path) -> None:
    made = unit(ICL(2))
    failed = record(made, None, status="failed", reason="broke")
    summary = summarise([made], [failed])
    assert make_figures(summary, [made], tmp_path) == {}
    assert (summary.cells, summary.missing) == ((), {("file/one", "icl(n_shots=2)"): "failed: broke"})
