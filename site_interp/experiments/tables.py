"""A run as tables: methods side by side, with what each was given and what it cost, in Markdown and CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from site_interp.comparison import Interval
from site_interp.experiments.summary import MEAN, Summary, label_of
from site_interp.metrics import Metric
from site_interp.records import Record
from site_interp.store import write_atomically

HEADLINE: dict[Metric, str] = {
    "prefix_match": "prefix match, %",
    "strict_match": "strict match, %",
    "first_token": "first token right, %",
    "choice_match": "likeliest option right, %",
}
"""Metrics of the tables for reading; the CSV file has the log-probability as well."""
FOLDER = "tables"


@dataclass(frozen=True)
class Footing:
    """What one method was given and what it cost, over the tasks and seeds of a run.

    Args:
        method: Its label.
        n_done, n_missing: Units with scores, and units that are inapplicable or failed.
        labels: Fewest and most labelled examples used in a unit, validation included.
        n_parameters: Trained scalars, the most of a unit.
        prompt_tokens: Mean tokens of a prompt.
        added_tokens: The same, less those of zero-shot prompts on the same tasks; None where these were not run.
        fit_seconds: Mean over units.
        seconds_per_1000: Seconds of scoring for 1,000 queries, mean over units.
        peak_memory_mb: The most of a unit.
    """

    method: str
    n_done: int
    n_missing: int
    labels: tuple[int, int]
    n_parameters: int
    prompt_tokens: float
    added_tokens: float | None
    fit_seconds: float
    seconds_per_1000: float
    peak_memory_mb: float


def footings(summary: Summary, records: Sequence[Record]) -> dict[str, Footing]:
    """The footing of every method of a summary that has any scores, by its label.

    Args:
        summary: Its methods are asked for.
        records: Of the same run; other units are left out.
    """
    units: dict[str, dict[str, Record]] = {method: {} for method in summary.methods}
    for record in records:
        label = label_of(record.method, record.variant)
        if label in units and record.task in summary.tasks:
            units[label].setdefault(record.unit_hash, record)
    plain = _tokens_by_task(units.get("zero_shot", {}).values())
    found = {}
    for method, own in units.items():
        done = [record for record in own.values() if record.status == "ok"]
        if done:
            found[method] = _footing(method, done, len(own) - len(done), plain)
    return found


def _tokens_by_task(records: Iterable[Record]) -> dict[str, float]:
    return {r.task: float(r.n_prompt_tokens or 0) for r in records if r.status == "ok"}


def _footing(method: str, done: Sequence[Record], n_missing: int, plain: dict[str, float]) -> Footing:
    labels = [record.labels or 0 for record in done]
    added = [float(r.n_prompt_tokens or 0) - plain[r.task] for r in done if r.n_prompt_tokens and r.task in plain]
    return Footing(
        method=method,
        n_done=len(done),
        n_missing=n_missing,
        labels=(min(labels), max(labels)),
        n_parameters=max(record.n_parameters or 0 for record in done),
        prompt_tokens=_mean([float(record.n_prompt_tokens or 0) for record in done]),
        added_tokens=_mean(added) if len(added) == len(done) else None,
        fit_seconds=_mean([float(record.fit_seconds or 0) for record in done]),
        seconds_per_1000=_mean([1000 * float(record.eval_seconds or 0) / max(record.n, 1) for record in done]),
        peak_memory_mb=max(float(record.peak_memory_mb or 0) for record in done),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def shown_metrics(summary: Summary) -> dict[Metric, str]:
    """The headline metrics that the run has, with their words."""
    there = {cell.metric for cell in summary.cells}
    return {metric: words for metric, words in HEADLINE.items() if metric in there}


def overall_table(summary: Summary, records: Sequence[Record]) -> list[list[str]]:
    """A heading and a line for each method: its score over all tasks, what it was given and what it cost.

    A method without scores on every task has no mean; the line says on how many tasks it ran.
    """
    metrics = shown_metrics(summary)
    where = MEAN if len(summary.tasks) > 1 else summary.tasks[0]
    given = footings(summary, records)
    heading = [
        "method", *metrics.values(), "tasks", "labels", "trained parameters", "added prompt tokens", "fitting, s",
        "s per 1,000 queries", "peak memory, MB",
    ]  # fmt: skip
    lines = [heading]
    for method in summary.methods:
        cells = [summary.cell(where, method, metric) for metric in metrics]
        n_tasks = sum(any(c.task == task and c.method == method for c in summary.cells) for task in summary.tasks)
        scores = [percent(cell.interval) if cell else "–" for cell in cells]
        tasks = f"{n_tasks} of {len(summary.tasks)}"
        lines.append([method, *scores, tasks, *(_footing_cells(given[method]) if method in given else ["–"] * 6)])
    return lines


def _footing_cells(footing: Footing) -> list[str]:
    low, high = footing.labels
    return [
        str(low) if low == high else f"{low}–{high}",
        f"{footing.n_parameters:,}",
        "–" if footing.added_tokens is None else f"{footing.added_tokens:+.0f}".replace("+0", "0").replace("-0", "0"),
        f"{footing.fit_seconds:.1f}",
        f"{footing.seconds_per_1000:.1f}",
        f"{footing.peak_memory_mb:,.0f}",
    ]


def task_table(summary: Summary, metric: Metric, chances: dict[str, float] | None = None) -> list[list[str]]:
    """A heading, and a line of every method's score for each task, with the mean where a method has every task.

    Args:
        summary: Where the scores are.
        metric: Which score.
        chances: Of tasks of multiple choice, the share a blind choice gets right: a column of its own.
    """
    known = dict(chances or {})
    extra = ["chance"] if known else []
    lines = [["task", *extra, *summary.methods]]
    for task in (*summary.tasks, *([MEAN] if len(summary.tasks) > 1 else [])):
        cells = [cell_text(summary, task, method, metric) for method in summary.methods]
        if task == MEAN and set(cells) == {"–"}:
            continue
        chance = known.get(task) if task != MEAN else _mean(list(known.values())) if known else None
        lines.append([task, *([f"{100 * chance:.1f}" if chance is not None else "–"] if known else []), *cells])
    return lines


def cell_text(summary: Summary, task: str, method: str, metric: Metric) -> str:
    """A score with its interval in percent, `inapplicable` or `failed`, or a dash where nothing was run."""
    cell = summary.cell(task, method, metric)
    if cell is not None:
        return percent(cell.interval)
    return summary.missing.get((task, method), "–").split(":")[0]


def difference_table(summary: Summary, reference: str | None = None, metrics: Sequence[Metric] = ()) -> list[list[str]]:
    """Paired differences of the mean over tasks, or of the only task, with corrected p-values.

    Args:
        summary: Where they are.
        reference: Only pairs with this method; by default every pair.
        metrics: By default prefix match and first token.
    """
    wanted = [d for d in summary.differences if d.metric in (metrics or ("prefix_match", "first_token"))]
    last = MEAN if any(d.task == MEAN for d in wanted) else (summary.tasks[0] if summary.tasks else MEAN)
    shown = [d for d in wanted if d.task == last and reference in (None, d.first, d.second)]
    counts = ["won-tied-lost"] if last == MEAN else []
    lines = [["difference", "metric", "points", "p (Holm)", *counts, "seeds"]]
    for d in shown:
        p_value = "–" if d.p_corrected != d.p_corrected else f"{d.p_corrected:.1g}"
        won = [f"{d.wins}-{d.ties}-{d.losses}"] if last == MEAN else []
        name = f"{d.first} - {d.second}"
        lines.append([name, d.metric, percent(d.interval, sign=True), p_value, *won, str(d.n_seeds)])
    return lines


def percent(interval: Interval, *, sign: bool = False) -> str:
    """An interval in percent.

    Example:
        >>> percent(Interval(0.5, 0.25, 0.75, 10))
        '50.0 [25.0, 75.0]'
    """
    form = "+.1f" if sign else ".1f"
    value = f"{100 * interval.value:{form}}"
    if interval.low != interval.low:
        return value
    return f"{value} [{100 * interval.low:{form}}, {100 * interval.high:{form}}]"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first line is the heading, numbers stand right.

    Example:
        >>> print(markdown([["task", "icl"], ["a|b", "50.0"]]))
        | task | icl |
        |---|--:|
        | a\\|b | 50.0 |
    """
    rule = "|" + "|".join(["---", *["--:"] * (len(lines[0]) - 1)]) + "|"
    heading, *body = ("| " + " | ".join(map(_escaped, line)) + " |" for line in lines)
    return "\n".join([heading, rule, *body])


