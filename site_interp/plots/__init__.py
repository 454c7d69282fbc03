"""Figures from numbers and labels: pure, no model, no file, nothing shown, no setting of plotly changed.

Texts that come from outside (task names, titles) are escaped, because plotly reads tags in them.
"""

from site_interp.plots.accuracy import AccuracyRow, accuracy_bars
from site_interp.plots.fitting import fitting_curve
from site_interp.plots.heads import head_map
from site_interp.plots.style import METHOD_COLOURS, method_colour

__all__ = ["METHOD_COLOURS", "AccuracyRow", "accuracy_bars", "fitting_curve", "head_map", "method_colour"]
