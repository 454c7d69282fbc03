"""The one look of all figures: colours, sizes, panels, and texts made safe."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

METHOD_COLOURS: Mapping[str, str] = {
    "zero_shot": "#9aa0a6",
    "icl": "#e69f00",
    "many_shot_icl": "#7a4900",
    "site": "#0072b2",
    "function_vector": "#009e73",
    "task_vector": "#56b4e9",
    "mtv": "#cc79a7",
    "i2cl": "#d55e00",
    "ltv": "#332288",
    "lora": "#882255",
    "ia3": "#aa4499",
    "prompt_tuning": "#ddcc77",
    "mha_esp": "#004d40",
    "u_esp": "#6699cc",
    "p_esp": "#88ccee",
    "idpg": "#661100",
    "knn": "#999933",
    "majority": "#444444",
    "echo": "#444444",
}
"""One colour per method in every figure, told apart with the common forms of colour blindness."""

OTHER_METHOD_COLOUR = "#bbbbbb"

RANKING_COLOURS: Mapping[str, str] = {
    "top alpha": "#0072b2",
    "bottom alpha": "#e69f00",
    "indirect effect": "#d55e00",
    "indirect effect (shuffled)": "#cc79a7",
    "attribution": "#009e73",
    "random": "#8c8c8c",
}
"""One colour per order in which heads are taken, in every figure; told apart as the methods are, random grey."""

TASK_COLOURS = "#0072b2 #d55e00 #009e73 #cc79a7 #56b4e9 #e69f00 #332288 #882255 #117733 #999933 #aa4499 #661100".split()
"""For tasks by their place; the thirteenth starts over."""

DIVERGING_COLOURS = ("#08519c", "#6baed6", "#ffffff", "#fdae6b", "#a63603")
"""From the most negative to the most positive value, white at 0; blue and orange are told apart by all."""

PALE_COLOURS = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6")
PALE_DIVERGING_COLOURS = ("#4292c6", "#9ecae1", "#ffffff", "#fdd0a2", "#f16913")
"""The same under numbers: black can be read on every one of these."""

CELL_EDGE = "#d0d0d0"
BAR_GAP = "\u00a0\u00a0"  # blanks between the numbers of a colour bar and its title
LINE_COLOUR = "#444444"  # of lines that are no data: chance, references, joints
FLOOR_DASHES: Mapping[str, str] = {"echo": "dot", "majority": "solid"}
"""Methods that need no model: drawn as lines across the bars of a task, not as bars."""

WIDTH = 900  # pixels, the column of a notebook
LEGEND_PER_ROW = 6
LABEL_LENGTH = 24  # characters, of a task under the bars
PANEL_NAME_LENGTH = 34  # characters, of a task over a third of the width
PANEL_NAME_SIZE = 13
FONT: Mapping[str, Any] = {"family": "Helvetica, Arial, sans-serif", "size": 14, "color": "#222222"}


def ranking_colour(name: str) -> str:
    """The colour of an order of heads in every figure; black for an unknown name.

    Example:
        >>> ranking_colour("attribution")
        '#009e73'
    """
    return RANKING_COLOURS.get(name, "#222222")


def method_colour(method: str) -> str:
    """The colour of a method in every figure, its variants in brackets included; a light grey for an unknown name.

    Example:
        >>> method_colour("site"), method_colour("site(lr=0.1)")
        ('#0072b2', '#0072b2')
    """
    return METHOD_COLOURS.get(method.split("(", 1)[0], OTHER_METHOD_COLOUR)


def as_array(values: Any) -> npt.NDArray[np.float64]:
    """Numbers as an array; a tensor is taken off its graph and its device first.

    Raises:
        ValueError: Something that holds numbers among other things, such as `HeadEffects`.
    """
    for part in ("mean", "alpha"):
        if hasattr(values, part) and not callable(getattr(values, part)):
            raise ValueError(f"Cannot draw a {type(values).__name__} as numbers: give its .{part}.")
    for step in ("detach", "cpu", "float"):
        if hasattr(values, step):
            values = getattr(values, step)()
    return np.asarray(values, dtype=np.float64)


def panels(
    n_rows: int, n_columns: int, *, panel_height: int, gap: int, names: Sequence[str] = (), spacing: float = 0.03
) -> tuple[go.Figure, int]:
    """An empty grid of panels and its height; sizes in pixels, `gap` between rows, `spacing` a share of the width."""
    height = n_rows * panel_height + (n_rows - 1) * gap
    figure = make_subplots(
        rows=n_rows,
        cols=n_columns,
        horizontal_spacing=spacing,
        vertical_spacing=gap / height if n_rows > 1 else None,
        subplot_titles=list(names) or None,
    )
    return figure, height


def finished(
    figure: go.Figure,
    title: str | None,
    *,
    plot_height: int,
    bottom: int = 55,
    left: int = 70,
    right: int = 20,
    n_legend: int = 0,
    panel_titles: bool = False,
) -> go.Figure:
    """The figure in the one look all figures share: title, then legend, then panels; sizes in pixels."""
    title_height = 40 if title else 10
    top = title_height + 26 * math.ceil(n_legend / LEGEND_PER_ROW) + (26 if panel_titles else 8)
    height = plot_height + top + bottom
    figure.update_layout(
        template="plotly_white",
        font=FONT,
        width=WIDTH,
        height=height,
        margin={"l": left, "r": right, "t": top, "b": bottom},
        legend={"orientation": "h", "x": 0, "y": 1 - title_height / height, "yref": "container", "yanchor": "top"},
    )
    if title:
        figure.update_layout(
            title={"text": html.escape(title), "x": 0.01, "y": 1 - 10 / height, "yanchor": "top", "font_size": 17}
        )
    return figure


def thinned(n: int) -> list[int]:
    """Whole numbers from 0 to n - 1, thinned to at most 17."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if n <= 17 * step or step == 100)
    return list(range(0, n, step))


