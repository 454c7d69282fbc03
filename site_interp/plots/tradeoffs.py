"""What right answers cost: how many labelled examples a method was given, or how much work a query is."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from site_interp.plots.label_places import MARKER, label_places
from site_interp.plots.patching import spread
from site_interp.plots.style import FLOOR_DASHES, WIDTH, finished, legend_room, method_colour, short

SYMBOLS: Mapping[str, str] = {
    "zero_shot": "circle-open",
    "icl": "circle",
    "many_shot_icl": "hexagon",
    "site": "diamond",
    "function_vector": "square",
    "task_vector": "pentagon",
    "mtv": "cross",
    "i2cl": "star",
    "ltv": "hexagram",
    "lora": "triangle-up",
    "ia3": "triangle-down",
    "knn": "x",
    "majority": "square-open",
    "echo": "diamond-open",
}
"""One marker per method, so that colours which look alike to some need not be told apart."""

SHARE_RANGE = (0, 102)  # percent
PLOT_HEIGHT = 400  # pixels
LEFT, BELOW = 70, 55  # pixels beside and under the panel
LABEL_SIZE = 12  # of the names beside lines and markers
LETTER, LINE = 6.2, 15  # pixels: width of a letter and height of a line of that size
LEADER = 24  # pixels from the right edge to a name beside it
LARGER = ("cross", "star", "hexagram", "triangle-up", "triangle-down")  # look smaller than they are
DODGE = 0.017  # of the axis: how far two methods stand apart at most
DODGED_ROOM = 0.6  # of the way to the next number of labels: what all methods together take at most


@dataclass(frozen=True)
class TradeoffRow:
    """The score of one method at one price, tasks and seeds already averaged.

    Args:
        method: Name, its settings in brackets or not; the name chooses colour and marker.
        x: The price: labelled examples, or inference cost.
        value: Share of right answers, 0 to 1.
        low, high: Its interval, in the same unit; nan or None where unknown.
    """

    method: str
    x: int | float
    value: int | float
    low: int | float | None = None
    high: int | float | None = None


def accuracy_by_labels(
    rows: Sequence[TradeoffRow], *, title: str | None = None, metric: str = "right answers"
) -> go.Figure:
    """The share of right answers in percent against the number of labelled examples, a line per method.

    Methods stand beside each other at each number so that their intervals can be seen. A method without labels is a
    dashed line across. Lines that end at the right edge are named there, the others in the legend.

    Args:
        rows: One per method and number of labelled examples; 0 for a method that uses none.
        title: Heading.
        metric: What counts as right, for the axis.

    Raises:
        ValueError: No rows, none with labels, a method twice at one number, a value outside [0, 1], or a number that is
            negative or not finite.
    """
    _check_rows(rows, "accuracy by labels")
    counts = sorted({row.x for row in rows if row.x})
    if not counts:
        raise ValueError("Cannot draw accuracy by labels: no method has labels. Draw accuracy bars instead.")
    lines = _by_method([row for row in rows if row.x])
    flat = [row for row in rows if not row.x]
    shifts = _dodges(counts, len(lines))
    ends = (math.log10(counts[0]) + shifts[0], math.log10(counts[-1]) + shifts[-1])
    pad = (0.03 if len(counts) > 1 else 0.3) * _span(counts)
    left = ends[0] - pad - 2 * DODGE * _span(counts) * len(flat)
    right = ends[1] + pad
    figure = go.Figure()
    named: list[tuple[TradeoffRow, float]] = []  # with the place where the line ends
    in_legend: list[str] = []
    for place, row in enumerate(flat):
        bar = left + (2 * place + 1) * DODGE * _span(counts)
        figure.add_trace(_line_across(row, [10**left, 10**bar, 10**right]))
        named.append((row, right))
    for (method, own), shift in zip(lines.items(), shifts, strict=True):
        reaches_edge = own[-1].x == counts[-1]
        figure.add_trace(_line(method, own, shift).update(showlegend=not reaches_edge))
        if reaches_edge:
            named.append((own[-1], math.log10(own[-1].x) + shift))
        else:
            in_legend.append(html.escape(method))
    margin = 20 + LEADER + _text_width([_end_name(row) for row, _ in named])
    plot_height = max(PLOT_HEIGHT, (LINE + 1) * len(named))
    n_legend = legend_room(in_legend) if in_legend else 0
    _finish(figure, title, metric, plot_height=plot_height, right=round(margin), n_legend=n_legend)
    figure.update_xaxes(title_text="labelled examples", range=[left, right])
    figure.update_xaxes(tickvals=counts, ticktext=[_number(count) for count in counts])
    _name_ends(figure, named, right, plot_height)
    return figure


def accuracy_by_cost(
    rows: Sequence[TradeoffRow],
    *,
    title: str | None = None,
    metric: str = "right answers",
    cost: str = "seconds per 1,000 queries",
) -> go.Figure:
    """The share of right answers in percent against the cost of inference, a marker per method with its name.

    Args:
        rows: One per method and cost.
        title: Heading.
        metric: What counts as right, for the axis.
        cost: What the cost is, with its unit.

    Raises:
        ValueError: No rows, a method twice at one cost, a value outside [0, 1], or a cost that is not above 0 and
            finite.
    """
    _check_rows(rows, "accuracy by cost")
    if not all(row.x > 0 for row in rows):
        raise ValueError("Cannot draw accuracy by cost: a cost is 0, which has no place on a log axis. Leave it out.")
    figure = go.Figure()
    traces = [
        _markers(method, own, [row.x for row in own], cost=html.escape(cost)).update(mode="markers", showlegend=False)
        for method, own in _by_method(rows).items()
    ]
    figure.add_traces(sorted(traces, key=lambda trace: -trace.marker.size))  # so that none is hidden whole
    _finish(figure, title, metric, plot_height=PLOT_HEIGHT, right=20, n_legend=0)
    logs = [math.log10(row.x) for row in rows]
    span = max(logs) - min(logs)
    pad = max(0.09 * span, (0.5 - span) / 2)  # a narrower axis would make small differences look large
    low, high = min(logs) - pad, max(logs) + pad
    ticks = _log_ticks(low, high)
    figure.update_xaxes(title_text=html.escape(cost), range=[low, high])
    figure.update_xaxes(tickvals=ticks, ticktext=[_number(tick) for tick in ticks])
    across, up = (WIDTH - LEFT - 20) / (high - low), PLOT_HEIGHT / (SHARE_RANGE[1] - SHARE_RANGE[0])
    points = [((log - low) * across, 100 * row.value * up) for log, row in zip(logs, rows, strict=True)]
    reaches = [[(part or 0) * up for part in _reaches(row)] for row in rows]
    bars = [(x - 4, y - down, x + 4, y + over) for (x, y), (down, over) in zip(points, reaches, strict=True)]
    sizes = [(_text_width([short(row.method)]), float(LINE)) for row in rows]
    offsets = label_places(points, sizes, bars, (0.0, 0.0, (high - low) * across, float(PLOT_HEIGHT)))
    for row, size, offset, reach in zip(rows, sizes, offsets, reaches, strict=True):
        _name_marker(figure, row, size, offset, reach)
    return figure


def _name_marker(
    figure: go.Figure,
    row: TradeoffRow,
    size: tuple[float, float],
    offset: tuple[float, float],
    reaches: Sequence[float],
) -> None:
    """Write a name beside its marker, with a line between them where it stands farther off.

    A line straight up or down starts beyond the interval bar, which it would seem to lengthen.
    """
    across, up = offset
    side = (across > size[0] / 2) - (across < -size[0] / 2)
    across -= side * size[0] / 2  # of the nearer end, since the width is but guessed
    start = MARKER / 2 if side else max(MARKER / 2, reaches[up > 0] + 4)
    gap = math.hypot(abs(across) if side else 0.0, max(abs(up) - size[1] / 2, 0.0))
    look = {"ax": across, "ay": -up, **_leader(row.method, standoff=start)}
    if gap - start <= MARKER * 0.8:
        look = {"xshift": across, "yshift": up, "showarrow": False}
    place = {
        "x": math.log10(row.x),
        "y": 100 * row.value,
        "xanchor": ("center", "left", "right")[side],
        "yanchor": "middle",
    }
    figure.add_annotation(text=short(row.method), font={"size": LABEL_SIZE}, **place, **look)


def _name_ends(figure: go.Figure, named: Sequence[tuple[TradeoffRow, float]], right: float, plot_height: int) -> None:
    """Write names and values of lines beside the right edge, moved apart where they would stand on each other."""
    per_percent = plot_height / (SHARE_RANGE[1] - SHARE_RANGE[0])
    values = [100.0 * row.value for row, _ in named]
    heights = spread(values, LINE / per_percent, LINE / 2 / per_percent, SHARE_RANGE[1] - LINE / 2 / per_percent)
    for (row, end), value, height in zip(named, values, heights, strict=True):
        if end < right:
            thin = {"color": method_colour(row.method), "width": 1, "dash": "dot"}
            figure.add_shape(type="line", x0=10**end, x1=10**right, y0=value, y1=value, line=thin, layer="below")
        figure.add_annotation(
            text=_end_name(row),
            font={"size": LABEL_SIZE},
            x=right,
            y=value,
            ax=LEADER,
            ay=(value - height) * per_percent,
            xanchor="left",
            yanchor="middle",
            **_leader(row.method, standoff=0.0),
        )


def _leader(method: str, *, standoff: float) -> dict[str, Any]:
    """The line from a name to what it names."""
    look = {"arrowhead": 0, "arrowwidth": 1, "arrowcolor": method_colour(method)}
    return {"showarrow": True, "standoff": standoff, "borderpad": 1, **look}


def _line(method: str, rows: Sequence[TradeoffRow], shift: float) -> go.Scatter:
    """The line of one method, moved sideways by a part of a decade."""
    trace = _markers(method, rows, [row.x * 10**shift for row in rows], cost="labels")
    return trace.update(mode="lines+markers", line={"color": method_colour(method), "width": 2})


def _line_across(row: TradeoffRow, places: Sequence[float]) -> go.Scatter:
    """The dashed line of a method without labels; its interval stands at the second of three places."""
    down, up = _reaches(row)
    return go.Scatter(
        x=list(places),
        y=[100 * row.value] * 3,
        mode="lines",
        line={"color": method_colour(row.method), "width": 2, "dash": FLOOR_DASHES.get(_plain(row.method), "dash")},
        error_y=_bars(row.method, [None, down, None], [None, up, None]),
        name=html.escape(row.method),
        showlegend=False,
        customdata=[_hover(row, "labels")] * 3,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _markers(method: str, rows: Sequence[TradeoffRow], places: Sequence[int | float], *, cost: str) -> go.Scatter:
    """The scores of one method at these places, with their intervals."""
    reaches = [_reaches(row) for row in rows]
    symbol = SYMBOLS.get(_plain(method), "circle")
    size = 1.3 * MARKER if symbol in LARGER else MARKER
    edge = {"width": 2} if symbol.endswith("open") else {"width": 1, "color": "#ffffff"}
    return go.Scatter(
        x=list(places),
        y=[100 * row.value for row in rows],
        marker={"color": method_colour(method), "symbol": symbol, "size": size, "line": edge},
        error_y=_bars(method, [down for down, _ in reaches], [up for _, up in reaches]),
        cliponaxis=False,  # at 0 and 100 %
        name=html.escape(method),
        customdata=[_hover(row, cost) for row in rows],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _bars(method: str, downs: Sequence[float | None], ups: Sequence[float | None]) -> dict[str, Any]:
    """Interval bars in the colour of their method."""
    look = {"color": method_colour(method), "thickness": 1.5, "width": 3}
    return {"type": "data", "arrayminus": list(downs), "array": list(ups), **look}


def _finish(figure: go.Figure, title: str | None, metric: str, *, plot_height: int, right: int, n_legend: int) -> None:
    """The look of both figures."""
    finished(figure, title, plot_height=plot_height, bottom=BELOW, left=LEFT, right=right, n_legend=n_legend)
    figure.update_xaxes(type="log", zeroline=False, automargin=False)
    figure.update_yaxes(title_text=f"{html.escape(metric)} (%)", range=SHARE_RANGE, dtick=20, zeroline=False)


def _by_method(rows: Sequence[TradeoffRow]) -> dict[str, list[TradeoffRow]]:
    """The rows of each method from the lowest price up; methods in the order in which they first appear."""
    ordered = sorted(rows, key=lambda row: row.x)
    return {name: [row for row in ordered if row.method == name] for name in dict.fromkeys(row.method for row in rows)}


def _dodges(counts: Sequence[int | float], n_methods: int) -> list[float]:
    """How far each method is moved sideways, in decades, from the left to the right, 0 in the middle."""
    gaps = [math.log10(above / below) for below, above in pairwise(counts)]
    step = min([DODGE * _span(counts), *(DODGED_ROOM * gap / n_methods for gap in gaps)])
    return [(place - (n_methods - 1) / 2) * step for place in range(n_methods)]


def _span(counts: Sequence[int | float]) -> float:
    """Decades from the lowest to the highest number; 1 where there is but one."""
    return math.log10(counts[-1] / counts[0]) or 1.0


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two powers of ten: the fewer decades, the closer."""
    decades = high - low
    steps = (1, 1.5, 2, 3, 4, 5, 7) if decades < 0.8 else (1, 2, 5) if decades < 3 else (1,)
    ticks = [step * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for step in steps]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _number(value: int | float) -> str:
    """A count or a cost in few digits: 1,000 and 0.05."""
    return f"{value:,.6g}"


