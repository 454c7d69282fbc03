"""How often each method is right on each task."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from site_interp.plots.style import FLOOR_DASHES, finished, label_height, method_colour, panels, task_labels

TASKS_PER_ROW = 13  # at most: twelve and their mean
GROUP_WIDTH = 0.8  # share of a task's room that its bars fill


@dataclass(frozen=True)
class AccuracyRow:
    """The score of one method on one task, seeds already averaged.

    Args:
        task, method: Names; `method` chooses the colour.
        value: Share of right answers, 0 to 1.
        low, high: Its interval, in the same unit; nan or None where unknown.
    """

    task: str
    method: str
    value: int | float
    low: int | float | None = None
    high: int | float | None = None


def accuracy_bars(
    rows: Sequence[AccuracyRow],
    *,
    title: str | None = None,
    metric: str = "right answers",
    colours: Mapping[str, str] | None = None,
) -> go.Figure:
    """Bars of the share of right answers per task and method, in percent, with their intervals.

    Tasks and methods keep the order in which they first appear. The floors (echo, majority) are marks, not bars.

    Args:
        rows: One per task and method.
        title: Heading.
        metric: What counts as right, for the axis.
        colours: Of bars that stand for something else than methods.

    Raises:
        ValueError: No rows, a task and method twice, or a value outside [0, 1].
    """
    tasks = list(dict.fromkeys(row.task for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows))
    _check_rows(rows)
    barred = [method for method in methods if method not in FLOOR_DASHES]
    lined = [method for method in methods if method in FLOOR_DASHES]
    source, labels = task_labels(tasks)
    slanted = len(tasks) > 5
    room = label_height(labels) if slanted else 25
    n_panels = math.ceil(len(tasks) / TASKS_PER_ROW)
    per_row = math.ceil(len(tasks) / n_panels)
    left = max(70, 6 * max(map(len, labels[::per_row])) - 25) if slanted else 70
    figure, plot_height = panels(n_panels, 1, panel_height=240 if n_panels > 1 else 320, gap=room + 15)
    named: set[str] = set()
    for panel in range(n_panels):
        part = slice(panel * per_row, (panel + 1) * per_row)
        shown, place = tasks[part], {"row": panel + 1, "col": 1}
        for method in barred + lined:
            own = [row for row in rows if row.method == method and row.task in shown]
            places = [float(shown.index(row.task)) for row in own]
            trace = (
                _floor_lines(own, places, method)
                if method in lined
                else _bars(own, places, method, barred, (colours or {}).get(method, method_colour(method)))
            )
            figure.add_trace(trace.update(legendgroup=method, showlegend=bool(own) and method not in named), **place)
            named |= {method} if own else set()
        figure.update_xaxes(tickvals=list(range(len(shown))), ticktext=labels[part], **place)
    finished(figure, title, plot_height=plot_height, bottom=room + 30, left=left, n_legend=len(methods))
    figure.update_xaxes(
        range=[-0.5, per_row - 0.5],
        tickangle=-35 if slanted else 0,
        ticklabeloverflow="allow",
        showgrid=False,
        zeroline=False,
    )
    figure.update_xaxes(title_text=f"task ({source})" if source else "task", row=n_panels, col=1)
    figure.update_yaxes(title_text=f"{html.escape(metric)} (%)", range=[0, 102], dtick=20, zeroline=False)
    return figure


def _bars(
    rows: Sequence[AccuracyRow], places: Sequence[float], method: str, barred: Sequence[str], colour: str
) -> go.Bar:
    """The bars of one method, side by side with those of the others in `barred`."""
    width = GROUP_WIDTH / len(barred)
    shift = (barred.index(method) - (len(barred) - 1) / 2) * width
    reaches = [_reaches(row) for row in rows]
    error_y = {
        "type": "data",
        "arrayminus": [down for down, _ in reaches],
        "array": [up for _, up in reaches],
        "color": "#222222",
        "thickness": 1.2,
        "width": min(3.0, 9 / len(barred)),
    }
    return go.Bar(
        x=[place + shift for place in places],
        y=[100 * row.value for row in rows],
        width=0.92 * width,
        name=html.escape(method),
        marker={"color": colour, "line": {"color": colour, "width": 1.5}},
        error_y=error_y,
        customdata=[_hover(row) for row in rows],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _floor_lines(rows: Sequence[AccuracyRow], places: Sequence[float], method: str) -> go.Scatter:
    """A line across the room of each task at the height of a floor."""
    half = GROUP_WIDTH / 2 + 0.04
    return go.Scatter(
        x=[x for place in places for x in (place - half, place + half, None)],
        y=[y for row in rows for y in (100 * row.value, 100 * row.value, None)],
        mode="lines",
        line={"color": method_colour(method), "dash": FLOOR_DASHES[method], "width": 2},
        name=html.escape(method),
        customdata=[text for row in rows for text in (_hover(row), _hover(row), None)],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _reaches(row: AccuracyRow) -> tuple[float | None, float | None]:
    """How far the interval reaches below and above the value, in percent; None where it is unknown."""
    if row.low is None or row.high is None or not math.isfinite(row.low + row.high):
        return None, None
    return 100 * (row.value - row.low), 100 * (row.high - row.value)


def _hover(row: AccuracyRow) -> str:
    """What the pointer shows: task, method, value and interval."""
    text = f"{html.escape(row.task)}, {html.escape(row.method)}: {100 * row.value:.1f} %"
    down, up = _reaches(row)
    if down is None or up is None:
        return text
    return f"{text} [{100 * row.value - down:.1f}, {100 * row.value + up:.1f}]"


def _check_rows(rows: Sequence[AccuracyRow]) -> None:
    if not rows:
        raise ValueError("Cannot draw accuracy bars: there are no rows. Give at least one task and method.")
    if len({(row.task, row.method) for row in rows}) != len(rows):
        raise ValueError("Cannot draw accuracy bars: a task and method stand twice. Average the seeds first.")
    if not all(0 <= row.value <= 1 for row in rows):
        raise ValueError("Cannot draw accuracy bars: a value is nan or outside [0, 1]. Pass shares, not percent.")
