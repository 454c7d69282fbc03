"""A run records every unit completely and once, whatever fails, and goes on where it was killed."""

import json
import re
import signal
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from upper_fixtures import PATIENCE, QUICK, quick_site, start_command, wait_until, word_task

from site_interp.adapter import Adapter
from site_interp.baselines import ICL, KNN, SITE, Echo, LoRA, Majority, Method, ZeroShot
from site_interp.comparison import bootstrap_mean
from site_interp.errors import UserError
from site_interp.evaluation import evaluate
from site_interp.experiments import run as run_module
from site_interp.experiments.fit_units import Progress
from site_interp.experiments.peak_memory import peak_memory_mb, reset_peak_memory
from site_interp.experiments.plan import Unit, describe_minutes, plan_units, seconds_per_token, token_cost, unit_cost
from site_interp.experiments.run import Outcome, adapter_folder, run_units
from site_interp.metrics import METRICS
from site_interp.model import Model
from site_interp.records import Record
from site_interp.store import open_results, read_results
from site_interp.tasks import Task

TASKS = (word_task("file/one", n_test=5), word_task("file/two", n_test=5))
METHODS: tuple[Method, ...] = (Echo(), Majority(), ZeroShot(), ICL(2), quick_site())
CLOSE = 1e-3  # nats: a fit that shares its batch with other runs rounds differently
FIELDS = (
    "model model_fingerprint dtype task split_hash method variant seed metric value ci_low ci_high n scores labels "
    "n_parameters n_prompt_tokens fit_seconds eval_seconds peak_memory_mb unit_hash status reason version"
).split()


def plan(
    model: Model, tasks: Sequence[Task] = TASKS, methods: Sequence[Method] = METHODS, seeds: Sequence[int] = (0, 1)
) -> list[Unit]:
    return plan_units(model, tasks, methods, seeds, 4)


