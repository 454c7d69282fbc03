"""The map of alpha over layers and heads."""

from typing import Any

import plotly.graph_objects as go

from site_interp.plots.style import WIDTH, as_array, finished, thinned

CELL_EDGE = "#d0d0d0"


def head_map(alpha: Any, *, title: str | None = None) -> go.Figure:
    """A heat map of the share that each head takes from the task embedding, on a scale fixed to 0..1.

    Args:
        alpha: Shares [layer head] in [0, 1]; an array, nested lists, or a tensor on any device.
        title: Heading, for example the task.

    Raises:
        ValueError: `alpha` is no matrix, is empty, or leaves [0, 1].

    Example:
        >>> head_map([[0.0, 1.0], [0.5, 0.25]]).data[0].zmax
        1
    """
    values = as_array(alpha)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"Cannot draw a head map of shape {values.shape}: alpha must be [layer head].")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("Cannot draw a head map: a value is nan or outside [0, 1]. Pass alpha, not its logits.")
    n_layers, n_heads = values.shape
    names = [[f"L{layer}H{head}" for layer in range(n_layers)] for head in range(n_heads)]
    heat = go.Heatmap(
        z=values.T,
        zmin=0,
        zmax=1,
        colorscale="Blues",
        customdata=names,
        hovertemplate="%{customdata} alpha %{z:.2f}<extra></extra>",
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": "alpha", "side": "right"}, "thickness": 14, "len": 1, "ypad": 0, "dtick": 0.25},
    )
    cell = min(44.0, (WIDTH - 170) / n_layers, 640 / n_heads)
    figure = finished(go.Figure(heat), title, plot_height=max(round(n_heads * cell), 120))
    figure.update_layout(plot_bgcolor=CELL_EDGE)
    shared = {
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
        "ticklabelstandoff": 4,
        "linecolor": CELL_EDGE,
        "mirror": True,
    }
    figure.update_xaxes(title_text="layer", tickvals=thinned(n_layers), **shared)
    figure.update_yaxes(
        title_text="head", tickvals=thinned(n_heads), autorange="reversed", scaleanchor="x", scaleratio=1, **shared
    )
    return figure
