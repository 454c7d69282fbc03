"""Transfer matrices over tasks with their intervals and chance, as figures and as rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from site_interp.adapter import Adapter
from site_interp.comparison import Interval, nested_mean
from site_interp.errors import UserError
from site_interp.experiments.overlap import Correlation, overlap, transfer_correlation
from site_interp.experiments.transfer import Column, TransferSettings, measure_column
from site_interp.metrics import Metric
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance, advancing
from site_interp.tasks import Task, check_several, short_names

Array = npt.NDArray[np.float64]
COLOURS = {"own alpha": "#0072b2", "one alpha for all": "#56b4e9", "shuffled alphas": "#9aa0a6"}
ENOUGH = 0.1  # a diagonal below says nothing about the share of it that another task's heads reach
MATRIX_KINDS = {
    "soft": "alpha of the source, embedding of the target",
    "top_k": "top heads of the source, embedding of the target",
    "counterpart": "embedding of the source, alpha of the target",
}


@dataclass(frozen=True)
class Transfer:
    """Scores of every source on every target, over seeds.

    Args:
        tasks: Rows (sources) and columns (targets).
        metric: What is scored.
        k: Heads of a top-k mask.
        n_seeds: Seeds.
        matrices: For each kind its intervals by (source, target).
        own, shuffled, joint: For each target its own heads, the same alphas on random heads, one alpha for all tasks.
    """

    tasks: tuple[str, ...]
    metric: Metric
    k: int
    n_seeds: int
    matrices: Mapping[str, Mapping[tuple[str, str], Interval]]
    own: Mapping[str, Interval]
    shuffled: Mapping[str, Interval]
    joint: Mapping[str, Interval]

    def __repr__(self) -> str:
        wins = len(self.diagonal_wins("soft"))
        return (
            f"Transfer({len(self.tasks)} tasks, {self.metric}, seeds {self.n_seeds}, k {self.k}: own heads highest on "
            f"{wins} of {len(self.tasks)})"
        )

    def values(self, kind: str) -> Array:
        """Raw scores [source target].

        Raises:
            UserError: Another kind than soft, top_k and counterpart.
        """
        if kind not in self.matrices:
            raise UserError(f"Cannot give the transfer {kind!r}: there are {', '.join(self.matrices)}.")
        found = self.matrices[kind]
        return np.array([[found[source, target].value for target in self.tasks] for source in self.tasks])

    def relative(self, kind: str) -> Array:
        """Scores as a share of the target's own [source target]; nan where its own is not above 0.1."""
        return self.values(kind) / self.own_scores()

    def own_scores(self) -> Array:
        """Scores of each target's own heads [target]; nan where they are not above 0.1."""
        own = np.array([self.own[task].value for task in self.tasks])
        return np.where(own > ENOUGH, own, np.nan)

    def diagonal_wins(self, kind: str) -> list[str]:
        """Targets on which no other source scores higher than their own heads."""
        raw = self.values(kind)
        return [task for place, task in enumerate(self.tasks) if raw[place, place] >= raw[:, place].max()]


def summarise_transfer(columns: Sequence[Column], metric: Metric = "first_token") -> Transfer:
    """Intervals over examples and seeds of everything that was measured."""
    tasks = tuple(dict.fromkeys(column.target for column in columns))
    rows: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for column in columns:
        shuffled = [row.scores[metric] for row in column.rows if row.kind == "shuffled"]
        if shuffled:
            rows.setdefault(("shuffled", "", column.target), []).append(tuple(np.mean(shuffled, axis=0).tolist()))
        for row in column.rows:
            if row.kind != "shuffled":
                rows.setdefault((row.kind, row.source, column.target), []).append(row.scores[metric])
    intervals = {key: nested_mean({key[2]: several}) for key, several in rows.items()}
    return Transfer(
        tasks,
        metric,
        columns[0].k,
        len({column.seed for column in columns}),
        {
            kind: {(source, target): intervals[kind, source, target] for source in tasks for target in tasks}
            for kind in MATRIX_KINDS
        },
        {task: intervals["soft", task, task] for task in tasks},
        {task: intervals["shuffled", "", task] for task in tasks if ("shuffled", "", task) in intervals},
        {task: intervals["joint", "", task] for task in tasks if ("joint", "", task) in intervals},
    )


def overlap_correlation(transfer: Transfer, adapters: Mapping[tuple[str, int], Adapter]) -> Correlation:
    """Rank correlation of what tasks share (Jaccard of their top k, mean over seeds) with how far heads transfer.

    Args:
        transfer: What was measured; scores count as a share of the target's own.
        adapters: The adapter of each (task, seed).
    """
    seeds = dict.fromkeys(seed for _, seed in adapters)
    groups = [[adapters[task, seed] for task in transfer.tasks] for seed in seeds]
    similarity = np.mean([overlap(group, k=transfer.k).matrix() for group in groups], axis=0)
    return transfer_correlation(similarity, transfer.relative("soft"))


