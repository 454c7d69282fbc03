"""The command line from outside: exit codes, one plain sentence on stderr, and the files that are left."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import WORDS
from upper_fixtures import PATIENCE, no_pictures, start_command, wait_until

from site_interp.adapter import Adapter
from site_interp.baselines import ICL, SITE, ZeroShot
from site_interp.cli import main
from site_interp.evaluation import evaluate
from site_interp.files import locked
from site_interp.generation import generate
from site_interp.model import Model
from site_interp.prompts import CHAT, QA
from site_interp.selection import FitSettings
from site_interp.store import read_results
from site_interp.tasks import Labelled, Task, load_task

QUICK = "--n-shots 2 --n-prompts 3 --steps 6 --batch-size 2"
QUICK_SITE = SITE(3, 2, FitSettings(6, 2, 0.2))
STARTS_WITHIN = 1.0  # seconds for --help and --version
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder of its own; every one must keep control characters out of its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SITE_INTERP_DATA", raising=False)
    monkeypatch.setattr("site_interp.figure_files._make_pictures", no_pictures)

    def command(words: str, *more: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main([*words.split(), *map(str, more)])
        shown = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        assert not CONTROL.search(shown.out + shown.err)
        return Result(leaving.value.code, shown.out, shown.err)

    return command


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A file of 40 inputs of two words; every third is answered by its own first word."""
    rows = [
        {"input": f"{word} {WORDS[(7 * place) % 50]}", "output": WORDS[place + (place % 3 > 0)]}
        for place, word in enumerate(WORDS[:40])
    ]
    (tmp_path / "words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "words.jsonl"


@pytest.fixture
def task(words: Path) -> Task:
    return load_task(words)


@pytest.fixture
def tiny(tiny_folders: dict[str, Path]) -> str:
    return str(tiny_folders["llama"])


@pytest.fixture(scope="module")
def saved(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an adapter of a bundled task, whose words the tiny tokenizer does not know. Read only."""
    folder = tmp_path_factory.mktemp("saved")
    QUICK_SITE.fit(llama, Labelled(load_task("antonym")), 0).save_pretrained(folder)
    return folder


# run


def test_run_leaves_records_differences_predictions_adapters_and_figures(
    run: Run, words: Path, task: Task, tiny: str, llama: Model, tmp_path: Path
) -> None:
    done = run(f"run --task words.jsonl --n-test 5 {QUICK} --out kept", "--model", tiny)
    assert done.code == 0
    out = tmp_path / "kept"
    records = read_results(out)
    assert [(r.method, r.metric) for r in records if r.metric == "first_token"] == [
        (method, "first_token") for method in ("echo", "majority", "zero_shot", "icl", "site")
    ]
    rows = evaluate(llama, task, [ZeroShot(), ICL(2), QUICK_SITE], n_test=5).rows
    for row in rows:
        for metric, scores in row.scores.items():
            (record,) = (r for r in records if (r.method, r.metric) == (row.method, metric))
            assert record.scores == scores
            assert record.split_hash == task.split_hash
    comparisons = [json.loads(line) for line in (out / "comparisons.jsonl").read_text().splitlines()]
    first, second = "icl(n_shots=2)", "zero_shot"
    (found,) = (c for c in comparisons if (c["first"], c["second"], c["metric"]) == (first, second, "answer_log_prob"))
    means = [sum(row.scores["answer_log_prob"]) / 5 for row in rows]
    assert found["value"] == pytest.approx(means[1] - means[0])
    assert len(list((out / "predictions").iterdir())) == 5
    (folder,) = (out / "adapters").iterdir()
    assert Adapter.from_pretrained(folder, llama).embedding.task == "file/words"
    assert {path.stem for path in (out / "figures").glob("*.json")} == {
        "accuracy_prefix_match", "accuracy_first_token", "alpha_file-words", "fitting", "accuracy_by_cost_prefix_match",
        "accuracy_by_cost_first_token",
    }  # fmt: skip
    assert "Figures are HTML only" in done.out
    (record,) = (r for r in records if (r.method, r.metric) == ("icl", "answer_log_prob"))
    assert "file/words" in done.out


def test_the_table_of_a_run_shows_the_records_in_percent(run: Run, words: Path, tiny: str, tmp_path: Path) -> None:
    done = run("run --task words.jsonl --method majority --method echo --n-test 9 --out kept", "--model", tiny)
    for method in ("majority", "echo"):
        for metric in ("prefix_match", "strict_match", "first_token"):
            (record,) = (r for r in read_results(tmp_path / "kept") if (r.method, r.metric) == (method, metric))
            low, high = (100 * (end or 0) for end in (record.ci_low, record.ci_high))
            assert f"{100 * (record.value or 0):.1f} [{low:.1f}, {high:.1f}]" in done.out
    assert any(r.value for r in read_results(tmp_path / "kept")), "every score is 0: the test sees little"


def test_run_prints_its_plan_and_progress_on_stderr_and_json_alone_on_stdout(
    run: Run, words: Path, tiny: str, tmp_path: Path
) -> None:
    done = run(f"run --task words.jsonl --n-test 5 --seeds 0-1 {QUICK} --json --out kept", "--model", tiny)
    assert done.code == 0
    shown = json.loads(done.out)
    assert set(shown) == {"out", "cells", "comparisons", "outcome"}
    assert shown["outcome"] == {"done": 7, "skipped": 0, "inapplicable": 0, "failed": 0, "reasons": []}
    cells = {(c["method"], c["metric"]): c for c in shown["cells"]}
    records = [r for r in read_results(tmp_path / "kept") if (r.method, r.metric) == ("icl", "answer_log_prob")]
    assert [r.seed for r in records] == [0, 1]
    cell = cells["icl(n_shots=2)", "answer_log_prob"]
    assert cell["value"] == pytest.approx(sum(r.value or 0 for r in records) / 2)
    assert (cell["n_seeds"], cell["n"], cell["task"]) == (2, 5, "file/words")
    assert done.err.startswith("Plan: 7 results (tasks 1, methods 5, echo and majority among them)")
    assert "file/words icl(n_shots=2) seed 1" in done.err


def test_the_same_command_continues_and_its_folder_follows_from_its_settings(
    run: Run, words: Path, tiny: str, tmp_path: Path
) -> None:
    command = "run --task words.jsonl --method zero_shot --n-test 3"
    assert run(command, "--model", tiny).code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    before = (folder / "results.jsonl").read_bytes()
    again = run(command, "--model", tiny, "--memory", "1G", "--device", "cpu")
    assert "3 finished before" in again.err
    assert (folder / "results.jsonl").read_bytes() == before
    run(command, "--model", tiny, "--n-test", "4")
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_plan_stops_before_any_work(
    run: Run, words: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_interp.experiments.run.run_units", lambda *_, **__: pytest.fail("work was done"))
    files = sorted(tmp_path.iterdir())
    done = run(f"run --task words.jsonl --plan {QUICK}", "--model", tiny)
    assert (done.code, done.out) == (0, "")
    assert re.match(r"Plan: 5 results .* under a minute to go\. Output: runs/[0-9a-f]{16}\n$", done.err)
    shown = json.loads(run(f"run --task words.jsonl --plan --json {QUICK}", "--model", tiny).out)
    assert [label.split()[1].split("(")[0] for label in shown["units"]] == [
        "echo", "majority", "zero_shot", "icl", "site"
    ]  # fmt: skip
    assert 0 <= shown["minutes"] < 1
    assert sorted(tmp_path.iterdir()) == files


def test_a_failed_unit_gives_exit_code_1_and_its_reason_once(
    run: Run, words: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(ICL, "fit", broken)
    command = f"run --task words.jsonl --n-test 3 --method zero_shot --method icl {QUICK} --out kept"
    done = run(command, "--model", tiny)
    assert done.code == 1
    assert "file/words icl(n_shots=2) seed 0: failed: out of luck" in done.out
    assert "Traceback" not in done.out + done.err
    assert {(r.method, r.status) for r in read_results(tmp_path / "kept")} == {
        ("echo", "ok"), ("majority", "ok"), ("zero_shot", "ok"), ("icl", "failed")
    }  # fmt: skip
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("site_interp.figure_files._make_pictures", no_pictures)
    assert run(command, "--model", tiny).code == 0


def test_an_inapplicable_method_counts_as_done_and_says_why(run: Run, words: Path, tiny: str) -> None:
    command = "run --task words.jsonl --n-test 3 --method zero_shot --method icl --n-shots 30 --out kept"
    done = run(command, "--model", tiny)
    assert done.code == 0
    assert "inapplicable: Cannot draw a prompt of 30 shots" in done.out
    assert re.search(r"file/words .* inapplicable", done.out)


def test_other_columns_of_a_file_can_be_run_fitted_and_shown(run: Run, tiny: str, tmp_path: Path) -> None:
    rows = [f"{word},{WORDS[place + 1]}" for place, word in enumerate(WORDS[:40])]
    (tmp_path / "table.csv").write_text("\n".join(["from,to", *rows]) + "\n")
    columns = "--input-column from --output-column to"
    assert run(f"run --task table.csv --method echo --out kept {columns}", "--model", tiny).code == 0
    assert read_results(tmp_path / "kept")[0].n == 12
    assert run(f"fit --task table.csv --out adapter {QUICK} {columns}", "--model", tiny).code == 0
    assert run(f"eval adapter --task table.csv --n-test 2 {columns}").code == 0
    assert "'aa'" in run(f"tasks show table.csv -n 40 {columns}").out
    assert run(f"tasks show-prompt table.csv {columns}").code == 0


def test_several_files_of_one_name_are_not_mixed_up(run: Run, words: Path, tiny: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "words.jsonl").write_text("".join(words.read_text().splitlines(keepends=True)[:30]))
    done = run("run --task words.jsonl --task other/words.jsonl --plan", "--model", tiny)
    assert done.code == 2
    assert "Two different tasks are called 'file/words'" in done.err
    assert run("run --task words.jsonl --task ./words.jsonl --plan", "--model", tiny).code == 0


# fit


def test_fit_saves_the_adapter_that_the_library_makes(
    run: Run, words: Path, task: Task, tiny: str, llama: Model, tmp_path: Path
) -> None:
    settings = "--seeds 4 --n-shots 2 --n-prompts 3 --steps 6 --batch-size 3 --lr 0.5 --checkpoint last"
    done = run(f"fit --task words.jsonl --out adapter {settings}", "--model", tiny)
    assert done.code == 0
    adapter, notes = Adapter.from_pretrained_with_notes(tmp_path / "adapter")
    fitting = FitSettings(6, 3, 0.5, checkpoint="last")
    expected = SITE(3, 2, fitting).fit(llama, Labelled(task), 4)
    assert torch.equal(adapter.selection.logits, expected.selection.logits)
    assert torch.equal(adapter.embedding.mean, expected.embedding.mean)
    assert adapter.selection.settings == fitting
    assert (adapter.selection.seed, adapter.n_labels, notes["preset"]) == (4, expected.n_labels, None)
    trace = adapter.selection.trace
    assert trace is not None
    assert re.search(rf"file/words +4 +6 +{trace.valid_loss[-1]:.3f} ", done.out)


def test_fit_of_several_saves_each_in_a_folder_and_lists_them_as_json(
    run: Run, words: Path, tiny: str, llama: Model, tmp_path: Path
) -> None:
    command = f"fit --task words.jsonl --task antonym --seeds 0,1 --template chat {QUICK} --out many --json"
    done = run(command, "--model", tiny)
    shown = json.loads(done.out)
    assert [(row["task"], row["seed"]) for row in shown] == [
        ("file/words", 0), ("file/words", 1), ("bundled/antonym", 0), ("bundled/antonym", 1)
    ]  # fmt: skip
    assert {path.name for path in (tmp_path / "many").glob("[!.]*")} == {Path(row["folder"]).name for row in shown}
    for row in shown:
        adapter = Adapter.from_pretrained(row["folder"], llama)
        assert (adapter.embedding.task, adapter.selection.seed) == (row["task"], row["seed"])
        assert adapter.template == CHAT
        trace = adapter.selection.trace
        assert trace is not None
        assert (row["chosen_step"], row["labels"]) == (trace.chosen_step, adapter.n_labels)
        assert row["valid_loss"] == pytest.approx(min(trace.valid_loss))


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_presets_are_those_of_the_library(run: Run, words: Path, tiny: str, tmp_path: Path, preset: str) -> None:
    command = f"fit --task words.jsonl --preset {preset} --n-prompts 2 --n-shots 2 --plan --json --out adapter"
    planned = json.loads(run(command, "--model", tiny).out)
    assert planned["fits"] == [{"task": "file/words", "seed": 0}]
    assert not (tmp_path / "adapter").exists(), "a plan writes nothing"
    from site_interp.baselines import PRESETS
    from site_interp.cli.options import read_fitting

    assert read_fitting(preset, None, None, None, "best") == PRESETS[preset]
    assert read_fitting(preset, None, None, 0.1, "last") == FitSettings(
        PRESETS[preset].n_steps, PRESETS[preset].batch_size, 0.1, checkpoint="last"
    )


# eval


def test_eval_shows_the_adapter_beside_zero_shot_and_keeps_records(
    run: Run, saved: Path, llama: Model, tmp_path: Path
) -> None:
    done = run("eval --n-test 6 --json --out kept", saved)
    assert done.code == 0
    task = load_task("antonym")
    plain, adapted = evaluate(llama, task, [ZeroShot(), Adapter.from_pretrained(saved)], n_test=6).rows
    shown = json.loads(done.out)
    records = read_results(tmp_path / "kept")
    assert [(row["task"], row["method"], row["n"]) for row in shown] == [
        ("bundled/antonym", "zero_shot", 6), ("bundled/antonym", "site", 6)
    ]  # fmt: skip
    for row, expected in zip(shown, (plain, adapted), strict=True):
        for metric, scores in expected.scores.items():
            assert row[metric]["value"] == pytest.approx(sum(scores) / 6)
            (record,) = (r for r in records if (r.method, r.metric) == (row["method"], metric))
            assert record.scores == scores
    assert {r.variant[:8] for r in records} == {"", "adapter="}
    again = run("eval --n-test 6 --out kept", saved)
    assert "answer_log_prob" in again.out
    assert len(read_results(tmp_path / "kept")) == len(records)


def test_eval_asks_zero_shot_once_for_several_adapters_of_a_task(run: Run, saved: Path, llama: Model) -> None:
    other = QUICK_SITE.fit(llama, Labelled(load_task("antonym")), 1)
    other.save_pretrained("other")
    shown = json.loads(run("eval --n-test 2 --json other", saved).out)
    assert [(row["method"], row["seed"]) for row in shown] == [("zero_shot", 0), ("site", 1), ("site", 0)]


def test_eval_may_try_another_task(run: Run, saved: Path, words: Path) -> None:
    shown = json.loads(run("eval --n-test 2 --json --task words.jsonl", saved).out)
    assert {row["task"] for row in shown} == {"file/words"}


# generate


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def test_generate_answers_a_file_or_stdin_line_by_line(
    run: Run, saved: Path, llama: Model, stdin: Callable[[bytes], None], tmp_path: Path
) -> None:
    inputs = ["aa ab", "ba", " ac\x0bad", "bb bc"]
    expected = generate(llama, inputs, Adapter.from_pretrained(saved))
    content = "\ufeff" + "aa ab\r\n\r\nba\r\n ac\x0bad\nbb bc"
    (tmp_path / "inputs.txt").write_bytes(content.encode())
    done = run("generate inputs.txt --adapter", saved)
    assert (done.code, done.out.split("\n")) == (0, [*expected, ""])
    for place in ([], ["-"]):
        stdin(content.encode())
        assert run("generate --adapter", saved, *place).out == done.out


def test_generate_without_an_adapter_asks_the_model_as_it_is(
    run: Run, tiny: str, llama: Model, stdin: Callable[[bytes], None]
) -> None:
    stdin(b"aa\nab\n")
    done = run("generate --max-new-tokens 3", "--model", tiny)
    assert done.out.splitlines() == generate(llama, ["aa", "ab"], max_new_tokens=3)


def test_generate_takes_whole_prompts_with_raw_and_another_template(
    run: Run, saved: Path, tiny: str, llama: Model, tmp_path: Path
) -> None:
    adapter = Adapter.from_pretrained(saved)
    lines = [{"input": QA.zero_shot("aa")}, QA.zero_shot("bb")]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = run("generate prompts.jsonl --raw --jsonl --adapter", saved)
    shown = [json.loads(line) for line in done.out.splitlines()]
    assert [row["input"] for row in shown] == [QA.zero_shot("aa"), QA.zero_shot("bb")]
    assert [row["output"] for row in shown] == generate(llama, ["aa", "bb"], adapter)
    (tmp_path / "inputs.txt").write_text("aa\nbb\n")
    done = run("generate inputs.txt --template chat --model", tiny)
    assert done.out.splitlines() == generate(llama, ["aa", "bb"], template=CHAT)


# models and tasks


def test_models_lists_the_bundled_ones(run: Run) -> None:
    shown = {row["name"]: row for row in json.loads(run("models --json").out)}
    assert set(shown) == {"smollm2-135m", "gemma-3-270m"}
    assert (shown["smollm2-135m"]["layers"], shown["smollm2-135m"]["heads"]) == (30, 9)
    table = run("models").out
    for name, row in shown.items():
        assert re.search(rf"{name} +{row['layers']} x {row['heads']} +", table)


def test_tasks_list_names_and_counts_the_bundled_tasks(run: Run) -> None:
    shown = {row["name"]: row["sizes"] for row in json.loads(run("tasks list --json").out)}
    table = run("tasks list").out
    assert len(shown) >= 8
    for name, sizes in shown.items():
        task = load_task(name)
        assert sizes == [len(task.train), len(task.valid), len(task.test)]
        assert re.search(rf"{name} +{sizes[0]} +{sizes[1]} +{sizes[2]} +\S", table)


def test_tasks_show_gives_sizes_settings_and_first_examples(run: Run, words: Path, task: Task) -> None:
    shown = json.loads(run("tasks show words.jsonl -n 2 --json").out)
    assert (shown["name"], shown["split_hash"]) == ("file/words", task.split_hash)
    assert shown["sizes"] == {"train": 24, "valid": 4, "test": 12}
    assert shown["examples"]["test"] == [{"input": e.input, "answers": list(e.answers)} for e in task.test_examples(2)]
    table = run("tasks show words.jsonl -n 2").out
    assert f"split hash {task.split_hash}" in table
    assert repr(task.train[1].input) in table
    assert repr(task.train[2].input) not in table
    assert json.loads(run("tasks show words.jsonl --split-seed 1 --json").out)["split_hash"] != task.split_hash


def test_tasks_show_prompt_prints_what_the_model_gets(run: Run, words: Path, task: Task, llama: Model) -> None:
    shown = run("tasks show-prompt words.jsonl --n-shots 3 --seed 5").out
    (example,) = task.test_examples(1)
    (prompt,) = ICL(3).fit(llama, Labelled(task), 5).prompts([example.input])
    assert shown == (
        f"--- zero-shot\n{QA.zero_shot(example.input)}\n--- 3-shot, seed 5\n{prompt}\n--- expected\n"
        f"{QA.answer(example.answer)!r}\n"
    )
    assert "<|im_start|>user" in run("tasks show-prompt antonym --template chat").out


# errors


def test_a_data_folder_without_task_or_suite_lists_its_tasks_and_exits_2(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "fv" / "made_up"
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.json").write_text(json.dumps([{"input": split, "output": "x"}]))
    done = run("run --data-dir data")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "fv/made_up" in done.err
    assert "--task" in done.err
    shown = run("tasks list --data-dir data").out
    assert "fv/made_up" in shown


def test_an_adapter_fitted_on_a_file_asks_for_the_file_again(run: Run, words: Path, tiny: str) -> None:
    assert run(f"fit --task words.jsonl {QUICK} --out adapter", "--model", tiny).code == 0
    done = run("eval adapter")
    assert done.code == 2
    assert "Give it again with --task FILE" in done.err
    assert run("eval adapter --task words.jsonl --n-test 2").code == 0


def test_a_damaged_results_file_is_a_mistake_and_left_alone(run: Run, words: Path, tiny: str, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "results.jsonl").write_text("{}\n{}\n")
    done = run("run --task words.jsonl --method echo --out kept", "--model", tiny)
    assert done.code == 2
    assert "results.jsonl, line 1" in done.err
    assert (tmp_path / "kept" / "results.jsonl").read_text() == "{}\n{}\n"


def test_an_error_of_the_program_itself_is_not_hidden(
    run: Run, words: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("site_interp.tasks.load_task", broken)
    with pytest.raises(ZeroDivisionError):
        main(["tasks", "show", "words.jsonl"])


# starting and stopping


def test_without_a_verb_the_help_is_printed(run: Run) -> None:
    done = run("")
    assert done.code == 2
    assert (done.out + done.err).startswith("Usage: site-interp")


STARTED = """
import sys
from site_interp.cli import main
try:
    main(sys.argv[1:])
finally:
    print("loaded:", *sorted({"torch", "transformer_lens", "transformers", "plotly", "pandas"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--help", "Commands:"),
        ("--version", "site-interp 0."),
        ("run --help", "--preset"),
        ("fit --help", "--checkpoint"),
        ("eval --help", "adapter"),
        ("generate --help", "--jsonl"),
        ("tasks --help", "show-prompt"),
        ("tasks list", "bundled/antonym"),
    ],
)
def test_help_version_and_tasks_load_neither_torch_nor_transformer_lens(command: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED, *command.split()], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_come_within_a_second(option: str) -> None:
    spent = []
    for _ in range(5):  # the machine may be busy: the best of some tries
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "site_interp", option], capture_output=True, timeout=PATIENCE, check=True)
        spent.append(time.perf_counter() - start)
        if spent[-1] < STARTS_WITHIN:
            return
    pytest.fail(f"{option} took {min(spent):.2f} s")


@pytest.mark.skipif(os.name != "posix", reason="a shell closes the streams")
@pytest.mark.parametrize("words", ["tasks list", "--version", "models", "tasks check antonym"])
def test_a_closed_output_is_one_sentence_and_exit_code_2(words: str) -> None:
    done = in_shell(f"{words} >&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "site-interp: Cannot write the output: stdout is closed. Open it, or send it to a file.\n"


@pytest.mark.skipif(os.name != "posix", reason="a shell closes the streams")
def test_a_closed_input_is_an_empty_one(tiny: str) -> None:
    done = in_shell(f"generate --model '{tiny}' <&-")
    assert done.returncode == 2
    assert done.stderr.startswith("site-interp: ")
    assert len(done.stderr.splitlines()) == 1


def test_signs_that_an_encoding_lacks_are_written_as_escapes(tmp_path: Path) -> None:
    rows = "".join(f"🍏 {i},häll\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"input,output\n{rows}", encoding="utf-8")
    done = in_shell(f"tasks show '{tmp_path / 't.csv'}'", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\U0001f34f" in done.stdout
    assert "h\\xe4ll" in done.stdout


def in_shell(words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command in a shell of its own."""
    return subprocess.run(
        f"'{sys.executable}' -m site_interp {words}",
        shell=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **environment},
    )


def test_two_fits_on_one_folder_are_kept_apart(run: Run, words: Path, tiny: str) -> None:
    with locked(Path("out")):
        refused = run(f"fit --task words.jsonl --seeds 0,1 --out out {QUICK} --model", tiny)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("another process is writing there. Wait for it to end or choose another --out.\n")
    assert [path.name for path in Path("out").iterdir()] == [".lock"]
    assert run(f"fit --task words.jsonl --seeds 0,1 --out out {QUICK} --model", tiny).code == 0


def test_a_task_whose_answer_is_too_long_leaves_the_others_alone(run: Run, words: Path, tiny: str) -> None:
    rows = [{"input": f"{word} ba", "output": " ".join(WORDS * 9) if word == "aa" else "ba"} for word in WORDS[:40]]
    Path("long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("run --task words.jsonl --task long.jsonl --method icl --n-shots 2 --n-test 30 --out out --model", tiny)
    assert done.code in (0, 1), done.err
    found = {(r.task, r.status) for r in read_results(Path("out")) if r.method == "icl"}
    assert ("file/words", "ok") in found
    assert {status for task, status in found if task == "file/long"} & {"ok", "inapplicable", "failed"}


def test_an_interrupt_exits_130_and_keeps_what_is_finished(words: Path, tiny: str, tmp_path: Path) -> None:
    arguments = ["run", "--task", "words.jsonl", "--n-test", "4", *QUICK.replace("6", "9999").split()]
    stderr = tmp_path / "err"
    stderr.write_text("")
    process = start_command([*arguments, "--model", tiny, "--out", "kept"], stderr, tmp_path)
    wait_until(lambda: "fitting" in stderr.read_text(), process)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(PATIENCE)
    assert process.exitcode == 130
    assert stderr.read_text().endswith(
        "\nsite-interp: interrupted; what is finished in an output folder is kept, "
        "and the same command continues there.\n"
    )
    assert "Traceback" not in stderr.read_text()
    found = {(r.method, r.status) for r in read_results(tmp_path / "kept")}
    assert found == {("echo", "ok"), ("majority", "ok"), ("zero_shot", "ok"), ("icl", "ok")}
