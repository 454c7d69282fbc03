"""What a catalogue of heads needs of the model: attention scores, where heads look in each task, how z spreads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from site_interp.adapter import Adapter
from site_interp.experiments.fit_units import Progress
from site_interp.experiments.plan import Unit, unit_cost
from site_interp.model import Model
from site_interp.patching import attention_by_role, embedding_spread, head_scores, head_writes
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.records import unit_hash
from site_interp.unit_files import read_unit, unit_path, write_unit

Array = npt.NDArray[np.float64]
KIND = "heads"
REVISION = 1
N_ATTENTION = 20  # few-shot prompts whose attention is read
N_WRITES = 10  # heads of the highest alpha whose output is read as tokens


@dataclass(frozen=True)
class TaskHeads:
    """What was read of one task's heads with one seed.

    Args:
        task: Name of the task.
        looks_at: Attention from the last token of few-shot prompts [layer head], by part of the prompt.
        deviation, split_half: Spread of the embedding's prompts [layer head].
        writes: For the heads of the highest alpha the tokens they promote and suppress.
    """

    task: str
    looks_at: Mapping[str, Array]
    deviation: Array
    split_half: Array
    writes: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class ModelScores:
    """Attention of each head on repeated random tokens [layer head]."""

    induction: Array
    previous: Array


def head_piece_costs(model: Model, units: Sequence[Unit], out: Path) -> tuple[float, float]:
    """The work of all tasks, and of those that `out` does not hold, in prefix tokens."""
    costs = {unit: 2 * unit_cost(model, unit).embedding for unit in units}
    missing = [cost for unit, cost in costs.items() if read_unit(*_place(unit, out)) is None]
    return sum(costs.values(), 0.0), sum(missing, 0.0)


def read_task_heads(
    model: Model,
    units: Sequence[Unit],
    adapters: Mapping[tuple[str, int], Adapter],
    out: Path,
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = Progress(),  # noqa: B008 - a frozen value
) -> list[TaskHeads]:
    """Read each task's heads, or what an earlier run kept of them.

    Args:
        model: Left as it is.
        units: One SITE unit for each task.
        adapters: The adapter of each (task, seed).
        out: Output folder, locked by the caller.
        memory: Budget in bytes, beside the model.
        progress: Where to report.
    """
    found = []
    for unit in units:
        path, hashed = _place(unit, out)
        if (values := read_unit(path, hashed)) is None:
            progress.say(f"heads of {unit.task.name}")
            values = _read(model, unit, adapters[unit.task.name, unit.seed], memory)
            write_unit(path, hashed, values)
        progress.advance(2 * unit_cost(model, unit).embedding)
        found.append(
            TaskHeads(
                values["task"],
                {role: np.array(shares) for role, shares in values["looks_at"].items()},
                np.array(values["deviation"]),
                np.array(values["split_half"]),
                tuple(values["writes"]),
            )
        )
    return found


def _place(unit: Unit, out: Path) -> tuple[Path, str]:
    hashed = unit_hash(fit=unit.fit_hash, revision=REVISION, kind=KIND)
    return unit_path(out, KIND, hashed, unit.task.name, f"seed-{unit.seed}"), hashed


def _read(model: Model, unit: Unit, adapter: Adapter, memory: int) -> dict[str, Any]:
    embedding = adapter.embedding
    shared: dict[str, Any] = {"n_shots": embedding.n_shots, "seed": unit.seed, "progress": _quiet}
    looks_at = attention_by_role(model, unit.task, embedding.template, n_prompts=N_ATTENTION, **shared)
    spread = embedding_spread(
        model, unit.task, n_prompts=max(2, embedding.n_prompts), template=embedding.template, memory=memory, **shared
    )
    writes = head_writes(model, embedding.mean, adapter.selection.ranking()[:N_WRITES])
    return {
        "task": unit.task.name,
        "looks_at": {role: _rounded(shares) for role, shares in looks_at.items()},
        "deviation": _rounded(spread.deviation),
        "split_half": _rounded(spread.split_half),
        "writes": [vars(one) for one in writes],
    }


def _quiet(_: int) -> None:
    """Progress is counted by tasks."""


def read_model_scores(model: Model, out: Path) -> ModelScores:
    """Induction and previous-token scores of every head, or what an earlier run kept of them."""
    hashed = unit_hash(model=model.fingerprint.id, dtype=model.dtype_name, revision=REVISION)
    path = unit_path(out, KIND, hashed, "attention-scores")
    if (values := read_unit(path, hashed)) is None:
        scores = head_scores(model)
        values = {"induction": _rounded(scores.induction), "previous": _rounded(scores.previous)}
        write_unit(path, hashed, values)
    return ModelScores(np.array(values["induction"]), np.array(values["previous"]))


def _rounded(values: Any) -> list[list[float]]:
    return [[round(float(value), 5) for value in row] for row in values]