def _escaped(text: str) -> str:
    """Text that stays one cell, and plain: task names may come from anyone."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    for letter, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("`", "'"), ("](", "]\\("), ("*", "\\*")):
        plain = plain.replace(letter, written)
    return plain


def write_tables(
    out: Path, summary: Summary, records: Sequence[Record], model: str, chances: dict[str, float] | None = None
) -> Path:
    """Write `tables/tables.md`, `scores.csv`, `costs.csv` and `differences.csv` of a run.

    Returns:
        The folder.

    Raises:
        UserError: It cannot be written.
    """
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"# {_escaped(model)}", "Percent with 95 % intervals; costs are means over tasks and seeds.", "## Methods"]
    parts.append(markdown(overall_table(summary, records)))
    for metric, words in shown_metrics(summary).items():
        choice = chances if metric == "choice_match" else None
        parts += [f"## {words[0].upper()}{words[1:]}", markdown(task_table(summary, metric, choice))]
    if len(differences := difference_table(summary)) > 1:
        parts += ["## Paired differences", markdown(differences)]
    if summary.missing:
        lines = [["task", "method", "reason"], *([task, m, why] for (task, m), why in summary.missing.items())]
        parts += ["## Without scores", markdown(lines)]
    write_atomically(folder / "tables.md", ("\n\n".join(parts) + "\n").encode())
    write_atomically(folder / "scores.csv", _csv(_score_rows(summary)))
    costs = [vars(footing) for footing in footings(summary, records).values()]
    rows = [[*costs[0]], *([_plain(value) for value in cost.values()] for cost in costs)] if costs else [["method"]]
    write_atomically(folder / "costs.csv", _csv(rows))
    write_atomically(folder / "differences.csv", _csv(_difference_rows(summary)))
    return folder


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _score_rows(summary: Summary) -> list[list[str]]:
    lines = [["task", "method", "metric", "value", "ci_low", "ci_high", "n", "n_seeds", "status"]]
    for cell in summary.cells:
        i = cell.interval
        numbers = [f"{v:.6g}" if v == v else "" for v in (i.value, i.low, i.high)]
        lines.append([cell.task, cell.method, cell.metric, *numbers, str(i.n), str(cell.n_seeds), "ok"])
    lines += [[task, method, "", "", "", "", "", "", why] for (task, method), why in summary.missing.items()]
    return lines


def _difference_rows(summary: Summary) -> list[list[str]]:
    names = ["value", "ci_low", "ci_high", "p_value", "p_corrected"]
    lines = [["task", "first", "second", "metric", *names, "n_seeds", "wins", "ties", "losses"]]
    for d in summary.differences:
        numbers = (d.interval.value, d.interval.low, d.interval.high, d.p_value, d.p_corrected)
        counts = map(str, (d.n_seeds, d.wins, d.ties, d.losses))
        lines.append([d.task, d.first, d.second, d.metric, *(f"{v:.6g}" if v == v else "" for v in numbers), *counts])
    return lines


FORMULA = ("=", "+", "-", "@")  # a cell that begins so is a formula to a spreadsheet


def _csv(lines: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[_cell(value) for value in line] for line in lines])
    return text.getvalue().encode()


def _cell(value: str) -> str:
    """A cell no spreadsheet computes; numbers stay numbers."""
    return f"'{value}" if value.startswith(FORMULA) and not _is_number(value) else value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