def task_labels(tasks: Sequence[str], length: int = LABEL_LENGTH) -> tuple[str, list[str]]:
    """The source all tasks share (or an empty text), and their names without it, escaped, long ones shortened.

    Example:
        >>> task_labels(["fv/antonym", "fv/word_length"])
        ('fv', ['antonym', 'word_length'])
    """
    sources = {task.partition("/")[0] for task in tasks}
    if len(sources) == 1 and all("/" in task for task in tasks):
        return html.escape(sources.pop()), [short(task.partition("/")[2], length) for task in tasks]
    return "", [short(task, length) for task in tasks]


def short(text: str, length: int = LABEL_LENGTH) -> str:
    """A text of at most so many characters, escaped."""
    kept = length // 2
    return html.escape(text if len(text) <= length else f"{text[: length - kept - 1]}…{text[-kept:]}")


def label_height(labels: Sequence[str]) -> int:
    """Pixels below the axis that labels take when they slant by 35 degrees."""
    return round(4.5 * max(map(len, labels))) + 15


def label_size(apart: float) -> float:
    """Font size of labels that slant by 35 degrees and stand so many pixels apart."""
    return max(7.0, min(float(FONT["size"]), 0.52 * apart))


def legend_room(names: Sequence[str]) -> int:
    """The `n_legend` of a legend whose names are long: plotly gives every entry the width of the longest."""
    per_row = max(1, 820 // (50 + 8 * max(map(len, names))))
    return LEGEND_PER_ROW * math.ceil(len(names) / per_row)


def value_text(value: float, low: float, high: float) -> str:
    """A number and its interval, if that is known.

    Example:
        >>> value_text(0.5, 0.25, 0.625), value_text(0.5, float("nan"), 0.625)
        ('0.50 [0.25, 0.62]', '0.50')
    """
    return f"{value:.2f} [{low:.2f}, {high:.2f}]" if math.isfinite(low + high) else f"{value:.2f}"


def label_edge(figure: go.Figure, text: str, height: int | float) -> None:
    """Write the name of a horizontal line beside the right edge of the panels, at a height in numbers of the axis."""
    place = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 4, "y": height}
    figure.add_annotation(text=text, showarrow=False, font={"size": 12, "color": LINE_COLOUR}, **place)
