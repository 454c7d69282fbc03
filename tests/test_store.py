"""Results survive what kills a run: torn lines, a full disk, kill -9, a second process."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from site_interp import files, store
from site_interp.errors import UserError
from site_interp.metrics import METRICS, Metric
from site_interp.records import Record
from site_interp.store import open_results, read_results, save_predictions, write_comparisons

WAIT_SECONDS = 30  # for another process to start

N = len(METRICS)


def record(unit: str, metric: Metric | None = "prefix_match", **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "model": "tiny",
        "model_fingerprint": "f",
        "dtype": "float32",
        "task": "bundled/antonym",
        "split_hash": "s",
        "method": "site",
        "seed": 0,
        "metric": metric,
        "value": 0.5,
        "ci_low": 0.1,
        "ci_high": 0.9,
        "n": 2,
        "scores": (0.0, 1.0),
        "unit_hash": unit,
        "version": "0",
    }
    return Record(**{**fields, **changes})


def unit(name: str, **changes: Any) -> list[Record]:
    return [record(name, metric, **changes) for metric in METRICS]


def unfinished(name: str, status: str) -> Record:
    return record(name, None, value=None, scores=None, status=status, reason="why")


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = [*unit("u", variant="lr=0.1", reason="Zürich\n"), unfinished("v", "failed")]
    with open_results(tmp_path) as results:
        results.append(written[:N])
        results.append(written[N:])
    assert read_results(tmp_path) == written


def test_the_file_is_one_standard_json_object_a_line_with_null_for_an_unknown_interval(tmp_path: Path) -> None:
    with open_results(tmp_path) as results:
        results.append([record("u", ci_low=float("nan"), ci_high=float("nan"))])
    (line,) = (tmp_path / "results.jsonl").read_text().splitlines()
    values = json.loads(line, parse_constant=pytest.fail)
    assert values["ci_low"] is None
    assert values["scores"] == [0.0, 1.0]
    assert values["task"] == "bundled/antonym"
    assert read_results(tmp_path)[0].ci_low is None


def test_a_unit_is_finished_once_all_its_metrics_are_there(tmp_path: Path) -> None:
    with open_results(tmp_path) as results:
        assert not results.finished("u")
        results.append(unit("u")[:3])
        assert not results.finished("u")
        assert results.finished("u", METRICS[:3])
        results.append(unit("u"))
        assert results.finished("u")
        assert not results.finished("v")
    with open_results(tmp_path) as results:
        assert results.finished("u")
        assert not results.finished("v")


def test_an_inapplicable_unit_is_finished_and_a_failed_one_is_tried_again(tmp_path: Path) -> None:
    with open_results(tmp_path) as results:
        results.append([unfinished("i", "inapplicable")])
        results.append([unfinished("f", "failed")])
        assert results.finished("i")
        assert not results.finished("f")
        results.append(unit("f"))
        assert results.finished("f")
    assert [r.status for r in read_results(tmp_path)] == ["inapplicable", *["ok"] * N]


def test_appending_a_unit_again_replaces_it_and_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    with open_results(tmp_path) as results:
        for name in "abc":
            results.append(unit(name))
        before = (tmp_path / "results.jsonl").read_bytes().splitlines()
        results.append(unit("b", value=0.75))
    after = (tmp_path / "results.jsonl").read_bytes().splitlines()
    assert after[: 2 * N] == before[:N] + before[2 * N :]
    assert [(r.unit_hash, r.value) for r in read_results(tmp_path)[2 * N :]] == [("b", 0.75)] * N


def test_a_metric_given_twice_is_refused(tmp_path: Path) -> None:
    with open_results(tmp_path) as results, pytest.raises(ValueError, match="stands twice"):
        results.append([record("u"), record("u")])


@pytest.mark.parametrize("n_bytes_lost", [1, 2, 20, 200])
def test_a_torn_last_line_is_left_out_and_cut_off_before_the_next_record(tmp_path: Path, n_bytes_lost: int) -> None:
    path = tmp_path / "results.jsonl"
    with open_results(tmp_path) as results:
        results.append(unit("a"))
        results.append(unit("b"))
    os.truncate(path, path.stat().st_size - n_bytes_lost)
    n_whole = 2 * N - (n_bytes_lost > 1)  # without its end alone the last line is still whole
    assert read_results(tmp_path) == [*unit("a"), *unit("b")][:n_whole]
    with open_results(tmp_path) as results:
        assert results.finished("a")
        assert results.finished("b") == (n_whole == 2 * N)
        results.append(unit("c"))
        results.append(unit("b"))
    assert read_results(tmp_path) == [*unit("a"), *unit("c"), *unit("b")]


def test_a_file_that_is_one_torn_line_is_empty(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_bytes(b'{"model": "ti')
    assert read_results(tmp_path) == []
    with open_results(tmp_path) as results:
        results.append(unit("a"))
    assert read_results(tmp_path) == unit("a")


def test_a_damaged_line_before_the_last_is_an_error_with_its_number(tmp_path: Path) -> None:
    with open_results(tmp_path) as results:
        results.append(unit("a"))
    path = tmp_path / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:50] + b"\n" + lines[2])
    content = path.read_bytes()
    with pytest.raises(UserError, match=r"results\.jsonl: line 2 is damaged"):
        read_results(tmp_path)
    with pytest.raises(UserError, match="line 2 is damaged"), open_results(tmp_path):
        pass
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", ["[1]", '{"model": "x"}', "null"])
def test_a_line_that_is_no_record_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    with open_results(tmp_path) as results:
        results.append([record("a")])
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match="line 2: not a result record"):
        read_results(tmp_path)


def test_reading_a_folder_without_results_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"it has no results\.jsonl"):
        read_results(tmp_path)


def test_a_path_below_a_regular_file_is_one_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"Cannot write to .*: Not a directory"),
        open_results(tmp_path / "file" / "out"),
    ):
        pass


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with open_results(tmp_path) as results:
        results.append(unit("a"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", no_space)
            with pytest.raises(UserError, match="No space left on device"):
                results.append(unit("b"))
        assert not results.finished("b")
        assert read_results(tmp_path) == unit("a")
        results.append(unit("c"))
    assert read_results(tmp_path) == [*unit("a"), *unit("c")]


def test_an_interrupt_while_writing_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    with open_results(tmp_path) as results:
        results.append(unit("a"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                results.append(unit("b"))
    assert read_results(tmp_path) == unit("a")


def test_an_error_inside_the_block_passes_unchanged_and_frees_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = []

    def watched(path: Path) -> FileLock:
        locks.append(FileLock(path))
        return locks[-1]

    monkeypatch.setattr(files, "FileLock", watched)
    with open_results(tmp_path):
        assert locks[0].is_locked
    with pytest.raises(FileNotFoundError, match="mine"), open_results(tmp_path):
        raise FileNotFoundError("mine")
    assert [lock.is_locked for lock in locks] == [False, False]


def test_a_unit_is_written_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    class Watched(io.FileIO):
        def write(self, data: Any) -> int:
            written.append(bytes(data))
            return super().write(data)

    with open_results(tmp_path) as results:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", lambda path, mode, buffering: Watched(path, mode))
            results.append(unit("a"))
        assert written == [(tmp_path / "results.jsonl").read_bytes()]


def test_a_disk_that_takes_a_part_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NearlyFull(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:100])

    with open_results(tmp_path) as results:
        results.append(unit("a"))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", lambda path, mode, buffering: NearlyFull(path, mode))
            with pytest.raises(UserError, match="the disk is full"):
                results.append(unit("b"))
        assert not results.finished("b")
    assert (tmp_path / "results.jsonl").read_bytes().count(b"\n") == N
    assert read_results(tmp_path) == unit("a")


def start(code: str, out: Path) -> subprocess.Popen[str]:
    header = "import sys, time\nfrom pathlib import Path\nout = Path(sys.argv[1])\n"
    return subprocess.Popen(
        [sys.executable, "-c", header + textwrap.dedent(code), str(out)], stdout=subprocess.PIPE, text=True
    )


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    holder = start(
        """
        from site_interp.store import open_results
        with open_results(out):
            print("open", flush=True)
            time.sleep(60)
        """,
        tmp_path,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        began = time.monotonic()
        with pytest.raises(UserError, match=f"{tmp_path}: another process is writing"), open_results(tmp_path):
            pass
        assert time.monotonic() - began < 2
    finally:
        holder.kill()
        holder.communicate(timeout=WAIT_SECONDS)
    with open_results(tmp_path):
        pass


def test_a_writer_killed_at_any_moment_keeps_every_unit_it_had_finished(tmp_path: Path) -> None:
    code = f"""
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_store import unit
        from site_interp.store import open_results
        scores = tuple(float(i % 2) for i in range(20_000))
        with open_results(out) as results:
            for number in range(1000):
                if not results.finished(str(number)):
                    results.append(unit(str(number), n=len(scores), scores=scores))
                    print(number, flush=True)
        """
    acknowledged: list[str] = []
    for delay in (0.0, 0.013, 0.031):
        writer = start(code, tmp_path)
        assert writer.stdout is not None
        acknowledged.append(writer.stdout.readline().strip())
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate(timeout=WAIT_SECONDS)
        acknowledged += [line for line in rest.split("\n")[:-1] if line]
        counts = Counter(record.unit_hash for record in read_results(tmp_path))
        assert {counts[number] for number in acknowledged} == {N}
    with open_results(tmp_path) as results:
        assert all(results.finished(number) for number in acknowledged)
        results.append(unit("last"))
    keys = [(record.unit_hash, record.metric) for record in read_results(tmp_path)]
    assert len(set(keys)) == len(keys)
    assert keys[-N:] == [("last", metric) for metric in METRICS]


def test_comparisons_are_replaced_as_a_whole(tmp_path: Path) -> None:
    write_comparisons(tmp_path, [{"a": "site", "value": 0.1}, {"a": "icl", "value": 0.2}])
    path = write_comparisons(tmp_path, [{"a": "site", "low": float("nan")}])
    assert path == tmp_path / "comparisons.jsonl"
    assert path.read_text() == '{"a": "site", "low": null}\n'


def test_predictions_have_a_file_for_each_unit_under_a_safe_name(tmp_path: Path) -> None:
    rows = [{"input": "hot", "output": "cold\n"}, {"input": "é", "output": ""}]
    path = save_predictions(tmp_path, task="file/../x", method="site", variant="lr=0.2,steps=4", seed=1, rows=rows)
    assert path == tmp_path / "predictions" / "file----x__site__lr-0-2-steps-4__seed-1.jsonl"
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows
    plain = save_predictions(tmp_path, task="fv/antonym", method="icl", variant="", seed=0, rows=[])
    assert plain.name == "fv-antonym__icl__seed-0.jsonl"


def test_the_names_the_module_offers_exist() -> None:
    assert all(hasattr(store, name) for name in store.__all__)
