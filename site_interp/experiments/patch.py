"""Intra-task patching of tasks and seeds: every question on every adapter, each kept as soon as it is answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from site_interp.adapter import Adapter
from site_interp.errors import UserError
from site_interp.experiments.fit_units import Progress
from site_interp.experiments.plan import Unit, row_cost
from site_interp.model import Model
from site_interp.patching import (
    N_RANDOM,
    Curve,
    CurveSet,
    HeadEffects,
    Heads,
    Point,
    attribute_heads,
    icl_ablation_curves,
    n_scored,
    necessity_curves,
    rank_heads,
    sufficiency_curves,
    sweep_heads,
)
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.records import unit_hash
from site_interp.unit_files import read_unit, unit_path, write_unit

EFFECTS = ("zero_shot", "shuffled", "attribution")
QUESTIONS = ("sufficiency", "necessity", "icl_ablation_mean", "icl_ablation_zero")
REVISION = 1
KIND = "patching"  # folder of the pieces


@dataclass(frozen=True)
class PatchSettings:
    """How patching is done.

    Args:
        n_test: Test examples of a curve.
        n_queries: Validation inputs of a sweep.
        n_random: Random sets for each share, on the first seed.
    """

    n_test: int = 50
    n_queries: int = 25
    n_random: int = N_RANDOM

    def __post_init__(self) -> None:
        if self.n_test < 1 or self.n_queries < 1 or self.n_random < 0:
            raise UserError(
                f"Cannot patch heads on {self.n_test} examples and {self.n_queries} inputs with {self.n_random} random "
                "sets. Give one example and input or more, and 0 random sets or more."
            )


@dataclass(frozen=True)
class Piece:
    """One question about one adapter.

    Args:
        unit: The adapter's unit.
        question: One of `EFFECTS` or `QUESTIONS`.
        first: Whether the seed is the first: only then are heads swept and random sets drawn.
        settings: How.
    """

    unit: Unit
    question: str
    first: bool
    settings: PatchSettings

    @property
    def hash(self) -> str:
        """A hash of everything that changes its numbers."""
        n_test = len(self.unit.task.test_examples(self.settings.n_test))
        return unit_hash(
            fit=self.unit.fit_hash,
            question=self.question,
            first=self.first,
            n_test=n_test,
            n_queries=self.n_queries,
            n_random=self.settings.n_random,
            revision=REVISION,
        )

    @property
    def n_queries(self) -> int:
        """Validation inputs there are, of those asked for."""
        return min(self.settings.n_queries, len(self.unit.task.valid))

    @property
    def label(self) -> str:
        """The piece in words, for progress lines."""
        return f"{self.unit.task.name} seed {self.unit.seed}: {self.question}"

    def path(self, out: Path) -> Path:
        """Where it is kept."""
        return unit_path(out, KIND, self.hash, self.unit.task.name, f"seed-{self.unit.seed}", self.question)

    def done(self, out: Path) -> bool:
        """Whether it is kept in `out`."""
        return read_unit(self.path(out), self.hash) is not None


def plan_pieces(units: Sequence[Unit], settings: PatchSettings) -> list[Piece]:
    """Every question about every unit; sweeps only for the first seed."""
    first = units[0].seed if units else 0
    return [
        Piece(unit, question, unit.seed == first, settings)
        for unit in units
        for question in ((*EFFECTS, *QUESTIONS) if unit.seed == first else QUESTIONS)
    ]


def piece_cost(model: Model, piece: Piece) -> float:
    """The work of a piece, in prefix tokens."""
    if piece.question in EFFECTS:
        per_prompt = model.n_layers * model.n_heads / 2 if piece.question != "attribution" else 10
        return piece.n_queries * per_prompt * 1.5
    n_rankings = 2 if piece.question != "sufficiency" or not piece.first else 5
    n_examples = len(piece.unit.task.test_examples(piece.settings.n_test))
    pairs = n_scored(n_rankings, n_random=piece.settings.n_random if piece.first else 0, n_examples=n_examples)
    return row_cost(pairs * ANSWER_TOKENS, pairs / max(n_examples, 1))


ANSWER_TOKENS = 2  # the last prompt token and what is scored of an answer, on average


def run_pieces(
    model: Model,
    pieces: Sequence[Piece],
    adapters: Mapping[tuple[str, int], Adapter],
    out: Path,
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = Progress(),  # noqa: B008 - a frozen value
) -> None:
    """Answer every question that is not answered in `out`, in their order, and keep each answer.

    Args:
        model: Left as it is.
        pieces: From `plan_pieces`: the sweeps of a task come before the curves that are ranked by them.
        adapters: The adapter of each (task, seed).
        out: Output folder, locked by the caller.
        memory: Budget in bytes, beside the model.
        progress: Where to report.

    Raises:
        UserError: Too few examples, an adapter of another model, or a file that cannot be written.
    """
    for piece in pieces:
        cost = piece_cost(model, piece)
        if piece.done(out):
            progress.advance(cost)
            continue
        progress.say(piece.label)
        adapter = adapters[piece.unit.task.name, piece.unit.seed]
        if piece.question in EFFECTS:
            found = effects_values(_effects(model, piece, adapter, memory))
        else:
            ranked = rankings(adapter, read_effects(pieces, piece.unit, out))
            found = curve_values(_curves(model, piece, adapter, ranked, memory))
        write_unit(piece.path(out), piece.hash, found)
        progress.advance(cost)


def _effects(model: Model, piece: Piece, adapter: Adapter, memory: int) -> HeadEffects:
    task, embedding, seed = piece.unit.task, adapter.embedding, piece.unit.seed
    n, quiet = piece.n_queries, _quiet
    if piece.question == "attribution":
        return attribute_heads(model, task, embedding, n_prompts=n, seed=seed, memory=memory, progress=quiet)
    kind = piece.question
    return sweep_heads(model, task, embedding, kind=kind, n_prompts=n, seed=seed, memory=memory, progress=quiet)


def _quiet(_: int) -> None:
    """Progress is counted by pieces."""


def _curves(model: Model, piece: Piece, adapter: Adapter, ranked: Mapping[str, Heads], memory: int) -> CurveSet:
    task = piece.unit.task
    given: dict[str, Any] = {
        "n_random": piece.settings.n_random if piece.first else 0,
        "n_test": piece.settings.n_test,
        "memory": memory,
    }
    if piece.question == "sufficiency":
        return sufficiency_curves(model, task, adapter, ranked, **given)
    by_alpha = {name: heads for name, heads in ranked.items() if name.endswith("alpha")}
    if piece.question == "necessity":
        return necessity_curves(model, task, adapter, by_alpha, **given)
    to = piece.question.removeprefix("icl_ablation_")
    return icl_ablation_curves(model, task, adapter, by_alpha, to=to, **given)


EFFECT_NAMES = {
    "zero_shot": "indirect effect",
    "shuffled": "indirect effect (shuffled)",
    "attribution": "attribution",
}


def rankings(adapter: Adapter, effects: Mapping[str, HeadEffects]) -> dict[str, Heads]:
    """All heads by alpha from either end, and by each effect that is there, ties broken by the adapter's logits.

    Args:
        adapter: Gives the order by alpha.
        effects: By kind: `zero_shot`, `shuffled`, `attribution`; may be empty.

    Raises:
        UserError: Another kind.
    """
    if unknown := [kind for kind in effects if kind not in EFFECT_NAMES]:
        raise UserError(f"Cannot rank heads by {unknown[0]!r}: there are {', '.join(EFFECT_NAMES)}.")
    top = adapter.selection.ranking()
    logits = adapter.selection.logits
    return {
        "top alpha": top,
        "bottom alpha": top[::-1],
        **{EFFECT_NAMES[kind]: rank_heads(found.mean, logits) for kind, found in effects.items()},
    }


def read_effects(pieces: Sequence[Piece], unit: Unit, out: Path) -> dict[str, HeadEffects]:
    """The sweeps of a unit that are kept in `out`."""
    found = {}
    for piece in pieces:
        if piece.unit == unit and piece.question in EFFECTS:
            values = read_unit(piece.path(out), piece.hash)
            if values is not None:
                found[piece.question] = effects_from(values)
    return found


def effects_values(effects: HeadEffects) -> dict[str, Any]:
    """Effects as JSON values: six digits are more than their rounding."""
    rounded = torch.round(effects.values, decimals=6).tolist()
    return {
        "task": effects.task,
        "seed": effects.seed,
        "kind": effects.kind,
        "unit": "nats",
        "clean": effects.clean.tolist(),
        "effects": rounded,
    }


def effects_from(values: Mapping[str, Any]) -> HeadEffects:
    """Effects from their JSON values."""
    return HeadEffects(
        torch.tensor(values["effects"]), torch.tensor(values["clean"]), values["kind"], values["task"], values["seed"]
    )


def curve_values(curves: CurveSet) -> dict[str, Any]:
    """Curves as JSON values, with every example's score."""

    def point(one: Point) -> dict[str, Any]:
        return {"share": one.share, "k": one.k, "scores": dict(one.scores)}

    return {
        "question": curves.question,
        "task": curves.task,
        "seed": curves.seed,
        "n_heads": curves.n_heads,
        "curves": {curve.name: [point(one) for one in curve.points] for curve in curves.curves},
        "draws": [point(one) for one in curves.draws],
        "references": {name: dict(scores) for name, scores in curves.references.items()},
    }


def curves_from(values: Mapping[str, Any]) -> CurveSet:
    """Curves from their JSON values."""

    def point(one: Mapping[str, Any]) -> Point:
        return Point(one["share"], one["k"], {metric: tuple(scores) for metric, scores in one["scores"].items()})

    return CurveSet(
        values["question"],
        values["task"],
        values["seed"],
        values["n_heads"],
        tuple(Curve(name, tuple(map(point, points))) for name, points in values["curves"].items()),
        tuple(map(point, values["draws"])),
        {name: {metric: tuple(one) for metric, one in scores.items()} for name, scores in values["references"].items()},
    )
