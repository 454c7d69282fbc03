"""Patching curves over seeds and tasks, with intervals and chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from site_interp.adapter import Adapter
from site_interp.comparison import Interval, nested_mean
from site_interp.experiments.patch import QUESTIONS, Piece, curves_from, read_effects
from site_interp.metrics import Metric
from site_interp.patching import RANDOM_SHARES, CurveSet, HeadEffects
from site_interp.similarity import spearman
from site_interp.unit_files import read_unit

MEAN = "mean of tasks"
BAND = (5, 95)  # percentiles of the random draws


@dataclass(frozen=True)
class Line:
    """One curve over seeds: intervals over examples and seeds, of a mean over tasks as well.

    Args:
        name: The ranking, or `fitted adapter`, `zero-shot`, `10-shot` for a reference without shares.
        shares, ks: In percent and in heads.
        intervals: One for each share.
        area: Mean score over the shares from 0 to 100 %, for a ranking.
    """

    name: str
    shares: tuple[int | float, ...]
    ks: tuple[int, ...]
    intervals: tuple[Interval, ...]
    area: Interval | None = None


@dataclass(frozen=True)
class Chance:
    """Scores of random sets: mean and percentiles over the draws."""

    shares: tuple[int | float, ...]
    ks: tuple[int, ...]
    means: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    n_draws: int


@dataclass(frozen=True)
class Panel:
    """All curves of one question on one task, or on the mean of all.

    Args:
        task: Name of the task, or `mean of tasks`.
        question, metric: What was asked, and scored.
        n_seeds: Seeds.
        lines: One for each ranking.
        references: Scores without patching.
        chance: Random sets of the first seed; None where none were drawn.
    """

    task: str
    question: str
    metric: Metric
    n_seeds: int
    lines: tuple[Line, ...]
    references: tuple[Line, ...]
    chance: Chance | None

    def at(self, name: str, share: int | float) -> Interval:
        """The score of one ranking at one share."""
        line = next(line for line in self.lines if line.name == name)
        return line.intervals[line.shares.index(share)]


def read_curves(pieces: Sequence[Piece], out: Path) -> dict[str, dict[str, list[CurveSet]]]:
    """What is kept in `out`: question -> task -> one curve set for each seed."""
    found: dict[str, dict[str, list[CurveSet]]] = {}
    for piece in pieces:
        if piece.question in QUESTIONS and (values := read_unit(piece.path(out), piece.hash)) is not None:
            found.setdefault(piece.question, {}).setdefault(piece.unit.task.name, []).append(curves_from(values))
    return found


def summarise_curves(by_task: Mapping[str, Sequence[CurveSet]], metric: Metric) -> list[Panel]:
    """A panel for each task, and for their mean where there are several."""
    panels = [panel_of(task, {task: sets}, metric) for task, sets in by_task.items()]
    if len(by_task) > 1:
        panels.append(panel_of(MEAN, by_task, metric))
    return panels


def panel_of(name: str, by_task: Mapping[str, Sequence[CurveSet]], metric: Metric) -> Panel:
    """All curves of the tasks under one name, with what stands beside them."""
    several = [sets for group in by_task.values() for sets in group]
    # A ranking is drawn where every task has it; sweeps are made for the first seed only.
    common = [
        curve.name
        for curve in several[0].curves
        if all(any(curve.name in {c.name for c in sets.curves} for sets in group) for group in by_task.values())
    ]
    references = [reference for reference in several[0].references if all(reference in s.references for s in several)]
    return Panel(
        name,
        several[0].question,
        metric,
        min(len(group) for group in by_task.values()),
        tuple(_line(ranking, by_task, metric) for ranking in common),
        tuple(
            Line(one, (), (), (nested_mean({t: [s.references[one][metric] for s in g] for t, g in by_task.items()}),))
            for one in references
        ),
        _chance([group[0] for group in by_task.values()], metric),
    )


def _line(ranking: str, by_task: Mapping[str, Sequence[CurveSet]], metric: Metric) -> Line:
    curves = {
        task: [curve for sets in group for curve in sets.curves if curve.name == ranking]
        for task, group in by_task.items()
    }
    points = next(iter(curves.values()))[0].points
    shares = np.array([point.share / 100 for point in points])
    scores = {
        task: np.array([[point.scores[metric] for point in curve.points] for curve in several])
        for task, several in curves.items()
    }  # [seed share example]
    areas = {task: np.trapezoid(table, shares, axis=1) for task, table in scores.items()}
    return Line(
        ranking,
        tuple(point.share for point in points),
        tuple(point.k for point in points),
        tuple(nested_mean({t: table[:, place] for t, table in scores.items()}) for place in range(len(points))),
        nested_mean(areas),
    )


def _chance(sets: Sequence[CurveSet], metric: Metric) -> Chance | None:
    """Random sets of each task's first seed; with several tasks each draw is the mean over them."""
    if not all(one.draws for one in sets):
        return None
    by_share = {
        share: np.mean([[np.mean(d.scores[metric]) for d in one.draws if d.share == share] for one in sets], axis=0)
        for share in RANDOM_SHARES
    }
    k_of = {draw.share: draw.k for draw in sets[0].draws}
    return Chance(
        tuple(by_share),
        tuple(k_of[share] for share in by_share),
        tuple(float(values.mean()) for values in by_share.values()),
        tuple(float(np.percentile(values, BAND[0])) for values in by_share.values()),
        tuple(float(np.percentile(values, BAND[1])) for values in by_share.values()),
        len(next(iter(by_share.values()))),
    )


def effect_correlations(effects: Mapping[str, HeadEffects], adapter: Adapter) -> dict[str, float]:
    """Spearman correlation over the heads of each effect map with the logits of alpha."""
    logits = np.asarray(adapter.selection.logits, dtype=np.float64)
    return {kind: spearman(np.asarray(found.mean, dtype=np.float64), logits) for kind, found in effects.items()}


@dataclass(frozen=True)
class RankedHead:
    """A head in the order of alpha.

    Args:
        layer, head: Which.
        alpha: In the task's adapter.
        effect: Of this head alone in zero-shot prompts, in nats.
    """

    layer: int
    head: int
    alpha: float
    effect: float


def ranked_heads(
    pieces: Sequence[Piece], adapters: Mapping[tuple[str, int], Adapter], out: Path
) -> dict[str, list[RankedHead]]:
    """All heads of each task by the adapter of the first seed, the highest alpha first."""
    found = {}
    for unit in dict.fromkeys(piece.unit for piece in pieces if piece.first):
        selection = adapters[unit.task.name, unit.seed].selection
        effects = read_effects(pieces, unit, out)["zero_shot"].mean
        found[unit.task.name] = [
            RankedHead(layer, head, float(selection.alpha[layer, head]), float(effects[layer, head]))
            for layer, head in selection.ranking()
        ]
    return found


def panel_values(panel: Panel) -> dict[str, Any]:
    """A panel as JSON values."""
    return {
        "task": panel.task,
        "n_seeds": panel.n_seeds,
        "lines": {
            line.name: {
                "shares": line.shares,
                "k": line.ks,
                "scores": [one.as_values() for one in line.intervals],
                "area": line.area.as_values() if line.area else None,
            }
            for line in panel.lines
        },
        "references": {line.name: line.intervals[0].as_values() for line in panel.references},
        "random": vars(panel.chance) if panel.chance else None,
    }
