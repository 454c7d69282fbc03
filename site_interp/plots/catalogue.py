"""Which heads the tasks use, and how many tasks use each."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from site_interp.plots.heads import cell_size, colour_bar, over_heads

FEW, MANY = "#b9d6ea", "#08306b"


@dataclass(frozen=True)
class CatalogueRow:
    """One head.

    Args:
        layer, head: Its place, from 0.
        alphas: Task -> alpha of the head, 0 to 1.
        n_tasks: Tasks that use it, for example those that have it among their top heads.
        induction, previous: Its induction and previous-token scores, 0 to 1.
    """

    layer: int
    head: int
    alphas: Mapping[str, int | float]
    n_tasks: int
    induction: int | float
    previous: int | float


def head_catalogue(rows: Sequence[CatalogueRow], *, title: str | None = None) -> go.Figure:
    """The heads that at least one task uses, at their place; larger and darker where more tasks use them.

    Args:
        rows: Heads. Those that no task uses are not drawn, but the axes have room for them.
        title: Heading.

    Raises:
        ValueError: No head is used, or a head stands twice.
    """
    used = [row for row in rows if row.n_tasks > 0]
    if not used:
        raise ValueError("Cannot draw a head catalogue: no task uses any head. Give heads with n_tasks above 0.")
    if len({(row.layer, row.head) for row in rows}) != len(rows):
        raise ValueError("Cannot draw a head catalogue: a head stands twice. Give one row for each head.")
    n_layers, n_heads = max(row.layer for row in rows) + 1, max(row.head for row in rows) + 1
    counts = [row.n_tasks for row in used]
    most = max(counts)
    # Whole numbers only: between 1 and 2 tasks there is nothing.
    ticks = sorted({round(1 + part * (most - 1) / 4) for part in range(5)})
    marks = go.Scatter(
        x=[row.layer for row in used],
        y=[row.head for row in used],
        mode="markers",
        marker={
            "size": counts,
            "sizemode": "area",
            "sizeref": 2 * most / (0.9 * cell_size(n_layers, n_heads)) ** 2,  # the largest fills its cell
            "sizemin": 3,
            "color": counts,
            "cmin": 1,
            "cmax": max(most, 2),
            "colorscale": [FEW, MANY],
            "opacity": 1,
            "line": {"color": "#444444", "width": 0.8},
            "colorbar": colour_bar((n_layers, n_heads), "tasks that use it", tickvals=ticks),
        },
        customdata=[_hover(row) for row in used],
        hovertemplate="%{customdata}<extra></extra>",
    )
    figure = over_heads(marks, (n_layers, n_heads), title=title)
    figure.update_xaxes(showgrid=True)
    figure.update_yaxes(showgrid=True)
    return figure


def _hover(row: CatalogueRow) -> str:
    """What the pointer shows: the head, its scores, and alpha of each task, the highest first."""
    of_all = f" of {len(row.alphas)}" if row.alphas else ""
    lines = [f"L{row.layer}H{row.head}: used by {row.n_tasks}{of_all} tasks"]
    lines.append(f"induction {row.induction:.2f}, previous token {row.previous:.2f}")
    highest_first = sorted(row.alphas.items(), key=lambda item: -item[1])
    return "<br>".join([*lines, *(f"{html.escape(task)}: alpha {alpha:.2f}" for task, alpha in highest_first)])
