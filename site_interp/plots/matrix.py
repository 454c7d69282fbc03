"""One number for each pair of tasks."""

import html
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from site_interp.plots.dendrogram import Joint, dendrogram_joints
from site_interp.plots.style import (
    BAR_GAP,
    CELL_EDGE,
    LINE_COLOUR,
    PALE_COLOURS,
    PALE_DIVERGING_COLOURS,
    WIDTH,
    as_array,
    finished,
    label_height,
    label_size,
    task_labels,
)

CELL, LARGE_CELL, FEW = 70.0, 105.0, 5  # pixels along the side of a cell where there is room; up to FEW columns
RIGHT, BAR_LINE = 95, 18  # pixels for the colour bar, for each line of its title after the first
BAR_CHARACTERS = 6  # of that title beside a row of cells
DENDROGRAM_HEIGHT, DENDROGRAM_GAP = 80, 6


def task_matrix(
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    row_title: str,
    column_title: str,
    label: str,
    low: int | float = 0,
    high: int | float = 1,
    diverging: bool = False,
    order: Sequence[int] | None = None,
    merges: Any = None,
    title: str | None = None,
) -> go.Figure:
    """A heat map of tasks by tasks with the number in each cell, and a dendrogram over it where merges are given.

    Args:
        values: Numbers [row column]; an array, nested lists, or a tensor. nan or None where unknown: a grey cell.
        rows, columns: Tasks.
        row_title, column_title: What the tasks of each axis are, for example source and target.
        label: What the numbers are.
        low, high: Ends of the colour scale; numbers beyond them have the colour of the end.
        diverging: Whether 0 is white and the scale as long to both sides.
        order: Places of the tasks from left to right and from top to bottom, for a square matrix; as given by default.
        merges: scipy's linkage matrix of the tasks, in the numbers that stand in `order`.
        title: Heading.

    Raises:
        ValueError: Names that do not fit the values, no cell, a scale of no length, or an order that is none.
    """
    numbers = as_array(values)
    if numbers.ndim != 2 or not numbers.size or numbers.shape != (len(rows), len(columns)):
        raise ValueError(
            f"Cannot draw a task matrix: values of shape {numbers.shape} do not fit {len(rows)} rows and "
            f"{len(columns)} columns. Give one number for each pair of names."
        )
    if not low < high:
        raise ValueError(f"Cannot draw a task matrix on a scale from {low} to {high}. Let low be below high.")
    down, across = _places(order, len(rows)), _places(order, len(columns))
    shown_rows, shown_columns = [rows[place] for place in down], [columns[place] for place in across]
    heat = _cells(numbers[np.ix_(down, across)], shown_rows, shown_columns, (row_title, column_title, label))
    if diverging:
        high = max(abs(low), abs(high))
        low = -high
    heat.update(zmin=low, zmax=high, colorscale=PALE_DIVERGING_COLOURS if diverging else PALE_COLOURS)
    joints = [] if merges is None else dendrogram_joints(merges, across)
    (row_source, row_labels), (column_source, column_labels) = task_labels(shown_rows), task_labels(shown_columns)
    figure = _framed(heat, row_labels, column_labels, joints, title=title)
    figure.update_xaxes(title_text=html.escape(column_title) + (f" ({column_source})" if column_source else ""))
    down_title = html.escape(row_title) + (f" ({row_source})" if row_source else "")
    room = float(heat.colorbar.len)  # the height of the cells: a longer title would be cut at their end
    figure.layout.yaxis.title = {"text": down_title, "font": {"size": min(14, 1.9 * room / len(down_title))}}
    return figure


def _places(order: Sequence[int] | None, n: int) -> list[int]:
    """Places of n tasks as they are drawn."""
    if order is not None and sorted(order) != list(range(n)):
        raise ValueError(f"Cannot order {n} tasks: the order must name each place from 0 to {n - 1} once.")
    return list(range(n)) if order is None else list(order)


