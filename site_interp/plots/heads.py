"""Maps over layers and heads: of alpha, and of what changing single heads does."""

import html
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from site_interp.plots.style import BAR_GAP, CELL_EDGE, DIVERGING_COLOURS, WIDTH, as_array, finished, thinned

LEFT, RIGHT = 70, 135  # pixels beside the map; the colour bar stands in the right ones

SMALL_CELL = 12  # pixels; smaller cells have no edges


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
    names = [[f"L{layer}H{head}" for layer in range(values.shape[0])] for head in range(values.shape[1])]
    bar = colour_bar(values.shape, "alpha", dtick=0.25)
    scale = {"zmin": 0, "zmax": 1, "colorscale": "Blues", "colorbar": bar}
    return _cells(values, names, "%{customdata} alpha %{z:.2f}<extra></extra>", scale, title=title)


def effect_map(effects: Any, *, title: str | None = None, unit: str = "nats") -> go.Figure:
    """A heat map of what each head does to the answer, on one scale that is symmetric around 0 (white).

    Args:
        effects: Signed effects [layer head], above 0 where the head makes the answer likelier; an array, nested
            lists, or a tensor on any device.
        title: Heading, for example the task.
        unit: Of the effects.

    Raises:
        ValueError: `effects` is no matrix, is empty, or has a value that is not finite.

    Example:
        >>> heat = effect_map([[0.1, -0.5], [0.0, 0.2]]).data[0]
        >>> heat.zmin, heat.zmax
        (-0.5, 0.5)
    """
    values = as_array(effects)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"Cannot draw an effect map of shape {values.shape}: effects must be [layer head].")
    if not np.isfinite(values).all():
        raise ValueError("Cannot draw an effect map: a value is not finite. Look at the prompts it was computed on.")
    reach = float(np.abs(values).max()) or 1.0
    shown = html.escape(unit)
    told = [
        [f"L{layer}H{head} effect {value:+.3g} {shown}" for layer, value in enumerate(row)]
        for head, row in enumerate(values.T.tolist())
    ]
    scale = {
        "zmin": -reach,
        "zmax": reach,
        "colorscale": DIVERGING_COLOURS,
        "colorbar": colour_bar(values.shape, f"effect ({shown})<br>above 0: answer likelier"),
    }
    return _cells(values, told, "%{customdata}<extra></extra>", scale, title=title)


def over_heads(trace: go.Heatmap | go.Scatter, shape: tuple[int, ...], *, title: str | None) -> go.Figure:
    """A figure with layers to the right and heads downwards, each head a square cell; `shape` is [layer head]."""
    n_layers, n_heads = shape
    height = max(round(n_heads * cell_size(*shape)), 120)
    figure = finished(go.Figure(trace), title, plot_height=height, left=LEFT, right=RIGHT)
    shared = {
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
        "ticklabelstandoff": 4,
        "linecolor": CELL_EDGE,
        "mirror": True,
    }
    figure.update_xaxes(
        title_text="layer",
        tickvals=thinned(n_layers),
        range=[-0.5, n_layers - 0.5],
        domain=[0, _share_of_width(shape)],
        **shared,
    )
    figure.update_yaxes(
        title_text="head",
        tickvals=thinned(n_heads),
        range=[n_heads - 0.5, -0.5],
        scaleanchor="x",
        scaleratio=1,
        **shared,
    )
    return figure


def cell_size(n_layers: int, n_heads: int) -> float:
    """Pixels along the side of a head's cell."""
    return min(44.0, (WIDTH - LEFT - RIGHT) / n_layers, 640 / n_heads)


def colour_bar(shape: tuple[int, ...], title: str, **ticks: Any) -> dict[str, Any]:
    """The colour bar at the right of a map of this shape [layer head]."""
    place = {"x": _share_of_width(shape), "thickness": 14, "len": 1, "ypad": 0}
    return {"title": {"text": title, "side": "right"}, "ticksuffix": BAR_GAP, **place, **ticks}


def _share_of_width(shape: tuple[int, ...]) -> float:
    """How much of the room for the map it takes."""
    return min(1.0, shape[0] * cell_size(*shape) / (WIDTH - LEFT - RIGHT))


def _cells(
    values: npt.NDArray[np.float64], texts: list[list[str]], template: str, scale: dict[str, Any], *, title: str | None
) -> go.Figure:
    """Coloured cells of values [layer head], with texts [head][layer] under the pointer."""
    gap = 1 if cell_size(*values.shape) > SMALL_CELL else 0
    heat = go.Heatmap(z=values.T, customdata=texts, hovertemplate=template, xgap=gap, ygap=gap, **scale)
    return over_heads(heat, values.shape, title=title).update_layout(plot_bgcolor=CELL_EDGE)
