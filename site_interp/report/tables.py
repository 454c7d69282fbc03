"""Scores of every task and method, and paired differences, as tables of the page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from site_interp.comparison import Interval, nested_mean
from site_interp.metrics import Metric
from site_interp.records import Record
from site_interp.report.contents import FLOORS, Contents, Row, label_of
from site_interp.report.markup import Html, grid, joined, tag

UNBROKEN = "\u00a0"  # a space at which no line ends
MEAN = "mean"  # name of the row over all tasks, here and in comparisons.jsonl
METRIC_WORDS: Mapping[Metric, str] = {
    "prefix_match": "prefix match, % (the official score)",
    "strict_match": "strict match, %",
    "first_token": "first token right, %",
    "choice_match": "likeliest option right, %",
    "answer_log_prob": "log-probability of the answer, nats",
}
COSTS: Mapping[str, str] = {
    "seed": "seed",
    "n": "n",
    "labels": "labels",
    "trained parameters": "n_parameters",
    "prompt tokens": "n_prompt_tokens",
    "fitting, s": "fit_seconds",
    "scoring, s": "eval_seconds",
    "peak memory, MB": "peak_memory_mb",
}
"""Heading of the table of costs -> field of the record."""


@dataclass(frozen=True)
class Cell:
    """A mean over seeds and examples with its interval, and under it what it rests on."""

    interval: Interval
    note: str


def score_tables(contents: Contents) -> Html:
    """A table of tasks x methods for each metric, and the reasons of units without scores."""
    return joined(_score_table(contents, metric) for metric in _metrics(contents))


def _metrics(contents: Contents) -> list[Metric]:
    known = {record.metric for record in contents.records}
    return [metric for metric in METRIC_WORDS if metric in known]


def metric_choice(contents: Contents) -> Html:
    """Radio buttons, one for each metric that the run has."""
    metrics = _metrics(contents)
    buttons = [
        tag("label", Html(f'<input type="radio" name="metric" value="{metric}"{" checked" if place == 0 else ""}>'),
            METRIC_WORDS[metric])
        for place, metric in enumerate(metrics)
    ]  # fmt: skip
    return tag("fieldset", tag("legend", "Metric"), *buttons, _class="choice") if metrics else Html("")


def _score_table(contents: Contents, metric: Metric) -> Html:
    cells = cells_of(contents, metric)
    heading: list[str | Html] = ["task", *map(_method_heading, contents.methods)]
    rows = [
        [
            tag("th", task, scope="row"),
            *(_score_cell(contents, cells, (task, method), metric) for method in contents.methods),
        ]
        for task in (*contents.tasks, MEAN)
        if task != MEAN or any((MEAN, method) in cells for method in contents.methods)
    ]
    return _metric_block(metric, grid(heading, rows, f"{METRIC_WORDS[metric]}, with 95 % intervals"), "scores")


def _method_heading(method: str) -> Html:
    name, _, variant = method.partition("(")
    kind = " (floor)" if name in FLOORS else ""
    settings = [tag("small", f"({variant}")] if variant else []
    return joined([tag("span", "", _class="swatch", data_method=name), f"{name}{kind}", *settings])


def _metric_block(metric: str, content: Html, kind: str) -> Html:
    return tag("div", content, _class=f"by-metric {kind}", data_metric=metric)


def cells_of(contents: Contents, metric: Metric) -> dict[tuple[str, str], Cell]:
    """The cell of each (task, method) with scores, and of (mean, method) where a method has every task."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in contents.records:
        if record.metric == metric:
            groups.setdefault((record.task, label_of(record)), []).append(record)
    cells = {
        (task, method): Cell(nested_mean({task: _scores(group)}), _note(group))
        for (task, method), group in groups.items()
    }
    for method in contents.methods:
        own = {task: groups[task, method] for task in contents.tasks if (task, method) in groups}
        if len(own) == len(contents.tasks) > 1:
            rows = {task: _scores(group) for task, group in own.items()}
            cells[MEAN, method] = Cell(nested_mean(rows), f"{len(own)} tasks")
    return cells


def _scores(records: Iterable[Record]) -> list[tuple[float, ...]]:
    return [record.scores for record in records if record.scores is not None]


def _note(records: Sequence[Record]) -> str:
    """n, seeds and labels of a cell."""
    labels = sorted({record.labels for record in records if record.labels is not None})
    parts = [f"n {records[0].n}", seed_words([record.seed for record in records])]
    if labels:
        parts.append(f"labels {labels[0]}" + (f"–{labels[-1]}" if len(labels) > 1 else ""))
    return ", ".join(part.replace(" ", UNBROKEN) for part in parts)


