"""kill -9 at any moment: a run goes on without loss or duplicate, an adapter is whole, and a folder has one writer."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from upper_fixtures import PATIENCE, QUICK, fitted_adapter, start_command, wait_until, word_task

from site_interp.adapter import Adapter
from site_interp.errors import UserError
from site_interp.model import Model

N_KILLS = 20
TASKS = tuple(word_task(f"file/{name}", n_train=8, n_valid=4, n_test=2) for name in ("one", "two", "three", "four"))
CLOSE = 1e-3  # nats: a fit that shares its batch with other runs rounds differently
N_METRICS = {"echo": 3, "majority": 3, "zero_shot": 4, "site": 4}  # answers given without the model have no log-prob


@dataclass(frozen=True)
class Whole:
    """An uninterrupted run: its command, its results, and how long it took."""

    arguments: list[str]
    out: Path
    seconds: float


def write_tasks(folder: Path) -> None:
    for task in TASKS:
        rows = [{"input": e.input, "output": e.answer} for e in (*task.train, *task.valid, *task.test)]
        name = task.name.split("/")[1]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def whole(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    write_tasks(folder)
    tasks = [word for task in TASKS for word in ("--task", f"{task.name.split('/')[1]}.jsonl")]
    words = "--method zero_shot --method site --n-test 2 --n-shots 2 --n-prompts 2 --steps 4 --batch-size 2 --out out"
    arguments = ["run", *tasks, *words.split(), "--model", str(tiny_folders["llama"])]
    start_command(["--version"], folder / "err", folder).join(PATIENCE)  # the first start also pays for the imports
    start = time.monotonic()
    process = start_command(arguments, folder / "err", folder)
    process.join(PATIENCE)
    assert process.exitcode == 0, (folder / "err").read_text()
    return Whole(arguments, folder / "out", time.monotonic() - start)


def lines_of(out: Path) -> dict[tuple[str, str, int, str], str]:
    """Every whole line by task, method, seed and metric; none may stand twice."""
    path = out / "results.jsonl"
    content = path.read_bytes().decode() if path.exists() else ""
    lines = content[: content.rfind("\n") + 1].splitlines()
    rows = [json.loads(line) for line in lines]
    assert set(Counter((row["unit_hash"], row["metric"]) for row in rows).values()) <= {1}
    assert all(row["status"] == "ok" for row in rows)
    keys = [(row["task"], row["method"], row["seed"], row["metric"]) for row in rows]
    return dict(zip(keys, lines, strict=True))


def finished(lines: dict[tuple[str, str, int, str], str]) -> dict[tuple[str, str, int, str], str]:
    """The lines of units that have all of them, in their order."""
    n_lines = Counter(key[:3] for key in lines)
    return {key: line for key, line in lines.items() if n_lines[key[:3]] == N_METRICS[key[1]]}


def check_adapters(out: Path) -> None:
    """Every adapter that a killed run left is whole, or its configuration is not there yet."""
    for folder in (out / "adapters").glob("*"):
        if (folder / "adapter_config.json").exists():
            assert Adapter.from_pretrained(folder).embedding.n_prompts == 2


def same_scores(out: Path, other: Path) -> None:
    ours, theirs = lines_of(out), lines_of(other)
    assert ours.keys() == theirs.keys()
    assert len(ours) == sum(N_METRICS.values()) * len(TASKS)
    for key in ours:
        scores, wanted = (json.loads(lines[key])["scores"] for lines in (ours, theirs))
        assert scores == pytest.approx(wanted, abs=CLOSE if key[3] == "answer_log_prob" else 0), key


def run_until_done(whole: Whole, folder: Path, chooser: random.Random, most: int) -> int:
    """Start the run, kill it at some moment, start it again, until it ends by itself; returns the number of kills.

    After the most kills asked for, it is let alone.
    """
    out, known, n_kills = folder / "out", {}, 0
    write_tasks(folder)
    while True:
        process = start_command(whole.arguments, folder / "err", folder)
        process.join(whole.seconds * chooser.uniform(0.1, 0.6) if n_kills < most else PATIENCE)
        process.kill()
        process.join(PATIENCE)
        now = lines_of(out)
        assert [(key, now.get(key)) for key in known] == list(known.items()), "a finished unit was lost or changed"
        check_adapters(out)
        if process.exitcode == 0:
            same_scores(out, whole.out)
            return n_kills
        assert process.exitcode == -signal.SIGKILL, (folder / "err").read_text()
        known, n_kills = finished(now), n_kills + 1
        if out.exists():
            FileLock(out / ".lock").acquire(timeout=0).lock.release()  # the lock died with its holder


@pytest.mark.slow
def test_a_run_of_four_tasks_killed_at_twenty_random_moments_loses_nothing_and_repeats_nothing(
    whole: Whole, tmp_path: Path
) -> None:
    chooser, n_kills, n_rounds = random.Random(0), 0, 0
    while n_kills < N_KILLS:
        n_rounds += 1
        folder = tmp_path / f"{n_rounds}"
        folder.mkdir()
        n_kills += run_until_done(whole, folder, chooser, N_KILLS - n_kills)


def test_a_second_process_on_one_folder_is_refused_and_the_first_is_unharmed(whole: Whole, tmp_path: Path) -> None:
    write_tasks(tmp_path)
    first = start_command(whole.arguments, tmp_path / "err", tmp_path)
    wait_until(lambda: (tmp_path / "out" / "results.jsonl").exists(), first)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    try:
        second = start_command(whole.arguments, tmp_path / "second", tmp_path)
        second.join(PATIENCE)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    told = (tmp_path / "second").read_text()
    assert second.exitcode == 2, told
    assert "site-interp: Cannot write to out: another process is writing there" in told
    assert "Traceback" not in told
    first.join(PATIENCE)
    assert first.exitcode == 0, (tmp_path / "err").read_text()
    assert before.keys() >= {tmp_path / "out" / "results.jsonl"}
    same_scores(tmp_path / "out", whole.out)


def save_again_and_again(adapters: list[Adapter], folder: Path) -> None:
    while True:
        for adapter in adapters:
            adapter.save_pretrained(folder)


def test_an_adapter_whose_saving_is_killed_is_absent_or_whole(llama: Model, tmp_path: Path) -> None:
    adapters = [fitted_adapter(llama, TASKS[0], seed, fitting=QUICK) for seed in (0, 1)]
    weights = [adapter.selection.logits.tolist() for adapter in adapters]
    chooser, found = random.Random(0), Counter[str]()
    for place in range(400):
        if place >= 40 and min(found["absent"], found["whole"]) > 0:
            break
        folder = tmp_path / ("new" if place % 2 else f"{place}")  # replaced, or made for the first time
        process = multiprocessing.get_context("fork").Process(target=save_again_and_again, args=(adapters, folder))
        process.start()
        time.sleep(chooser.uniform(0, 0.03 * (1 + place // 40)))  # longer where the machine is busy
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
        try:
            loaded = Adapter.from_pretrained(folder)
        except UserError as error:
            assert "there is no adapter_config.json" in str(error)  # noqa: PT017 - absent is one of two right ends
            assert not (folder / "adapter_config.json").exists()
            found["absent"] += 1
        else:
            assert loaded.selection.logits.tolist() == weights[loaded.selection.seed]
            found["whole"] += 1
    assert min(found["absent"], found["whole"]) > 0
