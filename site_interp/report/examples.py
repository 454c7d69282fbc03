"""What each method answered to each test example, from the predictions of a run."""

from pathlib import Path
from typing import Any

from site_interp.files import safe_name
from site_interp.metrics import METRICS
from site_interp.records import Record
from site_interp.report.contents import Contents, Row, label_of, read_rows, unit_of

NATS_DIGITS = 4  # behind the point, of a log-probability


def examples_of(out: Path, contents: Contents) -> list[dict[str, Any]]:
    """For each task its examples and the answers of every unit whose predictions fit its records.

    Returns:
        For each task `name`, `inputs`, `answers` [example], `units` (`method`, `seed`, `outputs` [example] and
        `scores` metric -> [example]) and `notes`, sentences on what is left out.

    Raises:
        UserError: A file of predictions cannot be read.
    """
    units: dict[tuple[str, str, int], list[Record]] = {}
    for record in contents.records:
        if record.status == "ok":
            units.setdefault(unit_of(record), []).append(record)
    tasks: dict[str, dict[str, Any]]
    tasks = {name: {"name": name, "inputs": [], "answers": [], "units": [], "notes": []} for name in contents.tasks}
    missing: dict[str, list[str]] = {}
    for (task, method, seed), records in units.items():
        path = _predictions_file(out, records[0])
        if path.is_file():
            _add_unit(tasks[task], records, path)
        else:
            missing.setdefault(task, []).append(f"{method}, seed {seed}")
    for task, lacking in missing.items():
        tasks[task]["notes"].append(f"No predictions were kept of {'; '.join(lacking)}.")
    return list(tasks.values())


def _add_unit(task: dict[str, Any], records: list[Record], path: Path) -> None:
    first = records[0]
    where = f"{label_of(first)}, seed {first.seed}"
    rows = read_rows(path)[0]
    if not _fits(rows, records):
        task["notes"].append(f"{where}: {path.name} is damaged or of another run.")
        return
    inputs, answers = [row["input"] for row in rows], [row["answers"] for row in rows]
    if not task["units"]:
        task["inputs"], task["answers"] = inputs, answers
    elif (task["inputs"], task["answers"]) != (inputs, answers):
        task["notes"].append(f"{where}: {path.name} has other examples than the file before it.")
        return
    scores = {record.metric: [_short(score) for score in record.scores or ()] for record in records}
    task["units"].append(
        {"method": label_of(first), "seed": first.seed, "outputs": [row["output"] for row in rows], "scores": scores}
    )


def _predictions_file(out: Path, record: Record) -> Path:
    """Where `save_predictions` wrote the texts of a unit."""
    parts = [record.task, record.method, *([record.variant] if record.variant else []), f"seed-{record.seed}"]
    return out / "predictions" / ("__".join(map(safe_name, parts)) + ".jsonl")


def _fits(rows: list[Row], records: list[Record]) -> bool:
    """Whether rows are texts and the very scores of the records."""
    texts = all(
        isinstance(row.get("input"), str)
        and isinstance(row.get("output"), str)
        and isinstance(row.get("answers"), list)
        and all(isinstance(answer, str) for answer in row["answers"])
        for row in rows
    )
    return texts and all(
        record.metric in METRICS and [row.get(record.metric) for row in rows] == list(record.scores or ())
        for record in records
    )


def _short(score: float) -> float | int:
    """A score in as few digits as the page needs."""
    return int(score) if score == int(score) else round(score, NATS_DIGITS)