def _cells(
    numbers: npt.NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], texts: tuple[str, str, str]
) -> go.Heatmap:
    """Coloured cells with their numbers; `texts` are the titles of rows and columns and the meaning of the numbers."""
    row_title, column_title, label = map(html.escape, texts)
    # A line of text longer than the bar would be cut.
    bar_title = textwrap.wrap(texts[2], max(2, len(rows)) * BAR_CHARACTERS)
    shown = [[f"{value:z.2f}" if math.isfinite(value) else "" for value in row] for row in numbers.tolist()]
    hover = [
        [
            f"{row_title}: {html.escape(row)}<br>{column_title}: {html.escape(column)}<br>{label}: {text or 'unknown'}"
            for column, text in zip(columns, line, strict=True)
        ]
        for row, line in zip(rows, shown, strict=True)
    ]
    return go.Heatmap(
        z=[[value if math.isfinite(value) else None for value in row] for row in numbers.tolist()],
        text=shown,
        texttemplate="%{text}",
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=True,
        xgap=1,
        ygap=1,
        colorbar={
            "title": {"text": "<br>".join(map(html.escape, bar_title)), "side": "right"},
            "thickness": 14,
            "lenmode": "pixels",
            "y": 0,
            "yanchor": "bottom",
            "ypad": 0,
            "ticksuffix": BAR_GAP,
        },
    )


def _framed(
    heat: go.Heatmap,
    rows: Sequence[str],
    columns: Sequence[str],
    joints: Sequence[Joint],
    *,
    title: str | None,
) -> go.Figure:
    """Square cells with their labels at the left and below, the dendrogram above, and the colour bar at the right."""
    left = 55 + round(7 * max(map(len, rows)))
    right = RIGHT + BAR_LINE * heat.colorbar.title.text.count("<br>")
    room = WIDTH - left - right
    cell = min(LARGE_CELL if len(columns) <= FEW else CELL, room / len(columns))
    height = round(cell * len(rows))
    above = DENDROGRAM_GAP + DENDROGRAM_HEIGHT if joints else 0
    share = cell * len(columns) / room  # of the width
    heat.update(
        textfont={"size": max(7.0, min(13.0, 0.27 * cell)), "color": "#111111"}, colorbar={"x": share, "len": height}
    )
    bottom = label_height(columns) + 42
    figure = finished(go.Figure(heat), title, plot_height=height + above, bottom=bottom, left=left, right=right)
    across, down = [-0.5, len(columns) - 0.5], [len(rows) - 0.5, -0.5]
    slanted = {"tickangle": -35, "ticklabeloverflow": "allow"}
    size = {"tickfont": {"size": label_size(cell)}, "automargin": False}  # the margins above have room
    figure.update_layout(
        xaxis={"domain": [0, share], "range": across, **slanted, **size, **_ticks(columns)},
        yaxis={"domain": [0, height / (height + above)], "range": down, **size, **_ticks(rows)},
    )
    # Grey behind the cells: between them, and where a number is unknown.
    ends = {"x0": across[0], "x1": across[1], "y0": down[1], "y1": down[0]}
    figure.add_shape(type="rect", fillcolor=CELL_EDGE, line_width=0, layer="below", **ends)
    if joints:
        _add_dendrogram(figure, joints, bottom=(height + DENDROGRAM_GAP) / (height + above))
    return figure


def _ticks(labels: Sequence[str]) -> dict[str, Any]:
    """An axis with a label at 0, 1, ..."""
    places = list(range(len(labels)))
    return {"tickvals": places, "ticktext": labels, "showgrid": False, "zeroline": False, "ticklabelstandoff": 4}


def _add_dendrogram(figure: go.Figure, joints: Sequence[Joint], *, bottom: float) -> None:
    """Lines over the columns, on a distance axis of their own that begins at the share `bottom` of the height."""
    figure.add_trace(
        go.Scatter(
            x=[x for joint in joints for x in (*np.repeat(joint.places, 2).tolist(), None)],
            y=[y for joint in joints for y in (joint.feet[0], joint.height, joint.height, joint.feet[1], None)],
            yaxis="y2",
            mode="lines",
            line={"color": LINE_COLOUR, "width": 1.5},
            customdata=[f"joined at distance {joint.height:.2f}" for joint in joints for _ in range(5)],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    figure.update_layout(
        yaxis2={
            "domain": [bottom, 1],
            "anchor": "x",
            "range": [0, 1.05 * (max(joint.height for joint in joints) or 1)],
            "title": {"text": "1 − similarity", "font": {"size": 12}},
            "tickfont": {"size": 11},
            "nticks": 4,
            "showgrid": False,
            "zeroline": False,
        }
    )
