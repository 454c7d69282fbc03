"""Figures of what right answers cost: labelled examples, and seconds of asking."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from site_interp.experiments.summary import FLOORS, MEAN, Cell, Summary, label_of
from site_interp.experiments.tables import HEADLINE, footings
from site_interp.metrics import Metric
from site_interp.records import Record

METRICS: tuple[Metric, ...] = ("prefix_match", "first_token")


def split_budget(label: str) -> tuple[str, int | None]:
    """The label of a method without its budget of labelled examples, and the budget.

    Demonstrations are left out with it: within a budget there are as many as it leaves.

    Example:
        >>> split_budget("lora(labels=10,n_epochs=10)"), split_budget("icl(labels=10,n_shots=9)"), split_budget("site")
        (('lora(n_epochs=10)', 10), ('icl', 10), ('site', None))
    """
    name, _, settings = label.removesuffix(")").partition("(")
    parts = dict(part.split("=", 1) for part in settings.split(",") if part)
    if "labels" not in parts:
        return label, None
    budget = int(parts.pop("labels"))
    for fewer in ("n_shots", "n_examples"):
        parts.pop(fewer, None)
    return label_of(name, ",".join(f"{key}={value}" for key, value in parts.items())), budget


def make_tradeoffs(
    summary: Summary, records: Sequence[Record], seconds: Mapping[str, float] | None = None
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Accuracy against labels, where there are several budgets, and against the cost of a query.

    Scores are means over tasks, or those of the only one; methods without them are left out.

    Args:
        summary: Where the scores are.
        records: Of the same run.
        seconds: Of 1,000 queries, by the name of a method, where they were measured apart; by default those of the
            records.

    Returns:
        Name -> (figure, the numbers it was drawn from), for `save_figures`.
    """
    from site_interp.plots import accuracy_by_cost, accuracy_by_labels

    figures: dict[str, tuple[Any, dict[str, Any]]] = {}
    if not records:
        return figures
    model = records[0].model
    costs = {label: one.seconds_per_1000 for label, one in footings(summary, records).items() if one.prompt_tokens}
    if seconds is not None:
        costs = {label: seconds[name] for label in costs if (name := label.partition("(")[0]) in seconds}
    where = MEAN if len(summary.tasks) > 1 else summary.tasks[0]
    of_what = f"mean of {len(summary.tasks)} tasks" if where == MEAN else where
    for metric in METRICS:
        cells = [(m, c) for m in summary.methods if m not in FLOORS and (c := summary.cell(where, m, metric))]
        budgets = {split_budget(method)[1] for method, _ in cells} - {None}
        if len(budgets) > 1:
            rows = [_row(*split_budget(method), cell) for method, cell in cells]
            figures[f"accuracy_by_labels_{metric}"] = (
                accuracy_by_labels(rows, title=f"{model}, {of_what}", metric=_words(metric)),
                _numbers(metric, model, rows),
            )
        asked = [(method, cell) for method, cell in cells if method in costs]
        if len(asked) > 1:
            rows = [_row(method, costs[method], cell) for method, cell in asked]
            figures[f"accuracy_by_cost_{metric}"] = (
                accuracy_by_cost(rows, title=f"{model}, {of_what}", metric=_words(metric)),
                _numbers(metric, model, rows),
            )
    return figures


def _row(method: str, x: int | float | None, cell: Cell) -> Any:
    from site_interp.plots import TradeoffRow

    interval = cell.interval
    return TradeoffRow(method, x or 0, interval.value, interval.low, interval.high)


def _words(metric: Metric) -> str:
    return HEADLINE[metric].removesuffix(", %")


def _numbers(metric: Metric, model: str, rows: Sequence[Any]) -> dict[str, Any]:
    return {"metric": metric, "model": model, "rows": [asdict(row) for row in rows]}
