"""What a run left in its output folder, as the page needs it; damaged parts beside the records are named, not fatal."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from site_interp.errors import UserError
from site_interp.metrics import METRICS
from site_interp.records import Record
from site_interp.store import COMPARISONS_NAME, RESULTS_NAME, read_results

FLOORS = ("echo", "majority")
MAX_NUMBER = 1e12  # of a score or an effect; larger ones come from damaged files
Row = dict[str, Any]


@dataclass(frozen=True)
class Contents:
    """An output folder.

    Args:
        records: Those of the last run of each task, in the order of the file.
        differences: Rows of comparisons.jsonl.
        adapters: Folder name -> its configuration.
        notes: What was left out, and why; one sentence each.
        modified: Seconds since 1970 at which the results were last written.
    """

    records: tuple[Record, ...]
    differences: tuple[Row, ...]
    adapters: dict[str, Row]
    notes: tuple[str, ...]
    modified: float

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names in the order of the run."""
        return tuple(dict.fromkeys(record.task for record in self.records))

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels in the order of the run."""
        return tuple(dict.fromkeys(label_of(record) for record in self.records))


def label_of(record: Record) -> str:
    """The method of a record, with its variant where there is one."""
    return f"{record.method}({record.variant})" if record.variant else record.method


def read_contents(out: Path) -> Contents:
    """Read everything but figures and predictions.

    Raises:
        UserError: The folder has no results, or they are damaged.
    """
    records = read_results(out)
    if not records:
        raise UserError(
            f"Cannot report on {out}: its {RESULTS_NAME} holds no record. Patching, transfer and overlap "
            f"add figures to the page of a run: give the same tasks and settings to site-interp run --out {out} first."
        )
    kept = last_records(records)
    notes = []
    if len(kept) < len(records):
        notes.append(
            f"{len(records) - len(kept)} records of earlier runs (another model, split or number of test examples, or "
            "a unit that was replaced) are left out: the page shows the last run of each task."
        )
    differences, unread = _differences(out / COMPARISONS_NAME)
    adapters, damaged = _adapters(out / "adapters")
    modified = (out / RESULTS_NAME).stat().st_mtime
    return Contents(tuple(kept), differences, adapters, (*notes, *unread, *damaged), modified)


def last_records(records: Sequence[Record]) -> list[Record]:
    """The records that belong together: one model, and for each task one split and one set of test examples.

    Where a folder was used for several runs these are the last ones; of a unit the record written last counts.
    """
    model = _model(records[-1])
    own = [record for record in records if _model(record) == model]
    split = {record.task: record.split_hash for record in own}
    own = [record for record in own if record.split_hash == split[record.task]]
    n = {record.task: record.n for record in own if record.status == "ok"}
    own = [record for record in own if record.status != "ok" or record.n == n[record.task]]
    last = {unit_of(record): record.unit_hash for record in own}
    return [record for record in own if record.unit_hash == last[unit_of(record)]]


def unit_of(record: Record) -> tuple[str, str, int]:
    """Task, label of the method, seed."""
    return record.task, label_of(record), record.seed


def _model(record: Record) -> tuple[str, str]:
    return record.model_fingerprint, record.dtype


def _differences(path: Path) -> tuple[tuple[Row, ...], list[str]]:
    if not path.is_file():
        return (), []
    rows, n_damaged = read_rows(path)
    fit = tuple(row for row in rows if _is_difference(row))
    n_damaged += len(rows) - len(fit)
    return fit, [f"Damaged lines of {path.name} are left out: {n_damaged}."] if n_damaged else []


def _is_difference(row: Row) -> bool:
    texts = all(isinstance(row.get(key), str) for key in ("task", "first", "second"))
    ends = all(row.get(key) is None or _is_number(row[key]) for key in ("ci_low", "ci_high"))
    counts = all(isinstance(row.get(key), int) for key in ("n", "n_seeds"))
    return texts and ends and counts and row.get("metric") in METRICS and _is_number(row.get("value"))


def _is_number(value: object) -> bool:
    """A finite number of ordinary size, as scores and effects are."""
    return isinstance(value, int | float) and abs(value) < MAX_NUMBER


def read_rows(path: Path) -> tuple[list[Row], int]:
    """The JSON objects of a file with one a line, and how many lines hold something else.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}. Make it readable, or remove it.") from None
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, len(lines) - len(rows)


def _adapters(folder: Path) -> tuple[dict[str, Row], list[str]]:
    found, damaged = {}, []
    for path in sorted(folder.glob("*/adapter_config.json")):
        try:
            config = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            damaged.append(f"The configuration of the adapter {path.parent.name} cannot be read: {error}.")
            continue
        if isinstance(config, dict):
            found[path.parent.name] = config
    return found, damaged
