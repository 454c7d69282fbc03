"""Numbers with their intervals, side by side."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from site_interp.plots.style import (
    FONT,
    LABEL_LENGTH,
    LINE_COLOUR,
    METHOD_COLOURS,
    WIDTH,
    as_array,
    finished,
    label_edge,
    label_height,
    label_size,
    task_labels,
    value_text,
)

EVEN_NAMES = 5  # more of them stand slanted
EVEN_ROOM = 104  # characters of all labels in one line


def interval_bars(
    values: Any,
    lows: Any,
    highs: Any,
    names: Sequence[str],
    *,
    colours: Sequence[str] | None = None,
    ylabel: str,
    chance: int | float | None = None,
    title: str | None = None,
) -> go.Figure:
    """A bar for each number, with its interval.

    Args:
        values: Numbers, any unit.
        lows, highs: Their intervals; nan or None where unknown.
        names: What each bar is.
        colours: Of the bars; one for all by default.
        ylabel: What the numbers are, with their unit.
        chance: What chance would give: a dotted line.
        title: Heading.

    Raises:
        ValueError: No values, parts of different number, or a value that is not finite.
    """
    bars, bounds = as_array(values), (as_array(lows), as_array(highs))
    parts = [len(names), *(bound.size for bound in bounds), len(names if colours is None else colours)]
    if not bars.size or set(parts) != {bars.size}:
        raise ValueError(f"Cannot draw {bars.size} bars: give at least one, and names, bounds and colours for each.")
    if not np.isfinite(bars).all():
        raise ValueError("Cannot draw bars: a value is not finite. Leave it out.")
    trace = _bars(bars, bounds, names)
    trace.marker.color = METHOD_COLOURS["site"] if colours is None else list(colours)
    slanted = len(names) > EVEN_NAMES
    source, labels = task_labels(names, LABEL_LENGTH if slanted else EVEN_ROOM // len(names))
    below = 30 + (label_height(labels) if slanted else 25)
    left = max(70, 6 * len(labels[0]) - 25) if slanted else 70
    right = 20 if chance is None else 100
    figure = finished(go.Figure(trace), title, plot_height=300, bottom=below, left=left, right=right)
    figure.update_xaxes(
        title_text=f"task ({source})" if source else None,
        tickvals=list(range(bars.size)),
        ticktext=labels,
        tickangle=-35 if slanted else 0,
        ticklabeloverflow="allow",
        tickfont={"size": label_size((WIDTH - left - right) / bars.size) if slanted else FONT["size"]},
        range=[-0.5, bars.size - 0.5],
        showgrid=False,
        zeroline=False,
    )
    ends = np.concatenate([[0.0 if chance is None else chance], bars, *bounds])
    low, high = min(0.0, float(np.nanmin(ends))), max(0.0, float(np.nanmax(ends)))
    pad = 0.06 * ((high - low) or 1.0)
    figure.update_yaxes(range=[low - pad * (low < 0), high + pad], title_text=html.escape(ylabel))
    figure.update_yaxes(zeroline=True, zerolinecolor=LINE_COLOUR, zerolinewidth=1)
    if chance is not None:
        figure.add_hline(y=chance, line={"color": LINE_COLOUR, "dash": "dot", "width": 1.6})
        label_edge(figure, f"chance {chance:.2f}", chance)
    return figure


def _bars(
    bars: npt.NDArray[np.float64], bounds: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]], names: Sequence[str]
) -> go.Bar:
    """The bars at 0, 1, ... with their intervals where both bounds are known."""
    lows, highs = (np.where(np.isfinite(bounds[0] + bounds[1]), bound, np.nan) for bound in bounds)
    return go.Bar(
        x=list(range(bars.size)),
        y=bars,
        width=0.7,
        error_y={
            "type": "data",
            "arrayminus": bars - lows,
            "array": highs - bars,
            "color": "#222222",
            "thickness": 1.2,
            "width": 3,
        },
        customdata=[
            f"{html.escape(name)}: {value_text(*numbers)}"
            for name, *numbers in zip(names, bars.tolist(), lows.tolist(), highs.tolist(), strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
