"""How the score changes with the share of heads that are replaced."""

import html
import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from site_interp.plots.curve_parts import (
    SHARE_RANGE,
    CurveBand,
    CurveLine,
    CurvePanel,
    check_panel,
    panel_traces,
    score_range,
    share_ticks,
)
from site_interp.plots.style import PANEL_NAME_LENGTH, PANEL_NAME_SIZE, finished, label_edge, legend_room, short
from site_interp.plots.style import panels as panel_grid

PANELS_PER_ROW = 3
SHARE_TITLE = "share of heads (%), number of heads"
LABEL_PIXELS = 17  # height of a label at the right edge
ONE_HEIGHT, ROW_HEIGHT = 320, 190  # pixels of a panel, where it is the only row and where it is not


def patching_curve(
    lines: Sequence[CurveLine],
    *,
    band: CurveBand | None = None,
    references: Sequence[tuple[str, int | float]] = (),
    ylabel: str,
    title: str | None = None,
) -> go.Figure:
    """The score against the share of heads, one line with its interval for each order of heads.

    Args:
        lines: At least one, of different names.
        band: Random sets, drawn in grey behind the lines.
        references: Name and score of dashed lines, for example the fitted adapter, labelled at the right edge.
        ylabel: What the score is, with its unit.
        title: Heading.

    Raises:
        ValueError: No lines, a name twice, arrays of different length, or a share outside 0 to 100.
    """
    figure = _grid({"": CurvePanel(lines, band, references)}, ylabel, title, label_references=True)
    low, high = figure.layout.yaxis.range
    # Labels of scores that lie close would stand on each other: they are moved apart, the lines are not.
    heights = spread([float(value) for _, value in references], LABEL_PIXELS * (high - low) / ONE_HEIGHT, low, high)
    for (name, value), height in zip(references, heights, strict=True):
        label_edge(figure, _label(name, value), height)
    return figure


def patching_curves(panels: Mapping[str, CurvePanel], *, ylabel: str, title: str | None = None) -> go.Figure:
    """`patching_curve` for several tasks: a panel each, one legend, the same axes.

    Args:
        panels: Task -> what stands in its panel. References are named in the legend, not at the edge.
        ylabel: What the score is, with its unit.
        title: Heading.

    Raises:
        ValueError: No panels, or one that `patching_curve` refuses.
    """
    if not panels:
        raise ValueError("Cannot draw patching curves: there is no task. Give at least one panel.")
    return _grid(panels, ylabel, title)


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Values moved apart until `gap` lies between neighbours, inside [low, high] where there is room.

    Example:
        >>> spread([0.5, 0.0, 0.5], 0.25, 0.0, 1.0)
        [0.5, 0.0, 0.75]
    """
    moved = list(values)
    upwards = sorted(range(len(moved)), key=lambda i: moved[i])
    free_from, free_to = low, high
    for index in upwards:
        moved[index] = max(moved[index], free_from)
        free_from = moved[index] + gap
    for index in reversed(upwards):
        moved[index] = min(moved[index], free_to)
        free_to = moved[index] - gap
    return moved


def _grid(
    panels: Mapping[str, CurvePanel], ylabel: str, title: str | None, *, label_references: bool = False
) -> go.Figure:
    """The panels with one legend, which names the references unless room is left to label them at the edge."""
    for panel in panels.values():
        check_panel(panel)
    n_columns = 2 if len(panels) == 4 else min(PANELS_PER_ROW, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    names = [] if label_references else [short(name, PANEL_NAME_LENGTH) for name in panels]
    height = ROW_HEIGHT if n_rows > 1 else ONE_HEIGHT
    figure, plot_height = panel_grid(n_rows, n_columns, panel_height=height, gap=78, names=names)
    named: list[str] = []
    for index, panel in enumerate(panels.values()):
        place = {"row": index // n_columns + 1, "col": index % n_columns + 1}
        for trace in panel_traces(panel, name_references=not label_references):
            trace.showlegend = trace.showlegend and trace.name not in named
            named += [trace.name] if trace.showlegend else []
            figure.add_trace(trace, **place)
        lowest = index + n_columns >= len(panels)
        figure.update_xaxes(title_text=SHARE_TITLE if lowest else None, title_font_size=13, **place)
        figure.update_yaxes(showticklabels=place["col"] == 1, **place)
    labels = [_label(*pair) for panel in panels.values() for pair in panel.references if label_references]
    right = 20 + max((10 + 7 * len(label) for label in labels), default=0)
    room = legend_room(named)
    finished(figure, title, plot_height=plot_height, bottom=70, right=right, n_legend=room, panel_titles=bool(names))
    figure.update_annotations(font_size=PANEL_NAME_SIZE)
    ticks = share_ticks(list(panels.values()))
    figure.update_xaxes(range=SHARE_RANGE, zeroline=False, title_standoff=4, tickfont_size=12)
    figure.update_xaxes(tickvals=list(ticks), ticktext=list(ticks.values()), tickangle=0)
    figure.update_yaxes(title_text=html.escape(ylabel), col=1)
    figure.update_yaxes(range=score_range(list(panels.values())), zeroline=False)
    return figure


def _label(name: str, value: int | float) -> str:
    """What stands at the right edge of a reference."""
    return f"{short(name)} {value:.2f}"
