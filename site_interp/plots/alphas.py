"""How alpha is distributed: over all heads of a task, and over its layers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from site_interp.plots.style import PANEL_NAME_LENGTH, PANEL_NAME_SIZE, TASK_COLOURS, as_array, finished, panels, short

N_BINS = 20


def alpha_distribution(alphas: Mapping[str, Any], *, title: str | None = None) -> go.Figure:
    """For each task a histogram of alpha over its heads and, beside it, the mean alpha of each layer.

    All tasks share the axes, so that they can be compared.

    Args:
        alphas: Task -> alpha [layer head] in [0, 1]; arrays, nested lists, or tensors.
        title: Heading.

    Raises:
        ValueError: No task, or an alpha that is no matrix, is empty, or leaves [0, 1].

    Example:
        >>> alpha_distribution({"a": [[0.0, 1.0], [1.0, 1.0]]}).data[1].y.tolist()
        [0.5, 1.0]
    """
    if not alphas:
        raise ValueError("Cannot draw the distribution of alpha: there is no task. Give at least one.")
    arrays = {task: _checked(task, alpha) for task, alpha in alphas.items()}
    n_columns = 2 if len(arrays) > 3 else 1
    n_rows = math.ceil(len(arrays) / n_columns)
    names = [text for task in arrays for text in (short(task, PANEL_NAME_LENGTH), "")]
    figure, plot_height = panels(
        n_rows, 2 * n_columns, panel_height=95 if n_columns > 1 else 130, gap=42, names=names, spacing=0.055
    )
    highest = 0.0
    for index, alpha in enumerate(arrays.values()):
        row, column = index // n_columns + 1, 2 * (index % n_columns) + 1
        bars, line = _histogram(alpha), _by_layer(alpha)
        highest = max(highest, float(max(bars.y)))
        colour = TASK_COLOURS[index % len(TASK_COLOURS)]
        figure.add_trace(bars.update(marker_color=colour), row=row, col=column)
        figure.add_trace(line.update(line_color=colour), row=row, col=column + 1)
        lowest = index + n_columns >= len(arrays)
        for shift, name in ((0, "alpha"), (1, "layer")):
            place = {"row": row, "col": column + shift}
            figure.update_xaxes(showticklabels=lowest, title_text=name if lowest else None, **place)
    finished(figure, title, plot_height=plot_height, panel_titles=True)
    for note, axis in zip(figure.layout.annotations, list(figure.select_xaxes())[::2], strict=False):
        note.update(x=axis.domain[0], xanchor="left", font_size=PANEL_NAME_SIZE)
    small = {"tickfont_size": 11, "title_font_size": 12, "title_standoff": 4, "zeroline": False}
    figure.update_xaxes(**small)
    figure.update_yaxes(**small)
    _share_axes(figure, 1.08 * highest, max(len(alpha) for alpha in arrays.values()))
    return figure


def _share_axes(figure: go.Figure, highest: float, n_layers: int) -> None:
    """The same axes in all histograms (odd columns), and in all panels by layer (even ones)."""
    for column in (1, 3):
        figure.update_xaxes(range=[0, 1], dtick=0.25, col=column)
        figure.update_yaxes(range=[0, highest], title_text="heads (%)", col=column)
        figure.update_xaxes(range=[-0.5, n_layers - 0.5], col=column + 1)
        figure.update_yaxes(range=[-0.04, 1.04], dtick=0.5, title_text="mean alpha", col=column + 1)


def _histogram(alpha: npt.NDArray[np.float64]) -> go.Bar:
    """Heads in percent of all, by alpha in steps of 0.05; a bin has its lower end, the last one both."""
    counts, edges = np.histogram(alpha, bins=N_BINS, range=(0, 1))
    shares = 100 * counts / alpha.size
    return go.Bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=shares,
        width=1 / N_BINS,
        marker_line={"color": "#ffffff", "width": 0.5},
        customdata=[
            f"alpha {low:.2f} to {high:.2f}: {share:.1f} % of heads ({count})"
            for low, high, share, count in zip(edges[:-1], edges[1:], shares, counts, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )


def _by_layer(alpha: npt.NDArray[np.float64]) -> go.Scatter:
    """The mean over the heads of each layer."""
    return go.Scatter(
        x=np.arange(len(alpha)),
        y=alpha.mean(axis=1),
        mode="lines+markers",
        line_width=2,
        marker_size=4,
        hovertemplate="layer %{x}: mean alpha %{y:.2f}<extra></extra>",
        showlegend=False,
    )


def _checked(task: str, alpha: Any) -> npt.NDArray[np.float64]:
    """Alpha as an array [layer head]."""
    values = as_array(alpha)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"Cannot draw alpha of {task}: its shape is {values.shape}. It must be [layer head].")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"Cannot draw alpha of {task}: a value is nan or outside [0, 1]. Pass alpha, not its logits.")
    return values
