"""How the loss fell while alpha was fitted."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import plotly.graph_objects as go

from site_interp.plots.style import as_array, finished, panels

PANELS_PER_ROW = 3
TRAIN_COLOUR, VALID_COLOUR, CHOSEN_COLOUR = "#a9cbe2", "#0072b2", "#d55e00"


@runtime_checkable
class Trace(Protocol):
    """How one fit went, as `FitTrace` tells it: training loss of every step from 1 on, validation loss at some of them,
    in nats, and the step that was kept.
    """

    @property
    def train_loss(self) -> Sequence[float]: ...

    @property
    def valid_steps(self) -> Sequence[int]: ...

    @property
    def valid_loss(self) -> Sequence[float]: ...

    @property
    def chosen_step(self) -> int: ...


def fitting_curve(traces: Mapping[str, Trace], *, title: str | None = None) -> go.Figure:
    """Training and validation loss over steps, one panel per fit, the step that was kept marked.

    The panels share one loss axis. It ends where the largest validation loss and 95 % of the training losses have
    room: single hard examples may lie above it.

    Args:
        traces: Name -> how that fit went; the names head the panels.
        title: Heading.

    Raises:
        ValueError: No traces, or validation steps and losses of different number.
    """
    for name, trace in traces.items():
        if len(trace.valid_steps) != len(trace.valid_loss):
            raise ValueError(f"Cannot draw the fit of {name}: give one loss for each step.")
    if not traces:
        raise ValueError("Cannot draw fitting curves: there is none. Give at least one trace.")
    n_columns = min(PANELS_PER_ROW, len(traces))
    names = [html.escape(name) for name in traces] if len(traces) > 1 else []
    n_rows = math.ceil(len(traces) / n_columns)
    figure, plot_height = panels(n_rows, n_columns, panel_height=170 if n_rows > 1 else 300, gap=55, names=names)
    named: set[str] = set()
    for index, trace in enumerate(traces.values()):
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
    figure.update_yaxes(range=[0, _loss_ceiling(list(traces.values()))], zeroline=False)
    return figure


def _loss_lines(trace: Trace) -> list[go.Scatter]:
    """Training loss, validation loss and the kept step of one fit."""
    valid_steps = as_array(trace.valid_steps)
    hover = "step %{x}: %{y:.3f} nats<extra>%{fullData.name}</extra>"
    lines = [
        go.Scatter(
            x=np.arange(1, len(trace.train_loss) + 1),
            y=as_array(trace.train_loss),
            mode="lines",
            line={"color": TRAIN_COLOUR, "width": 1},
            name="training",
            hovertemplate=hover,
        ),
        go.Scatter(
            x=valid_steps,
            y=as_array(trace.valid_loss),
            mode="lines+markers",
            line={"color": VALID_COLOUR, "width": 2},
            marker={"size": 7},
            name="validation",
            hovertemplate=hover,
        ),
    ]
    if valid_steps.size:
        lines.append(
            go.Scatter(
                x=[trace.chosen_step],
                y=[float(np.interp(trace.chosen_step, valid_steps, as_array(trace.valid_loss)))],
                mode="markers",
                marker={"symbol": "circle-open", "size": 15, "color": CHOSEN_COLOUR, "line": {"width": 2.5}},
                cliponaxis=False,  # losses near 0
                name="step kept",
                hovertemplate=hover,
            )
        )
    return lines


def _loss_ceiling(traces: Sequence[Trace]) -> float:
    """Upper end of the loss axis in nats."""
    valid = np.concatenate([as_array(trace.valid_loss) for trace in traces])
    train = np.concatenate([as_array(trace.train_loss) for trace in traces])
    highest = [float(valid.max())] if valid.size else []
    highest += [float(np.quantile(train, 0.95))] if train.size else []
    return 1.08 * max([*highest, 1e-3])