def _end_name(row: TradeoffRow) -> str:
    """What stands at the right end of a line."""
    return f"{short(row.method)} {100 * row.value:.1f} %"


def _text_width(texts: Sequence[str]) -> float:
    """Pixels that the longest of some escaped texts takes."""
    return LETTER * max(len(html.unescape(text)) for text in texts)


def _plain(method: str) -> str:
    """A method's name without its settings."""
    return method.split("(", 1)[0]


def _reaches(row: TradeoffRow) -> tuple[float | None, float | None]:
    """How far the interval reaches below and above the value, in percent; None where it is unknown."""
    if row.low is None or row.high is None or not math.isfinite(row.low + row.high):
        return None, None
    return 100 * (row.value - row.low), 100 * (row.high - row.value)


def _hover(row: TradeoffRow, price: str) -> str:
    """What the pointer shows: method, price, value and interval."""
    text = f"{html.escape(row.method)}, {_number(row.x)} {price}: {100 * row.value:.1f} %"
    if None in _reaches(row):
        return text
    return f"{text} [{100 * (row.low or 0):.1f}, {100 * (row.high or 0):.1f}]"


def _check_rows(rows: Sequence[TradeoffRow], what: str) -> None:
    """Refuse what cannot be shown truly."""
    if not rows:
        raise ValueError(f"Cannot draw {what}: there are no rows. Give at least one method.")
    if not all(math.isfinite(row.x) and row.x >= 0 for row in rows):
        raise ValueError(f"Cannot draw {what}: an x is negative or not finite. Leave it out.")
    if not all(0 <= row.value <= 1 for row in rows):
        raise ValueError(f"Cannot draw {what}: a value is nan or outside [0, 1]. Pass shares, not percent.")
    if len({(row.method, row.x) for row in rows}) != len(rows):
        raise ValueError(f"Cannot draw {what}: a method stands twice at one x. Average the tasks and seeds first.")