def seed_words(seeds: Sequence[int]) -> str:
    """Seeds in words.

    Example:
        >>> seed_words([0]), seed_words([2, 0, 1]), seed_words([0, 2])
        ('seed 0', 'seeds 0–2', 'seeds 0, 2')
    """
    ordered = sorted(seeds)
    if len(ordered) == 1:
        return f"seed {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"seeds {ordered[0]}–{ordered[-1]}"
    return "seeds " + ", ".join(map(str, ordered))


def _score_cell(contents: Contents, cells: dict[tuple[str, str], Cell], place: tuple[str, str], metric: Metric) -> Html:
    missing = [r for r in contents.records if (r.task, label_of(r)) == place and r.status != "ok"]
    lacking = [tag("small", f"{r.status}: seed {r.seed}", _class="missing") for r in missing]
    if place not in cells:
        return tag("td", *(lacking or [tag("span", "–", _class="none")]))
    cell = cells[place]
    return tag("td", interval_text(cell.interval, metric), tag("small", cell.note), *lacking)


def interval_text(interval: Interval, metric: str, *, sign: bool = False) -> Html:
    """A value with its interval, in percent, or in nats for the log-probability."""
    scale, form = (1, "+.2f" if sign else ".2f") if metric == "answer_log_prob" else (100, "+.1f" if sign else ".1f")
    value = tag("b", f"{scale * interval.value:{form}}".replace("-", "−"))
    if interval.low != interval.low:
        return value
    ends = ", ".join(f"{scale * end:{form}}" for end in (interval.low, interval.high)).replace("-", "−")
    return joined([value, " ", tag("span", f"[{ends}]", _class="interval")])


def missing_table(contents: Contents) -> Html:
    """The units without scores, with their reasons; nothing where there are none."""
    missing = [record for record in contents.records if record.status != "ok"]
    if not missing:
        return Html("")
    rows = [
        [tag("th", r.task, scope="row"), *(tag("td", text) for text in (label_of(r), str(r.seed), r.status, r.reason))]
        for r in missing
    ]
    return grid(["task", "method", "seed", "status", "reason"], rows, "Units without scores")


def difference_tables(contents: Contents) -> Html:
    """A table of tasks x pairs of methods for each metric, from the rows that the run wrote."""
    if not contents.differences:
        return tag("p", "The run has no paired differences: they are written at its end, for two methods or more.")
    metrics = [metric for metric in METRIC_WORDS if any(row["metric"] == metric for row in contents.differences)]
    return joined(
        _difference_table([row for row in contents.differences if row["metric"] == metric], metric)
        for metric in metrics
    )


def _difference_table(rows: Sequence[Row], metric: Metric) -> Html:
    pairs = list(dict.fromkeys((row["first"], row["second"]) for row in rows))
    tasks = [task for task in dict.fromkeys(row["task"] for row in rows) if task != MEAN] + [MEAN]
    found = {(row["task"], row["first"], row["second"]): row for row in rows}
    lines = [
        [tag("th", task, scope="row"), *(_difference_cell(found.get((task, *pair)), metric) for pair in pairs)]
        for task in tasks
        if any((task, *pair) in found for pair in pairs)
    ]
    heading = ["task", *(f"{first} − {second}" for first, second in pairs)]
    words = METRIC_WORDS[metric].replace("%", "points")
    return _metric_block(metric, grid(heading, lines, f"{words}, paired difference"), "differences")


def _difference_cell(row: Row | None, metric: Metric) -> Html:
    if row is None:
        return tag("td", tag("span", "–", _class="none"))
    low, high = (float("nan") if row[key] is None else float(row[key]) for key in ("ci_low", "ci_high"))
    interval = Interval(float(row["value"]), low, high, row["n"])
    note = f"{'tasks' if row['task'] == MEAN else 'n'} {row['n']}, seeds {row['n_seeds']}"
    clear = "clear" if low > 0 or high < 0 else "open"
    return tag("td", interval_text(interval, metric, sign=True), tag("small", note), _class=clear)


def cost_table(contents: Contents) -> Html:
    """One row for each scored unit: what it was given and what it cost."""
    units = {record.unit_hash: record for record in contents.records if record.status == "ok"}
    heading = ["task", "method", *COSTS]
    rows = [
        [
            tag("th", record.task, scope="row"),
            tag("td", label_of(record)),
            *(tag("td", _number(getattr(record, name))) for name in COSTS.values()),
        ]
        for record in units.values()
    ]
    return grid(heading, rows, "What each unit was given and what it cost")


def _number(value: float | int | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.1f}"
