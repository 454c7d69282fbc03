"""Figures from numbers and labels: pure, no model, no file, nothing shown, no setting of plotly changed.

Texts that come from outside (task names, titles) are escaped, because plotly reads tags in them.
"""

from site_interp.plots.accuracy import AccuracyRow, accuracy_bars
from site_interp.plots.alphas import alpha_distribution
from site_interp.plots.catalogue import CatalogueRow, head_catalogue
from site_interp.plots.curve_parts import CurveBand, CurveLine, CurvePanel
from site_interp.plots.dendrogram import Joint, dendrogram_joints
from site_interp.plots.fitting import fitting_curve
from site_interp.plots.heads import effect_map, head_map
from site_interp.plots.intervals import interval_bars
from site_interp.plots.matrix import task_matrix
from site_interp.plots.patching import patching_curve, patching_curves
from site_interp.plots.style import METHOD_COLOURS, RANKING_COLOURS, method_colour, ranking_colour
from site_interp.plots.tradeoffs import TradeoffRow, accuracy_by_cost, accuracy_by_labels

__all__ = [
    "METHOD_COLOURS",
    "RANKING_COLOURS",
    "AccuracyRow",
    "CatalogueRow",
    "CurveBand",
    "CurveLine",
    "CurvePanel",
    "Joint",
    "TradeoffRow",
    "accuracy_bars",
    "accuracy_by_cost",
    "accuracy_by_labels",
    "alpha_distribution",
    "dendrogram_joints",
    "effect_map",
    "fitting_curve",
    "head_catalogue",
    "head_map",
    "interval_bars",
    "method_colour",
    "patching_curve",
    "patching_curves",
    "ranking_colour",
    "task_matrix",
]