def transfer(
    model: Model,
    tasks: Sequence[Task],
    adapters: Sequence[Adapter],
    *,
    settings: TransferSettings = TransferSettings(),  # noqa: B008 - a frozen value
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> Transfer:
    """The heads of each task on every other, with the target's own embedding, and the other way round.

    Args:
        model: Left as it is.
        tasks: Two or more.
        adapters: One for each task, all of one seed.
        settings: What is measured; one alpha for all tasks is fitted by `site-interp transfer` only.
        memory: Budget in bytes, beside the model.
        progress: Called with the targets done; by default a bar is shown.

    Raises:
        UserError: Fewer than two tasks, a task without its adapter or with two, adapters of several seeds, or of
            another model or split.

    Example:
        found = transfer(model, [task_a, task_b], [adapter_a, adapter_b])
        found.values("soft")  # [source target]
    """
    check_several([task.name for task in tasks])
    sources = {adapter.embedding.task: adapter for adapter in adapters}
    seeds = {adapter.selection.seed for adapter in adapters}
    if len(sources) < len(adapters) or len(seeds) > 1:
        raise UserError(
            f"Cannot transfer heads between {len(adapters)} adapters of {len(sources)} tasks and {len(seeds)} seeds. "
            "Give one for each task, all of one seed."
        )
    sources = {task.name: sources[task.name] for task in tasks if task.name in sources}
    with advancing(len(tasks), "transferring", progress) as advance:
        columns = []
        for task in tasks:
            columns.append(measure_column(model, task, sources, settings=settings, memory=memory))
            advance(1)
    return summarise_transfer(columns)


Figures = dict[str, tuple[Any, dict[str, Any]]]


def make_figures(transfer: Transfer, model: str, correlation: Correlation) -> Figures:
    """The matrices, their shares of the diagonal, and own against joint and shuffled alphas."""
    from site_interp.plots import AccuracyRow, accuracy_bars, task_matrix

    names = list(short_names(transfer.tasks).values())
    words: dict[str, Any] = {"row_title": "source of the heads", "column_title": "target task"}
    numbers = transfer_values(transfer, model, correlation)
    # Two more rows under the sources: what no choice of heads for this very task reaches.
    beside = {
        name: np.array([by_task[task].value for task in transfer.tasks])
        for name, by_task in (("one alpha for all", transfer.joint), ("shuffled alphas", transfer.shuffled))
        if by_task
    }
    figures: Figures = {}
    for kind, meaning in MATRIX_KINDS.items():
        row_title = "source of the embedding" if kind == "counterpart" else words["row_title"]
        label = "first token right" if transfer.metric == "first_token" else "log-probability, nats"
        title = f"{model}: {meaning}" + (f" (k = {transfer.k})" if kind == "top_k" else "")
        raw, rows = transfer.values(kind), names
        if kind == "soft":
            raw, rows = np.vstack([raw, *beside.values()]), names + list(beside)
        figures[f"transfer_{kind}"] = (
            task_matrix(
                raw,
                rows,
                names,
                row_title=row_title,
                column_title=words["column_title"],
                label=label,
                title=title,
            ),
            {**numbers, "kind": kind, "rows": rows, "values": raw.tolist()},
        )
    share = np.vstack([transfer.relative("soft"), *(line / transfer.own_scores() for line in beside.values())])
    figures["transfer_relative"] = (
        task_matrix(
            share, names + list(beside), names, **words, label="share of the target's own", high=1,
            title=f"{model}: alpha of the source, as a share of the target's own"
            + (" (grey: its own is at most 0.1)" if np.isnan(share).any() else ""),
        ),
        {**numbers, "kind": "soft, share of the diagonal", "rows": names + list(beside), "values": share.tolist()},
    )  # fmt: skip
    kinds = (("own alpha", transfer.own), ("one alpha for all", transfer.joint), ("shuffled alphas", transfer.shuffled))
    bars = [
        AccuracyRow(name, what, by_task[task].value, by_task[task].low, by_task[task].high)
        for what, by_task in kinds
        for task, name in zip(transfer.tasks, names, strict=True)
        if task in by_task
    ]
    figures["transfer_joint"] = (
        accuracy_bars(
            bars,
            colours=COLOURS,
            metric="first token right",
            title=f"{model}: own alpha, one alpha for all tasks, and shuffled alphas",
        ),
        numbers,
    )
    return figures


def transfer_values(transfer: Transfer, model: str, correlation: Correlation) -> dict[str, Any]:
    """Everything as JSON values."""
    return {
        "model": model,
        "metric": transfer.metric,
        "tasks": transfer.tasks,
        "k": transfer.k,
        "n_seeds": transfer.n_seeds,
        "cells": [
            {"kind": kind, "source": source, "target": target, **found.as_values()}
            for kind, cells in transfer.matrices.items()
            for (source, target), found in cells.items()
        ],
        "overlap_correlation": asdict(correlation),
        "diagonal_wins": {kind: transfer.diagonal_wins(kind) for kind in MATRIX_KINDS},
        "own": {task: found.as_values() for task, found in transfer.own.items()},
        "shuffled": {task: found.as_values() for task, found in transfer.shuffled.items()},
        "joint": {task: found.as_values() for task, found in transfer.joint.items()},
    }
