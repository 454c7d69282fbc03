"""The parts of a patching curve: lines, bands and references, and the traces that show them."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from site_interp.plots.style import LINE_COLOUR, RANKING_COLOURS, as_array, ranking_colour, value_text

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
REFERENCE_DASHES = ("dash", "dot", "dashdot", "longdash")
SHARE_RANGE = (-2, 102)
FULL_BANDS = ("top alpha", "bottom alpha")
TICKS = (0, 10, 30, 50, 70, 100)  # shares named under the axis, with their number of heads
BEHIND_RANK = 1001  # place in the legend: after everything that states none


@dataclass(frozen=True)
class CurveLine:
    """Scores of one order of heads, as arrays, lists or tensors of one length.

    Args:
        name: The order; it chooses the colour (`RANKING_COLOURS`).
        shares: Heads in the set, in percent of all.
        ks: Heads in the set.
        values: Scores.
        lows, highs: Their intervals; nan where unknown.
    """

    name: str
    shares: Any
    ks: Any
    values: Any
    lows: Any
    highs: Any


@dataclass(frozen=True)
class CurveBand:
    """Scores of random sets of heads, as arrays, lists or tensors of one length.

    Args:
        name: The order, usually `random`.
        shares: Heads in each set, in percent of all.
        means: Mean score over the draws.
        lows, highs: The range that most draws lie in.
        n_draws: Sets drawn for each share.
    """

    name: str
    shares: Any
    means: Any
    lows: Any
    highs: Any
    n_draws: int


@dataclass(frozen=True)
class CurvePanel:
    """What stands in one panel of `patching_curves`; see `patching_curve`."""

    lines: Sequence[CurveLine]
    band: CurveBand | None = None
    references: Sequence[tuple[str, int | float]] = ()


def panel_traces(panel: CurvePanel, *, name_references: bool) -> list[go.Scatter]:
    """Everything in one panel, what lies behind first; those that belong in a legend say so."""
    band, lines = panel.band, panel.lines
    references = [_reference(*pair, place=place) for place, pair in enumerate(panel.references)]
    for trace in references:
        trace.showlegend = name_references
    # Five bands over each other would hide each other: those of the effect rankings are hints.
    intervals = [
        _interval(line.name, line.shares, line.lows, line.highs, opacity=0.14 if line.name in FULL_BANDS else 0.05)
        for line in lines
    ]
    return [*(_band(band) if band else []), *references, *intervals, *(_line(line) for line in lines)]


def _line(line: CurveLine) -> go.Scatter:
    """Points joined by straight lines."""
    numbers = [as_array(part).tolist() for part in (line.shares, line.ks, line.values, line.lows, line.highs)]
    texts = [
        f"{html.escape(line.name)}, {share:g} % of heads (k = {k:.0f}): {value_text(value, low, high)}"
        for share, k, value, low, high in zip(*numbers, strict=True)
    ]
    place = list(RANKING_COLOURS).index(line.name) if line.name in RANKING_COLOURS else -1
    return go.Scatter(
        x=numbers[0],
        y=numbers[2],
        mode="lines+markers",
        line={"color": ranking_colour(line.name), "width": 2},
        marker={"symbol": SYMBOLS[place], "size": 7},
        name=html.escape(line.name),
        legendgroup=html.escape(line.name),
        showlegend=True,
        customdata=texts,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _band(band: CurveBand) -> list[go.Scatter]:
    """The grey range of random sets and their mean."""
    drawn = f"{html.escape(band.name)} ({band.n_draws} draws)"
    numbers = [as_array(part).tolist() for part in (band.shares, band.means, band.lows, band.highs)]
    mean = go.Scatter(
        x=numbers[0],
        y=numbers[1],
        mode="lines+markers",
        line={"color": ranking_colour(band.name), "width": 2, "dash": "dot"},
        marker={"size": 5},
        name=drawn,
        legendgroup=drawn,
        showlegend=True,
        legendrank=BEHIND_RANK,
        customdata=[
            f"{drawn}, {share:g} % of heads: {value_text(value, low, high)}"
            for share, value, low, high in zip(*numbers, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    interval = _interval(band.name, band.shares, band.lows, band.highs, opacity=0.3)
    return [interval.update(legendgroup=drawn), mean]


def _interval(name: str, shares: Any, lows: Any, highs: Any, *, opacity: float) -> go.Scatter:
    """The area between two bounds, where both are known."""
    x, low, high = as_array(shares), as_array(lows), as_array(highs)
    known = np.isfinite(low) & np.isfinite(high)
    return go.Scatter(
        x=np.concatenate([x[known], x[known][::-1]]),
        y=np.concatenate([high[known], low[known][::-1]]),
        mode="lines",
        line={"width": 0, "color": ranking_colour(name)},
        fill="toself",
        fillcolor=_translucent(ranking_colour(name), opacity),
        name=html.escape(name),
        legendgroup=html.escape(name),
        showlegend=False,
        hoverinfo="skip",
    )


def _reference(name: str, value: int | float, *, place: int) -> go.Scatter:
    """A line across the panel."""
    text = html.escape(name)
    dash = REFERENCE_DASHES[place % len(REFERENCE_DASHES)]
    return go.Scatter(
        x=list(SHARE_RANGE),
        y=[value, value],
        mode="lines",
        line={"color": LINE_COLOUR, "dash": dash, "width": 1.4},
        name=text,
        legendgroup=text,
        legendrank=BEHIND_RANK + 1,
        customdata=[f"{text}: {value:.2f}"] * 2,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _translucent(colour: str, opacity: float) -> str:
    """A colour written #rrggbb, seen through."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def score_range(panels: Sequence[CurvePanel]) -> tuple[float, float]:
    """Ends of the score axis: room for every line, interval and reference, and 0 where no score is below it."""
    parts = [part for panel in panels for line in panel.lines for part in (line.values, line.lows, line.highs)]
    parts += [part for panel in panels if panel.band for part in (panel.band.means, panel.band.lows, panel.band.highs)]
    parts += [[value] for panel in panels for _, value in panel.references]
    numbers = np.concatenate([as_array(part) for part in parts])
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    if low >= 0:
        low = 0.0
    pad = 0.04 * ((high - low) or 1.0)
    return low - pad, high + pad


