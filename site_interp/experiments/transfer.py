"""Inter-task patching: the heads of one task on another, in both directions, against chance and one alpha for all."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.adapter import Adapter
from site_interp.errors import UserError
from site_interp.experiments.fit_units import Progress
from site_interp.experiments.plan import Unit, row_cost, unit_cost
from site_interp.fit_plan import FitRun
from site_interp.fitting import fit_joint_selection
from site_interp.metrics import Metric
from site_interp.model import Model
from site_interp.patching import n_of_share, score_alphas
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.records import unit_hash
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled, Task, check_several, sub_seed
from site_interp.unit_files import read_unit, unit_path, write_unit

KIND = "transfer"
REVISION = 1
ROW_KINDS = ("soft", "top_k", "counterpart", "shuffled", "joint")


@dataclass(frozen=True)
class TransferSettings:
    """How transfer is measured.

    Args:
        n_test: Test examples of each target task.
        share: Heads of a top-k mask, in percent.
        n_shuffled: How often the target's own alphas are dealt out anew among the heads, for chance.
        joint: Whether one alpha is fitted on all tasks together.
    """

    n_test: int = 50
    share: int | float = 30
    n_shuffled: int = 5
    joint: bool = True

    def __post_init__(self) -> None:
        n_of_share(self.share, 100)
        if self.n_test < 1 or self.n_shuffled < 0:
            raise UserError(
                f"Cannot measure transfer on {self.n_test} examples with {self.n_shuffled} shuffled alphas. Give one "
                "example or more, and 0 shuffled ones or more."
            )


@dataclass(frozen=True)
class Row:
    """Scores of one alpha on one target task.

    Args:
        kind: `soft` (alpha of the source, embedding of the target), `top_k` (a hard mask of the source's first heads),
            `counterpart` (embedding of the source, alpha of the target), `shuffled` (the target's alphas on other
            heads) or `joint` (one alpha for all tasks).
        source: The source task; the number of the draw for `shuffled`, empty for `joint`.
        scores: For each metric one score per test example of the target.
    """

    kind: str
    source: str
    scores: Mapping[Metric, tuple[float, ...]]


@dataclass(frozen=True)
class Column:
    """Everything measured on one target task with one seed."""

    target: str
    seed: int
    k: int
    rows: tuple[Row, ...]


def column_hash(units: Sequence[Unit], target: Unit, settings: TransferSettings) -> str:
    """A hash of everything that changes a column: all tasks that are sources, the target, and how."""
    return unit_hash(
        fits=sorted(unit.fit_hash for unit in units if unit.seed == target.seed),
        target=target.fit_hash,
        n_test=len(target.task.test_examples(settings.n_test)),
        share=settings.share,
        n_shuffled=settings.n_shuffled,
        joint=settings.joint,
        revision=REVISION,
    )


def column_place(units: Sequence[Unit], target: Unit, settings: TransferSettings, out: Path) -> tuple[Path, str]:
    """File and hash of a column."""
    hashed = column_hash(units, target, settings)
    return unit_path(out, KIND, hashed, target.task.name, f"seed-{target.seed}"), hashed


def column_cost(model: Model, n_tasks: int, target: Unit, settings: TransferSettings) -> float:
    """The work of a column, in prefix tokens."""
    n_sets = 3 * n_tasks + settings.n_shuffled + settings.joint
    n_examples = len(target.task.test_examples(settings.n_test))
    return row_cost(2 * n_sets * n_examples, n_sets)


def joint_cost(model: Model, units: Sequence[Unit], seed: int) -> float:
    """The work of fitting one alpha for all tasks."""
    return sum(unit_cost(model, unit).fitting for unit in units if unit.seed == seed)


def transfer_costs(model: Model, units: Sequence[Unit], settings: TransferSettings, out: Path) -> tuple[float, float]:
    """The work of all columns and joint fits, and of those that `out` does not hold, in prefix tokens."""
    everything = missing = 0.0
    for seed in dict.fromkeys(unit.seed for unit in units):
        group = [unit for unit in units if unit.seed == seed]
        if settings.joint:
            cost = joint_cost(model, group, seed)
            everything += cost
            missing += 0.0 if read_unit(*_joint_place(group, out)) else cost
        for unit in group:
            cost = column_cost(model, len(group), unit, settings)
            everything += cost
            missing += 0.0 if read_unit(*column_place(units, unit, settings, out)) else cost
    return everything, missing


def _joint_place(units: Sequence[Unit], out: Path) -> tuple[Path, str]:
    """File and hash of the joint alpha of a seed."""
    hashed = unit_hash(fits=sorted(unit.fit_hash for unit in units), joint=True, revision=REVISION)
    return unit_path(out, KIND, hashed, "joint", f"seed-{units[0].seed}"), hashed


def run_transfer(
    model: Model,
    units: Sequence[Unit],
    adapters: Mapping[tuple[str, int], Adapter],
    out: Path,
    *,
    settings: TransferSettings = TransferSettings(),
    fitting: FitSettings,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = Progress(),  # noqa: B008 - a frozen value
) -> list[Column]:
    """Measure every target task that is not measured in `out`, seed by seed, and keep each.

    Args:
        model: Left as it is.
        units: SITE units of at least two tasks.
        adapters: The adapter of each (task, seed).
        out: Output folder, locked by the caller.
        settings: What is measured.
        fitting: How the joint alpha is fitted.
        memory: Budget in bytes, beside the model.
        progress: Where to report.

    Raises:
        UserError: Fewer than two tasks, an adapter of another model, or a file that cannot be written.
    """
    check_several([unit.task.name for unit in units])
    columns = []
    for seed in dict.fromkeys(unit.seed for unit in units):
        group = [unit for unit in units if unit.seed == seed]
        sources = {unit.task.name: adapters[unit.task.name, seed] for unit in group}
        joint = _joint(model, group, sources, out, fitting, memory, progress) if settings.joint else None
        for unit in group:
            cost = column_cost(model, len(group), unit, settings)
            path, hashed = column_place(units, unit, settings, out)
            if (values := read_unit(path, hashed)) is None:
                progress.say(f"transfer to {unit.task.name}, seed {seed}")
                made = measure_column(model, unit.task, sources, joint=joint, settings=settings, memory=memory)
                values = column_values(made)
                write_unit(path, hashed, values)
            progress.advance(cost)
            columns.append(column_from(values))
    return columns


def measure_column(
    model: Model,
    task: Task,
    sources: Mapping[str, Adapter],
    *,
    joint: Float[Tensor, "layer head"] | None = None,
    settings: TransferSettings = TransferSettings(),
    memory: int = DEFAULT_MEMORY,
) -> Column:
    """Every source's heads on one target task.

    Args:
        model: Left as it is.
        task: The target.
        sources: Adapters by task, the target's own among them; all of one seed.
        joint: One alpha for all tasks, if there is one.
        settings: What is measured.
        memory: Budget in bytes, beside the model.

    Raises:
        UserError: No adapter of the target's own, adapters of another model, or no test examples.
    """
    if task.name not in sources:
        raise UserError(f"Cannot measure transfer to {task.name}: its own adapter is not among those given. Add it.")
    own, seed = sources[task.name], sources[task.name].selection.seed
    for adapter in sources.values():
        adapter.check_model(model)
    own.embedding.check_split(task, "Cannot measure transfer to", "adapter")
    alpha, t = own.selection.alpha, own.embedding.mean
    k = n_of_share(settings.share, alpha.numel())
    sets = [("soft", name, one.selection.alpha, t) for name, one in sources.items()]
    sets += [("top_k", name, one.selection.top(k), t) for name, one in sources.items()]
    sets += [("counterpart", name, alpha, one.embedding.mean) for name, one in sources.items()]
    sets += [("shuffled", str(draw), _shuffled(alpha, task, (seed, draw)), t) for draw in range(settings.n_shuffled)]
    sets += [("joint", "", joint, t)] if joint is not None else []
    examples = task.test_examples(settings.n_test)
    if not examples:
        raise UserError(f"Cannot measure transfer to {task.name}: it has no test examples. Add some.")
    prompts = own.prompts([example.input for example in examples])
    answers = [
        [model.answer_ids(prompt, own.template.answer(answer)) for answer in example.answers]
        for prompt, example in zip(prompts, examples, strict=True)
    ]
    targets, alphas = torch.stack([one[3] for one in sets]), torch.stack([one[2] for one in sets])
    found = score_alphas(model, prompts, answers, targets, alphas, memory=memory)
    rows = tuple(Row(kind, name, scores) for (kind, name, *_), scores in zip(sets, found, strict=True))
    return Column(task.name, seed, k, rows)


def _shuffled(
    alpha: Float[Tensor, "layer head"], task: Task, seed_draw: tuple[int, int]
) -> Float[Tensor, "layer head"]:
    """The same alphas dealt out anew among all heads, by seed and number of the draw."""
    seed, draw = seed_draw
    order = list(range(alpha.numel()))
    random.Random(sub_seed(seed, f"shuffled alpha {draw}", task.name)).shuffle(order)
    return alpha.flatten()[order].view_as(alpha)


def _joint(
    model: Model,
    units: Sequence[Unit],
    sources: Mapping[str, Adapter],
    out: Path,
    fitting: FitSettings,
    memory: int,
    progress: Progress,
) -> Float[Tensor, "layer head"]:
    """One alpha for all tasks of a seed, kept in `out`."""
    seed = units[0].seed
    path, hashed = _joint_place(units, out)
    cost = joint_cost(model, units, seed)
    if (values := read_unit(path, hashed)) is not None:
        progress.advance(cost)
        return torch.sigmoid(torch.tensor(values["logits"]))
    progress.say(f"one alpha for {len(units)} tasks, seed {seed}")
    runs = [FitRun(sources[unit.task.name].embedding, Labelled(unit.task), seed) for unit in units]
    steps = progress.steps(cost / (fitting.n_steps * len(runs)))
    selection = fit_joint_selection(model, runs, settings=fitting, memory=memory, progress=steps)
    assert selection.trace is not None
    write_unit(path, hashed, {"logits": selection.logits.tolist(), "chosen_step": selection.trace.chosen_step})
    return selection.alpha


def column_values(column: Column) -> dict[str, Any]:
    """A column as JSON values, with every example's score."""
    rows: list[dict[str, object]] = [
        {"kind": row.kind, "source": row.source, "scores": row.scores} for row in column.rows
    ]
    return {"target": column.target, "seed": column.seed, "k": column.k, "rows": rows}


def column_from(values: Mapping[str, Any]) -> Column:
    """A column from its JSON values."""
    rows = tuple(
        Row(row["kind"], row["source"], {metric: tuple(scores) for metric, scores in row["scores"].items()})
        for row in values["rows"]
    )
    return Column(values["target"], values["seed"], values["k"], rows)