@pytest.fixture(scope="module")
def whole(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without any trouble: two tasks, five methods, two seeds. Read only."""
    out = tmp_path_factory.mktemp("whole")
    outcome = run_units(llama, plan(llama), out)
    assert outcome == Outcome(done=14, skipped=0, inapplicable=0, failed=0, reasons=())
    return out


def scores_of(out: Path) -> dict[tuple[str, str, int, str | None], tuple[float, ...]]:
    """Scores by unit and metric, after making sure that none stands twice."""
    records = read_results(out)
    keys = Counter((r.unit_hash, r.metric) for r in records)
    assert set(keys.values()) == {1}
    return {(r.task, r.method, r.seed, r.metric): r.scores or () for r in records}


def assert_same_scores(out: Path, other: Path) -> None:
    ours, theirs = scores_of(out), scores_of(other)
    assert ours.keys() == theirs.keys()
    for key, scores in ours.items():
        assert scores == pytest.approx(theirs[key], abs=CLOSE if key[3] == "answer_log_prob" else 0), key


def test_a_line_has_exactly_the_fields_of_the_contract(whole: Path) -> None:
    lines = (whole / "results.jsonl").read_text().splitlines()
    assert [field.name for field in fields(Record)] == FIELDS
    assert all(list(json.loads(line)) == FIELDS for line in lines)


def test_every_unit_has_a_record_for_each_metric_it_can_have(llama: Model, whole: Path) -> None:
    found = Counter((r.task, r.method, r.seed) for r in read_results(whole))
    wanted = {
        (task.name, method, seed): 3 if method in ("echo", "majority") else 4
        for task in TASKS
        for method, seeds in {"echo": [0], "majority": [0], "zero_shot": [0], "icl": [0, 1], "site": [0, 1]}.items()
        for seed in seeds
    }
    assert found == wanted
    no_log_prob = {r.method for r in read_results(whole)} - {
        r.method for r in read_results(whole) if r.metric == "answer_log_prob"
    }
    assert no_log_prob == {"echo", "majority"}


def test_records_say_what_was_run_and_what_it_used(llama: Model, whole: Path) -> None:
    used = {"echo": (0, 0), "majority": (24, 0), "zero_shot": (0, 0), "icl": (None, 0), "site": (None, 12)}
    variant = {"site": quick_site().variant(), "icl": "n_shots=2"}
    splits = {task.name: task.split_hash for task in TASKS}
    for record in read_results(whole):
        assert (record.model, record.dtype, record.status, record.reason) == (llama.name, "float32", "ok", "")
        assert record.model_fingerprint == llama.fingerprint.id
        assert (record.split_hash, record.variant) == (splits[record.task], variant.get(record.method, ""))
        labels, parameters = used[record.method]
        assert record.n_parameters == parameters
        assert record.labels == labels or (labels is None and 2 <= (record.labels or 0) <= 30)
        assert (record.n_prompt_tokens or 0) > 4 or record.method in ("echo", "majority")
        assert (record.fit_seconds or 0) > 0 or record.method != "site"
        assert (record.eval_seconds or 0) > 0 or record.method in ("echo", "majority")
        assert 50 < (record.peak_memory_mb or 0) < 50_000


def test_records_hold_the_scores_of_the_evaluation_with_mean_and_interval(llama: Model, whole: Path) -> None:
    (direct,) = evaluate(llama, TASKS[0], [ICL(2)], seeds=(1,), n_test=4).rows
    found = {r.metric: r for r in read_results(whole) if (r.task, r.method, r.seed) == ("file/one", "icl", 1)}
    assert set(found) == set(METRICS[:4])
    for metric in METRICS[:4]:
        record, interval = found[metric], bootstrap_mean(direct.scores[metric])
        assert record.scores == direct.scores[metric]
        assert record.value == pytest.approx(statistics.mean(direct.scores[metric]))
        assert (record.value, record.ci_low, record.ci_high) == (interval.value, interval.low, interval.high)
        assert record.n == 4
    assert found["first_token"].n_prompt_tokens == pytest.approx(direct.n_prompt_tokens, abs=0.01)


def test_fits_that_share_a_batch_score_as_each_alone(llama: Model, whole: Path) -> None:
    found = scores_of(whole)
    for task in TASKS:
        for row in evaluate(llama, task, [quick_site()], seeds=(0, 1), n_test=4).rows:
            for metric in METRICS[:4]:
                stored = found[task.name, "site", row.seed, metric]
                assert stored == pytest.approx(row.scores[metric], abs=CLOSE if metric == "answer_log_prob" else 0)


def test_texts_stand_in_predictions_only(whole: Path) -> None:
    example = TASKS[0].test_examples(1)[0]
    assert example.input not in (whole / "results.jsonl").read_text()
    names = {path.name for path in (whole / "predictions").iterdir()}
    assert len(names) == 14
    assert "file-one__icl__n_shots-2__seed-1.jsonl" in names
    rows = [json.loads(line) for line in (whole / "predictions/file-one__echo__seed-0.jsonl").read_text().splitlines()]
    assert [row["input"] for row in rows] == [e.input for e in TASKS[0].test_examples(4)]
    assert [row["output"] for row in rows] == [row["input"] for row in rows]
    assert rows[0]["answers"] == list(example.answers)
    scores = scores_of(whole)["file/one", "echo", 0, "prefix_match"]
    assert tuple(row["prefix_match"] for row in rows) == scores


def test_adapters_are_kept_with_their_unit_and_their_preset(llama: Model, whole: Path) -> None:
    folders = sorted(path.name for path in (whole / "adapters").iterdir())
    assert len(folders) == 4
    for unit in plan(llama):
        if unit.method.name == "site":
            adapter, notes = Adapter.from_pretrained_with_notes(adapter_folder(whole, unit))
            assert (adapter.embedding.task, adapter.selection.seed) == (unit.task.name, unit.seed)
            assert (notes["unit_hash"], notes["preset"]) == (unit.fit_hash, None)
    assert (SITE().preset, quick_site().preset) == ("default", None)


def test_a_second_run_does_nothing(llama: Model, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    monkeypatch.setattr(run_module, "evaluate_fitted", lambda *_, **__: pytest.fail("a finished unit ran again"))
    monkeypatch.setattr(SITE, "embed", lambda *_, **__: pytest.fail("a finished unit was fitted again"))
    counted: list[float] = []
    outcome = run_units(llama, plan(llama), whole, progress=Progress(counted.append))
    assert outcome == Outcome(done=0, skipped=14, inapplicable=0, failed=0, reasons=())
    assert before == {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    assert sum(counted) == pytest.approx(sum(token_cost(llama, unit) for unit in plan(llama)))


def test_progress_adds_up_to_the_cost_of_the_plan(llama: Model, tmp_path: Path) -> None:
    units, counted = plan(llama, TASKS[:1], seeds=(0,)), list[float]()
    said: list[str] = []
    run_units(llama, units, tmp_path, progress=Progress(counted.append, said.append), keep_predictions=False)
    assert sum(counted) == pytest.approx(sum(token_cost(llama, unit) for unit in units))
    assert any("embedding" in line for line in said)
    assert not (tmp_path / "predictions").exists()


def test_a_unit_added_later_is_the_only_one_that_runs(llama: Model, tmp_path: Path) -> None:
    cheap = (Echo(), Majority())
    run_units(llama, plan(llama, TASKS[:1], cheap), tmp_path)
    outcome = run_units(llama, plan(llama, TASKS, cheap), tmp_path)
    assert (outcome.done, outcome.skipped) == (2, 2)
    assert Counter(r.task for r in read_results(tmp_path)) == {"file/one": 6, "file/two": 6}


def unit_of(model: Model, method: Method, **changes: Any) -> Unit:
    task = changes.pop("task", TASKS[0])
    unit = Unit(task, method, 0, 4, model.name, model.fingerprint.id, model.dtype_name)
    return replace(unit, **changes)


@pytest.mark.parametrize(
    "change",
    [
        lambda unit: replace(unit, model="another/path/to/the/same"),
        lambda unit: replace(unit, method=quick_site(memory=1)),
        lambda unit: replace(unit, n_test=4, task=replace(unit.task, description="other words")),
    ],
    ids=["where the model lies", "memory", "description"],
)
def test_the_hash_of_a_unit_leaves_out_what_changes_no_number(llama: Model, change: Callable[[Unit], Unit]) -> None:
    unit = unit_of(llama, quick_site())
    assert change(unit) != unit
    assert change(unit).hash == unit.hash


def test_all_test_examples_are_the_same_unit_however_they_are_asked_for(llama: Model) -> None:
    assert len({unit_of(llama, ZeroShot(), n_test=n).hash for n in (None, 5, 100)}) == 1


CHANGES: dict[str, Callable[[Unit], Unit]] = {
    "fingerprint": lambda unit: replace(unit, fingerprint="other"),
    "dtype": lambda unit: replace(unit, dtype="bfloat16"),
    "task name": lambda unit: replace(unit, task=replace(unit.task, name="file/renamed")),
    "task content": lambda unit: replace(unit, task=replace(unit.task, valid=unit.task.valid[1:])),
    "split seed": lambda unit: replace(unit, task=replace(unit.task, split_seed=1)),
    "case": lambda unit: replace(unit, task=replace(unit.task, case_sensitive=True)),
    "method": lambda unit: replace(unit, method=ZeroShot()),
    "setting": lambda unit: replace(unit, method=quick_site(n_shots=3)),
    "setting of the fit": lambda unit: replace(unit, method=quick_site(fitting=replace(QUICK, checkpoint="last"))),
    "seed": lambda unit: replace(unit, seed=1),
    "n_test": lambda unit: replace(unit, n_test=3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_hash_of_a_unit_changes_with_what_changes_numbers(llama: Model, name: str) -> None:
    unit = unit_of(llama, quick_site())
    assert CHANGES[name](unit).hash != unit.hash


def test_the_hash_of_a_unit_changes_with_the_revision_of_the_method(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = unit_of(llama, quick_site()).hash
    monkeypatch.setattr(SITE, "revision", SITE.revision + 1)
    assert unit_of(llama, quick_site()).hash != before


def test_a_task_with_too_few_examples_is_inapplicable_and_the_others_finish(llama: Model, tmp_path: Path) -> None:
    small = word_task("file/small", n_train=1, n_test=5)
    units = plan(llama, (TASKS[0], small), seeds=(0,))
    outcome = run_units(llama, units, tmp_path)
    assert (outcome.done, outcome.inapplicable, outcome.failed) == (8, 2, 0)
    assert len(outcome.reasons) == 2
    records = {(r.task, r.method): r for r in read_results(tmp_path) if r.status != "ok"}
    assert set(records) == {("file/small", "icl"), ("file/small", "site")}
    for record in records.values():
        assert (record.status, record.metric, record.scores) == ("inapplicable", None, None)
        assert re.search("needs [23] distinct training examples", record.reason)
    assert {r.method for r in read_results(tmp_path) if r.task == "file/one"} == {m.name for m in METHODS}
    assert not (tmp_path / "errors.log").exists()
    again = run_units(llama, units, tmp_path)
    assert (again.skipped, again.inapplicable) == (10, 0)


def test_a_task_that_cannot_be_fitted_does_not_take_its_batch_with_it(llama: Model, tmp_path: Path) -> None:
    no_valid = replace(word_task("file/none", n_test=5), valid=())
    outcome = run_units(llama, plan(llama, (TASKS[0], no_valid, TASKS[1]), [quick_site()], (0,)), tmp_path)
    assert (outcome.done, outcome.inapplicable) == (2, 1)
    (record,) = (r for r in read_results(tmp_path) if r.status != "ok")
    assert record.task == "file/none"
    assert "0 validation examples" in record.reason


def test_a_task_without_test_examples_is_inapplicable(llama: Model, tmp_path: Path) -> None:
    outcome = run_units(llama, plan(llama, [word_task("file/untested", n_test=0)], seeds=(0,)), tmp_path)
    assert (outcome.done, outcome.inapplicable) == (0, 5)


def test_a_unit_that_breaks_is_failed_alone_and_tried_again_next_time(
    llama: Model, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ICL.fit

    def broken(self: ICL, model: Model, labelled: Any, seed: int) -> Any:
        if (labelled.task, seed) == ("file/two", 1):
            raise RuntimeError("out of luck")
        return real(self, model, labelled, seed)

    monkeypatch.setattr(ICL, "fit", broken)
    units = plan(llama, methods=METHODS[:4])
    outcome = run_units(llama, units, tmp_path)
    assert (outcome.done, outcome.failed) == (9, 1)
    assert outcome.reasons == ("file/two icl(n_shots=2) seed 1: failed: out of luck",)
    (record,) = (r for r in read_results(tmp_path) if r.status != "ok")
    assert (record.task, record.method, record.seed) == ("file/two", "icl", 1)
    assert (record.status, record.reason) == ("failed", "out of luck")
    assert "RuntimeError: out of luck" in (tmp_path / "errors.log").read_text()
    monkeypatch.undo()
    again = run_units(llama, units, tmp_path)
    assert (again.done, again.skipped, again.failed) == (1, 9, 0)
    assert all(r.status == "ok" for r in read_results(tmp_path))
    assert scores_of(tmp_path) == {key: scores for key, scores in scores_of(whole).items() if key[1] != "site"}


def test_scores_that_are_no_numbers_fail_their_unit_alone(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run_module.evaluate_fitted

    def spoilt(model: Model, task: Task, fitted: Any, **settings: Any) -> Any:
        made = real(model, task, fitted, **settings)
        bad = fitted.name == "zero_shot" and task.name == "file/one"
        return replace(made, scores={**made.scores, "answer_log_prob": (float("nan"),) * 4}) if bad else made

    monkeypatch.setattr(run_module, "evaluate_fitted", spoilt)
    outcome = run_units(llama, plan(llama, TASKS, (ZeroShot(), ICL(2)), (0,)), tmp_path)
    assert (outcome.done, outcome.failed) == (3, 1)
    (record,) = (r for r in read_results(tmp_path) if r.status != "ok")
    assert (record.task, record.method, record.status) == ("file/one", "zero_shot", "failed")
    assert "not finite in answer_log_prob" in record.reason


def test_an_interrupt_is_not_taken_for_a_failure(llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(ICL, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_units(llama, plan(llama), tmp_path)
    assert {(r.method, r.status) for r in read_results(tmp_path)} == {
        ("echo", "ok"), ("majority", "ok"), ("zero_shot", "ok")
    }  # fmt: skip
    with open_results(tmp_path):
        pass


def test_adapters_of_an_interrupted_run_are_used_and_none_of_another_unit(
    llama: Model, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = [quick_site()]
    calls: list[int] = []
    real = run_module.evaluate_fitted

    def interrupted(*args: Any, **settings: Any) -> Any:
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(1)
        return real(*args, **settings)

    monkeypatch.setattr(run_module, "evaluate_fitted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_units(llama, plan(llama, methods=site), tmp_path)
    monkeypatch.undo()
    assert len(read_results(tmp_path)) == 4
    assert len(list((tmp_path / "adapters").iterdir())) == 4, "adapters are saved before any of them is scored"
    with monkeypatch.context() as patch:
        patch.setattr(SITE, "embed", lambda *_, **__: pytest.fail("a kept adapter was fitted again"))
        outcome = run_units(llama, plan(llama, methods=site), tmp_path)
    assert (outcome.done, outcome.skipped) == (3, 1)
    ours = scores_of(tmp_path)
    assert ours == {key: scores for key, scores in scores_of(whole).items() if key[1] == "site"}
    fitted: list[int] = []
    real_embed = SITE.embed
    monkeypatch.setattr(SITE, "embed", lambda *args: (fitted.append(1), real_embed(*args))[1])
    monkeypatch.setattr(SITE, "revision", SITE.revision + 1)
    run_units(llama, plan(llama, TASKS[:1], site, (0,)), tmp_path)
    assert fitted == [1]


def test_a_half_written_adapter_is_fitted_again(llama: Model, tmp_path: Path) -> None:
    (unit,) = plan(llama, TASKS[:1], [quick_site()], (0,))
    run_units(llama, [unit], tmp_path)
    before = scores_of(tmp_path)
    weights = adapter_folder(tmp_path, unit) / "adapter.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    (tmp_path / "results.jsonl").unlink()
    assert run_units(llama, [unit], tmp_path).done == 1
    assert scores_of(tmp_path) == before
    Adapter.from_pretrained(weights.parent, llama)


def test_no_more_than_a_set_number_of_fits_share_a_batch(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = SITE.fit_prepared
    monkeypatch.setattr(SITE, "fit_prepared", lambda self, *args: (sizes.append(len(args[1])), real(self, *args))[1])
    monkeypatch.setattr(SITE, "together", 2)
    fast = quick_site(n_prompts=1, n_shots=1, fitting=replace(QUICK, n_steps=1, n_valid=1))
    assert run_units(llama, plan_units(llama, TASKS[:1], [fast], range(3), 1), tmp_path).done == 3
    assert sizes == [2, 1]


def test_two_processes_do_not_write_to_one_folder(llama: Model, tmp_path: Path) -> None:
    with open_results(tmp_path), pytest.raises(UserError, match="another process is writing there"):
        run_units(llama, plan(llama), tmp_path)


def test_a_method_without_a_seed_is_planned_once(llama: Model) -> None:
    units = plan(llama, TASKS[:1], seeds=(3, 4))
    assert [(unit.method.name, unit.seed) for unit in units] == [
        ("echo", 0), ("majority", 0), ("zero_shot", 0), ("icl", 3), ("icl", 4), ("site", 3), ("site", 4)
    ]  # fmt: skip
    assert units[3].label == "file/one icl(n_shots=2) seed 3"
    assert units[2].label == "file/one zero_shot seed 0"


def test_the_estimate_grows_with_the_work(llama: Model) -> None:
    def cost(method: Method, n_test: int = 4) -> float:
        return token_cost(llama, unit_of(llama, method, n_test=n_test))

    assert cost(Echo()) < cost(ZeroShot()) < cost(ICL(1)) < cost(ICL(5)) < cost(ICL(5), 5)
    steps = [cost(quick_site(fitting=replace(QUICK, n_steps=n))) for n in (10, 110, 210)]
    assert steps[2] - steps[1] > 0.9 * (steps[1] - steps[0]) > 100 * QUICK.batch_size
    assert cost(quick_site(n_prompts=30)) > cost(quick_site(n_prompts=3)) > cost(ZeroShot())
    assert 1e-7 < seconds_per_token(llama) < 1
    assert [describe_minutes(s) for s in (54.0, 56.0, 91.0, 3600.0)] == [
        "under a minute", "about a minute", "about 2 minutes", "about 60 minutes"
    ]  # fmt: skip


# Killed runs: the command line in a process of its own, killed when it says what it is doing.


def command_of(folder: Path, model: Path, *, steps: int) -> list[str]:
    """The command of a run of two file tasks, with relative paths."""
    for task in TASKS:
        rows = [{"input": e.input, "output": e.answer} for e in (*task.train, *task.valid, *task.test)]
        name = task.name.split("/")[1]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = f"run --task one.jsonl --task two.jsonl --seeds 0-1 --n-test 4 --n-shots 2 --n-prompts 3 --steps {steps}"
    return [*words.split(), "--batch-size", "2", "--model", str(model), "--out", "out"]


@pytest.fixture(scope="module")
def commanded(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run of the command."""
    folder = tmp_path_factory.mktemp("commanded")
    process = start_command(command_of(folder, tiny_folders["llama"], steps=150), folder / "err", folder)
    process.join(PATIENCE)
    assert process.exitcode == 0, (folder / "err").read_text()
    return folder / "out"


def n_lines(out: Path) -> int:
    try:
        return (out / "results.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


MOMENTS: dict[str, Callable[[Path, str], bool]] = {
    "after the first record": lambda out, said: n_lines(out) > 0,
    "while prompts are embedded": lambda out, said: "site" in said and "embedding" in said,
    "while alpha is fitted": lambda out, said: " and 3 more" in said,
    "while adapters are saved": lambda out, said: any(out.glob("adapters/*/*")),
    "between adapters and scores": lambda out, said: sum(1 for _ in out.glob("adapters/*/*.json")) >= 4,
}


def test_a_run_killed_at_any_moment_goes_on_without_loss_or_duplicate(
    commanded: Path, tiny_folders: dict[str, Path], tmp_path: Path
) -> None:
    arguments, out, stderr = command_of(tmp_path, tiny_folders["llama"], steps=150), tmp_path / "out", tmp_path / "err"
    known: dict[Any, Any] = {}
    n_before_fits = sum(key[1] != "site" for key in scores_of(commanded))
    for moment, reached in MOMENTS.items():
        stderr.write_text("")
        process = start_command(arguments, stderr, tmp_path)
        wait_until(lambda reached=reached: reached(out, stderr.read_text()), process)  # type: ignore[misc]
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL, moment
        after = scores_of(out) if n_lines(out) else {}
        assert known.items() <= after.items(), f"{moment}: a record was lost or changed"
        known = after
        assert moment != "while alpha is fitted" or len(known) == n_before_fits
    subprocess.run([sys.executable, "-m", "site_interp", *arguments], cwd=tmp_path, timeout=PATIENCE, check=True)
    assert known.items() <= scores_of(out).items()
    assert_same_scores(out, commanded)
    for name in ("comparisons.jsonl", "figures/accuracy_first_token.json", "figures/fitting.json"):
        assert (out / name).is_file()
    before = (out / "results.jsonl").read_bytes()
    process = start_command(arguments, stderr, tmp_path)
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert (out / "results.jsonl").read_bytes() == before
    assert "14 finished before" in stderr.read_text()


def test_records_of_a_run_do_not_depend_on_threads_folder_or_memory(llama: Model, whole: Path, tmp_path: Path) -> None:
    units = plan(llama, TASKS[:1], (ZeroShot(), quick_site(memory=1 << 22)), (0,))
    run_units(llama, units, tmp_path / "a" / "b", memory=1 << 22)
    assert torch.get_num_threads() == 1
    ours = scores_of(tmp_path / "a" / "b")
    theirs = scores_of(whole)
    hashes = {r.unit_hash for r in read_results(whole)}
    assert {r.unit_hash for r in read_results(tmp_path / "a" / "b")} <= hashes
    for key, scores in ours.items():
        assert scores == pytest.approx(theirs[key], abs=CLOSE if key[3] == "answer_log_prob" else 0)


def test_a_unit_with_few_labels_costs_less_and_has_their_sizes(llama: Model) -> None:
    task = word_task("file/large", n_train=200, n_valid=50)
    small, large, whole = plan_units(llama, [task], [LoRA()], (0,), 4, (10, 100, None))
    assert [unit.sizes() for unit in (small, large, whole)] == [(8, 2), (80, 20), (200, 50)]
    costs = [unit_cost(llama, unit).fitting for unit in (small, large, whole)]
    assert costs[0] < costs[1] / 5 < costs[2] / 5
    assert plan_units(llama, [task], [KNN()], (0,), 4, (10,))[0].sizes() == (10, 0)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux can reset a peak")
def test_the_peak_of_a_unit_is_not_that_of_an_earlier_one() -> None:
    reset_peak_memory()
    before = peak_memory_mb()
    large = torch.ones(60_000_000)  # 240 MB
    assert peak_memory_mb() > before + 200
    del large
    reset_peak_memory()
    assert peak_memory_mb() < before + 100
