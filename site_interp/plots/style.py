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
    "many_shot_icl": "#b86e00",
    "site": "#0072b2",
    "function_vector": "#009e73",
    "task_vector": "#56b4e9",
    "mtv": "#cc79a7",
    "i2cl": "#d55e00",
    "ltv": "#004d40",
    "lora": "#882255",
    "ia3": "#aa4499",
    "prompt_tuning": "#ddcc77",
    "mha_esp": "#332288",
    "u_esp": "#6699cc",
    "p_esp": "#88ccee",
    "idpg": "#661100",
    "knn": "#999933",
    "majority": "#444444",
    "echo": "#444444",
}
"""One colour per method in every figure, told apart with the common forms of colour blindness."""

OTHER_METHOD_COLOUR = "#bbbbbb"
FLOOR_DASHES: Mapping[str, str] = {"echo": "dot", "majority": "solid"}
"""Methods that need no model: drawn as lines across the bars of a task, not as bars."""

WIDTH = 900  # pixels, the column of a notebook
LEGEND_PER_ROW = 6
LABEL_LENGTH = 24  # characters, of a task under the bars
FONT = {"family": "Helvetica, Arial, sans-serif", "size": 14, "color": "#222222"}


def method_colour(method: str) -> str:
    """The colour of a method in every figure, its variants in brackets included; a light grey for an unknown name.

    Example:
        >>> method_colour("site"), method_colour("site(lr=0.1)")
        ('#0072b2', '#0072b2')
    """
    return METHOD_COLOURS.get(method.split("(", 1)[0], OTHER_METHOD_COLOUR)


def as_array(values: Any) -> npt.NDArray[np.float64]:
    """Numbers as an array; a tensor is taken off its graph and its device first."""
    for step in ("detach", "cpu", "float"):
        if hasattr(values, step):
            values = getattr(values, step)()
    return np.asarray(values, dtype=np.float64)


def panels(
    n_rows: int, n_columns: int, *, panel_height: int, gap: int, names: Sequence[str] = ()
) -> tuple[go.Figure, int]:
    """An empty grid of panels and its height; sizes in pixels, `gap` between rows."""
    height = n_rows * panel_height + (n_rows - 1) * gap
    figure = make_subplots(
        rows=n_rows,
        cols=n_columns,
        horizontal_spacing=0.03,
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
        margin={"l": left, "r": 20, "t": top, "b": bottom},
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


def task_labels(tasks: Sequence[str]) -> tuple[str, list[str]]:
    """The source all tasks share (or an empty text), and their names without it, escaped, long ones shortened.

    Example:
        >>> task_labels(["fv/antonym", "fv/word_length"])
        ('fv', ['antonym', 'word_length'])
    """
    sources = {task.partition("/")[0] for task in tasks}
    if len(sources) == 1 and all("/" in task for task in tasks):
        return html.escape(sources.pop()), [_short(task.partition("/")[2]) for task in tasks]
    return "", [_short(task) for task in tasks]


def _short(text: str) -> str:
    """A text of at most `LABEL_LENGTH` characters, escaped."""
    kept = LABEL_LENGTH // 2
    return html.escape(text if len(text) <= LABEL_LENGTH else f"{text[: kept - 1]}…{text[-kept:]}")
