"""Patching curves, effect maps and alpha maps as figures, each with the numbers it is drawn from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from site_interp.adapter import Adapter
from site_interp.errors import UserError
from site_interp.experiments.patch import Piece, read_effects
from site_interp.experiments.patch_summary import (
    MEAN,
    Panel,
    effect_correlations,
    panel_of,
    panel_values,
    read_curves,
    summarise_curves,
)
from site_interp.experiments.summary import alpha_figure
from site_interp.metrics import Metric
from site_interp.patching import CURVE_METRICS, CurveSet
from site_interp.tasks import short_names

AXIS: Mapping[Metric, str] = {
    "first_token": "first token right",
    "answer_log_prob": "log-probability of the answer, nats",
}
EFFECT_TITLES = {
    "zero_shot": "each head alone replaced in zero-shot prompts",
    "shuffled": "each head alone replaced in prompts with shuffled labels",
    "attribution": "first-order estimate for each head, zero-shot prompts",
}
TITLES = {
    "sufficiency": "only these heads are replaced by the task embedding",
    "necessity": "the fitted adapter without these heads",
    "icl_ablation_mean": "few-shot prompts with these heads at their zero-shot mean",
    "icl_ablation_zero": "few-shot prompts with these heads at zero",
}


def curve_panel(sets: Sequence[CurveSet], metric: Metric = "first_token") -> Any:
    """Curves of one task as `plots.patching_curves` draws them, with 95 % intervals over examples and seeds.

    Args:
        sets: One for each seed, all of one question and task.
        metric: `first_token` or `answer_log_prob`.

    Returns:
        A `plots.CurvePanel`.

    Raises:
        UserError: No curves, or curves of several tasks or questions.

    Example:
        plots.patching_curves({"antonym": curve_panel([curves])}, ylabel="first token right")
    """
    if len({(one.task, one.question) for one in sets}) != 1:
        raise UserError(
            "Cannot draw the curves together: give those of one task and one question, one set for each seed."
        )
    return _drawn(panel_of(sets[0].task, {sets[0].task: sets}, metric))


Figures = dict[str, tuple[Any, dict[str, Any]]]


def make_figures(pieces: Sequence[Piece], adapters: Mapping[tuple[str, int], Adapter], out: Path) -> Figures:
    """Curves of every question and metric, and the maps of each swept task, with the numbers they are drawn from."""
    from site_interp.plots import effect_map, patching_curve, patching_curves

    figures: Figures = {}
    model = pieces[0].unit.model
    for question, by_task in read_curves(pieces, out).items():
        for metric in CURVE_METRICS:
            panels = summarise_curves(by_task, metric)
            numbers = {
                "model": model,
                "question": question,
                "metric": metric,
                "panels": list(map(panel_values, panels)),
            }
            task = "" if len(panels) > 1 else f", {panels[0].task}"
            counts = sorted({panel.lines[0].intervals[0].n for panel in panels if panel.task != MEAN})
            asked = f"{' to '.join(map(str, (counts[0], counts[-1])[: len(counts)]))} inputs"
            asked += "" if panels[0].n_seeds == 1 else f", {panels[0].n_seeds} seeds"
            title = f"{model}{task}: {TITLES[question]} ({asked})"
            short = short_names(panel.task for panel in panels)
            drawn = {short[panel.task]: _drawn(panel) for panel in panels}
            figures[f"patching_{question}_{metric}"] = (
                patching_curves(drawn, ylabel=AXIS[metric], title=title)
                if len(drawn) > 1
                else patching_curve(
                    (only := next(iter(drawn.values()))).lines,
                    band=only.band,
                    references=only.references,
                    ylabel=AXIS[metric],
                    title=title,
                ),
                numbers,
            )
    short = short_names(piece.unit.task.name for piece in pieces)
    for unit in dict.fromkeys(piece.unit for piece in pieces if piece.first):
        alpha = adapters[unit.task.name, unit.seed].selection.alpha
        figures[f"alpha_{unit.task.name}"] = alpha_figure(unit, alpha, short[unit.task.name])
        effects = read_effects(pieces, unit, out)
        correlations = effect_correlations(effects, adapters[unit.task.name, unit.seed])
        for kind, found in effects.items():
            n = len(found.values)
            title = f"{short[unit.task.name]}: {EFFECT_TITLES[kind]} ({model}, {n} prompts)"
            figures[f"effects_{kind}_{unit.task.name}"] = (
                effect_map(found.mean, title=title),
                {
                    "model": model,
                    "task": unit.task.name,
                    "seed": unit.seed,
                    "kind": kind,
                    "unit": "nats",
                    "n_prompts": n,
                    "effects": found.mean.tolist(),
                    "spearman_with_alpha": correlations[kind],
                },
            )
    return figures


def _drawn(panel: Panel) -> Any:
    from site_interp.plots import CurveBand, CurveLine, CurvePanel

    lines = [
        CurveLine(
            line.name,
            line.shares,
            line.ks,
            [interval.value for interval in line.intervals],
            [interval.low for interval in line.intervals],
            [interval.high for interval in line.intervals],
        )
        for line in panel.lines
    ]
    chance = panel.chance
    band = None
    if chance is not None:
        band = CurveBand("random", chance.shares, chance.means, chance.lows, chance.highs, chance.n_draws)
    return CurvePanel(lines, band, [(line.name, line.intervals[0].value) for line in panel.references])
