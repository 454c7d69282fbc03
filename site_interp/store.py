"""Results on disk: records appended whole, figures and predictions replaced whole, one writer per folder.

What a killed run leaves behind is readable and can be continued; no number is computed here.
"""

import errno
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from site_interp.errors import UserError
from site_interp.figure_files import SavedFigures, save_figure, save_figures
from site_interp.files import json_line, locked, safe_name, write_atomically, writing
from site_interp.metrics import METRICS, Metric
from site_interp.records import Record, unit_hash

__all__ = [
    "Record",
    "ResultsFile",
    "SavedFigures",
    "open_results",
    "peek_results",
    "read_results",
    "safe_name",
    "save_figure",
    "save_figures",
    "save_predictions",
    "unit_hash",
    "write_atomically",
    "write_comparisons",
]

RESULTS_NAME = "results.jsonl"
COMPARISONS_NAME = "comparisons.jsonl"


@dataclass(frozen=True)
class ResultsFile:
    """The results of one output folder, open for appending; made by `open_results`."""

    path: Path
    _statuses: dict[str, dict[Metric | None, str]] = field(repr=False)

    def finished(self, unit_hash: str, metrics: Collection[Metric] = METRICS) -> bool:
        """Whether a unit need not run again.

        A unit is finished when every one of its metrics is on disk, or the record that it is inapplicable. The
        caller names the metrics, so that a file that lost some of a unit's lines shows it. A failed unit is not.

        Args:
            unit_hash: `unit_hash` of the unit.
            metrics: The metrics the unit writes when all goes well.
        """
        statuses = self._statuses.get(unit_hash, {})
        return statuses.get(None) == "inapplicable" or all(statuses.get(metric) == "ok" for metric in metrics)

    def append(self, records: Sequence[Record]) -> None:
        """Put all records of a unit on disk in one write; they are safe once this returns.

        Records the file already holds of the same unit (of a failed or half-written one) are replaced.

        Raises:
            ValueError: A metric stands twice.
            UserError: The file cannot be written; it is then as it was before.
        """
        if len({(record.unit_hash, record.metric) for record in records}) != len(records):
            raise ValueError("Cannot append the records: a metric of a unit stands twice. Give each one once.")
        block = _lines(map(asdict, records))
        units = {record.unit_hash for record in records}
        if units & self._statuses.keys():
            kept = [line for line, record in _scan(self.path)[0] if record.unit_hash not in units]
            write_atomically(self.path, b"".join(line + b"\n" for line in kept) + block)
        else:
            _append_whole(self.path, block)
        for unit in units:
            self._statuses[unit] = {record.metric: record.status for record in records if record.unit_hash == unit}


@contextmanager
def open_results(out: Path) -> Iterator[ResultsFile]:
    """Open the results of a folder for appending and keep every other process out until the end.

    The folder is made if needed. A last line torn by a killed process is cut off first.

    Args:
        out: Output folder.

    Raises:
        UserError: Another process has the folder open, it cannot be written, or its results are damaged.
    """
    with locked(out):
        lines, end = _scan(out / RESULTS_NAME)
        with writing(out):
            _cut_torn_line(out / RESULTS_NAME, end)
        yield ResultsFile(out / RESULTS_NAME, _statuses(lines))


def peek_results(out: Path) -> ResultsFile:
    """What is finished in an output folder, without opening it for appending; a folder without results has nothing."""
    path = out / RESULTS_NAME
    return ResultsFile(path, _statuses(_scan(path)[0] if path.is_file() else []))


def _statuses(lines: Iterable[tuple[bytes, Record]]) -> dict[str, dict[Metric | None, str]]:
    statuses: dict[str, dict[Metric | None, str]] = {}
    for _, record in lines:
        statuses.setdefault(record.unit_hash, {})[record.metric] = record.status
    return statuses


def read_results(out: Path) -> list[Record]:
    """All records of an output folder in the order they were written; a torn last line is left out.

    Safe while another process writes.

    Raises:
        UserError: The folder has no results, or a line before the last is damaged.
    """
    path = out / RESULTS_NAME
    if not path.is_file():
        raise UserError(f"Cannot read results in {out}: it has no {RESULTS_NAME}. Give the --out folder of a run.")
    return [record for _, record in _scan(path)[0]]


def write_comparisons(out: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """Replace the paired differences of an output folder; one JSON line per row, nan written as null."""
    path = out / COMPARISONS_NAME
    write_atomically(path, _lines(rows))
    return path


def save_predictions(
    out: Path, *, task: str, method: str, variant: str, seed: int, rows: Iterable[Mapping[str, object]]
) -> Path:
    """Write what a unit was asked and answered, one JSON line per test example; the only place for example texts.

    Returns:
        The file, `OUT/predictions/<task>__<method>__<variant>__seed-<seed>.jsonl` (no variant, no part for it).
    """
    parts = [task, method, *([variant] if variant else []), f"seed-{seed}"]
    path = out / "predictions" / ("__".join(map(safe_name, parts)) + ".jsonl")
    write_atomically(path, _lines(rows))
    return path


def _scan(path: Path) -> tuple[list[tuple[bytes, Record]], int]:
    """Every whole line (without its end) with its record, and the number of bytes up to the end of the last one."""
    lines: list[tuple[bytes, Record]] = []
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}. Choose another --out.") from None
    start = end = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        start += len(line) + 1
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            if data[start:].strip():
                raise UserError(
                    f"Cannot read {path}: line {number} is damaged. Remove the line or choose another --out."
                ) from None
            break
        lines.append((line, _record(values, f"{path}, line {number}")))
        end = min(start, len(data))
    return lines, end


def _record(values: object, where: str) -> Record:
    """The record of one line of JSON."""
    names = {part.name for part in fields(Record)}
    try:
        if not isinstance(values, dict) or values.keys() != names or not _has_types(values):
            raise TypeError
        scores = None if values["scores"] is None else tuple(map(float, values["scores"]))
        return Record(**{**values, "scores": scores})
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"Cannot read {where}: not a result record of this version. Choose another --out.") from None


WHOLE = ("seed", "n")
COSTS = ("n_prompt_tokens", "fit_seconds", "eval_seconds", "peak_memory_mb")
NUMBERS = ("value", "ci_low", "ci_high", "labels", "n_parameters", *COSTS)
CHOICES = {"metric": (None, *METRICS), "status": ("ok", "inapplicable", "failed")}


def _has_types(values: Mapping[str, object]) -> bool:
    """Whether every field of a record is of its type; the record itself checks what they say together."""
    scores = values["scores"]
    listed = scores is None or (isinstance(scores, list) and all(isinstance(score, int | float) for score in scores))
    texts = values.keys() - {*WHOLE, *NUMBERS, *CHOICES, "scores"}
    return (
        listed
        and all(isinstance(values[name], str) for name in texts)
        and all(isinstance(values[name], int) for name in WHOLE)
        and all(isinstance(values[name], int | float | None) for name in NUMBERS)
        and all(values[name] in choices for name, choices in CHOICES.items())
    )


def _cut_torn_line(path: Path, end: int) -> None:
    """Cut the file after its whole lines and end the last of them."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        file.truncate(end)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())


def _append_whole(path: Path, block: bytes) -> None:
    """Append in one write; on any error, an interrupt included, the file is cut back to what it was."""
    with writing(path), path.open("ab", buffering=0) as file:
        start = file.seek(0, os.SEEK_END)
        try:
            if file.write(block) != len(block):
                raise OSError(errno.ENOSPC, "the disk is full")
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(start)
            raise


def _lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    """Rows as JSON lines."""
    return "".join(json_line(row) + "\n" for row in rows).encode()