def share_ticks(panels: Sequence[CurvePanel]) -> dict[int, str]:
    """Shares to be named under the axis, with the number of heads where all lines that have the share agree on it."""
    ks: dict[float, set[float]] = {}
    for line in (line for panel in panels for line in panel.lines):
        for share, k in zip(as_array(line.shares).tolist(), as_array(line.ks).tolist(), strict=True):
            ks.setdefault(share, set()).add(k)
    return {share: f"{share}<br>{min(ks[share]):.0f}" if len(ks.get(share, ())) == 1 else f"{share}" for share in TICKS}


def check_panel(panel: CurvePanel) -> None:
    """Refuse what cannot be shown truly."""
    names = [line.name for line in panel.lines] + [name for name, _ in panel.references]
    names += [panel.band.name] if panel.band else []
    if not panel.lines:
        raise ValueError("Cannot draw a patching curve: there are no lines. Give at least one.")
    if len(set(names)) != len(names):
        raise ValueError(f"Cannot draw a patching curve: a name stands twice in {', '.join(names)}. Rename one.")
    for line in panel.lines:
        _check_columns(line.name, (line.shares, line.ks, line.values, line.lows, line.highs))
    if panel.band:
        _check_columns(panel.band.name, (panel.band.shares, panel.band.means, panel.band.lows, panel.band.highs))


def _check_columns(name: str, columns: Sequence[Any]) -> None:
    """The last three are scores and their bounds."""
    arrays = [as_array(column) for column in columns]
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        raise ValueError(f"Cannot draw the curve {name}: shares and scores differ in number. Give one of each.")
    if not ((arrays[0] >= 0) & (arrays[0] <= 100)).all():
        raise ValueError(f"Cannot draw the curve {name}: a share is nan or outside 0 to 100. Pass percent.")
    if not np.isfinite(arrays[-3]).all():
        raise ValueError(f"Cannot draw the curve {name}: a score is not finite. Leave that share out.")
