"""How the loss fell while alpha was fitted."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from site_interp.plots.style import as_array, finished, panels

PANELS_PER_ROW = 3
TRAIN_COLOUR, VALID_COLOUR, CHOSEN_COLOUR = "#a9cbe2", "#0072b2", "#d55e00"


@dataclass(frozen=True)
class LossTrace:
    """How one fit went; steps and losses are sequences, arrays or tensors of equal length.

    Args:
        name: Task, and seed where there are several.
        train_steps, train_losses: Step (from 1) and training loss in nats.
        valid_steps, valid_losses: Step and mean validation loss in nats; step 0 is before the first update.
        chosen_step: The step that was kept, or None; marked on the validation line.
    """

    name: str
    train_steps: Any
    train_losses: Any
    valid_steps: Any
    valid_losses: Any
    chosen_step: int | None = None


def fitting_curve(traces: Sequence[LossTrace], *, title: str | None = None) -> go.Figure:
    """Training and validation loss over steps, one panel per fit, the step that was kept marked.

    The panels share one loss axis. It ends where the largest validation loss and 95 % of the training losses have
    room: single hard examples may lie above it.

    Args:
        traces: One per fit.
        title: Heading.

    Raises:
        ValueError: No traces, or steps and losses of different number.
    """
    for trace in traces:
        if len(trace.train_steps) != len(trace.train_losses) or len(trace.valid_steps) != len(trace.valid_losses):
            raise ValueError(f"Cannot draw the fit of {trace.name}: give one loss for each step.")
    if not traces:
        raise ValueError("Cannot draw fitting curves: there is none. Give at least one trace.")
    n_columns = min(PANELS_PER_ROW, len(traces))
    names = [html.escape(trace.name) for trace in traces] if len(traces) > 1 else []
    n_rows = math.ceil(len(traces) / n_columns)
    figure, plot_height = panels(n_rows, n_columns, panel_height=170 if n_rows > 1 else 300, gap=55, names=names)
    named: set[str] = set()
    for index, trace in enumerate(traces):
        place = {"row": index // n_columns + 1, "col": index % n_columns + 1}
        for line in _loss_lines(trace):
            figure.add_trace(line.update(legendgroup=line.name, showlegend=line.name not in named), **place)
            named.add(line.name)
        lowest = index + n_columns >= len(traces)
        figure.update_xaxes(showticklabels=lowest, title_text="step" if lowest else None, **place)
        figure.update_yaxes(showticklabels=place["col"] == 1, **place)
    finished(figure, title, plot_height=plot_height, n_legend=3, panel_titles=bool(names))
    figure.update_xaxes(matches="x", zeroline=False, title_standoff=8)
    figure.update_yaxes(title_text="loss (nats)", col=1)
    figure.update_yaxes(range=[0, _loss_ceiling(traces)], zeroline=False)
    return figure


def _loss_lines(trace: LossTrace) -> list[go.Scatter]:
    """Training loss, validation loss and the kept step of one fit."""
    train_steps, valid_steps = as_array(trace.train_steps), as_array(trace.valid_steps)
    hover = "step %{x}: %{y:.3f} nats<extra>%{fullData.name}</extra>"
    lines = [
        go.Scatter(
            x=train_steps,
            y=as_array(trace.train_losses),
            mode="lines",
            line={"color": TRAIN_COLOUR, "width": 1},
            name="training",
            hovertemplate=hover,
        ),
        go.Scatter(
            x=valid_steps,
            y=as_array(trace.valid_losses),
            mode="lines+markers",
            line={"color": VALID_COLOUR, "width": 2},
            marker={"size": 7},
            name="validation",
            hovertemplate=hover,
        ),
    ]
    if trace.chosen_step is not None and valid_steps.size:
        lines.append(
            go.Scatter(
                x=[trace.chosen_step],
                y=[float(np.interp(trace.chosen_step, valid_steps, as_array(trace.valid_losses)))],
                mode="markers",
                marker={"symbol": "circle-open", "size": 15, "color": CHOSEN_COLOUR, "line": {"width": 2.5}},
                name="step kept",
                hovertemplate=hover,
            )
        )
    return lines


def _loss_ceiling(traces: Sequence[LossTrace]) -> float:
    """Upper end of the loss axis in nats."""
    valid = np.concatenate([as_array(trace.valid_losses) for trace in traces])
    train = np.concatenate([as_array(trace.train_losses) for trace in traces])
    highest = [float(valid.max())] if valid.size else []
    highest += [float(np.quantile(train, 0.95))] if train.size else []
    return 1.08 * max([*highest, 1e-3])
