"""Overlap of tasks, stability over seeds and the catalogue of heads, as figures and JSON values."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from site_interp.adapter import Adapter
from site_interp.experiments.head_pieces import TaskHeads
from site_interp.experiments.overlap import CatalogueEntry, Overlap
from site_interp.similarity import Stability, cluster
from site_interp.tasks import short_names

Figures = dict[str, tuple[Any, dict[str, Any]]]
MEASURES = {
    "jaccard": "Jaccard similarity of the top {k} heads",
    "weighted_jaccard": "weighted Jaccard similarity of alpha",
    "cosine": "cosine of alpha",
    "spearman": "Spearman correlation of alpha",
}


def make_figures(
    found: Overlap,
    adapters: Sequence[Adapter],
    entries: Sequence[CatalogueEntry],
    stabilities: Mapping[str, Stability],
    model: str,
) -> Figures:
    """Matrices in the order of the clustering, the distribution of alpha, stability, and the catalogue."""
    from site_interp.plots import CatalogueRow, alpha_distribution, head_catalogue, interval_bars, task_matrix

    short = short_names(found.tasks)
    names = list(short.values())
    numbers = overlap_values(found, stabilities, model)
    shared: dict[str, Any] = {
        "row_title": "task",
        "column_title": "task",
    }
    figures: Figures = {}
    for measure, words in MEASURES.items():
        label, values = words.format(k=found.k), found.matrix(measure)
        tree = cluster(values)
        chance = f" (chance {found.chance.jaccard:.2f})" if measure == "jaccard" else ""
        signed = measure == "spearman"
        figures[f"overlap_{measure}"] = (
            task_matrix(
                values, names, names, label=label, low=-1 if signed else 0, diverging=signed,
                title=f"{model}: {label}{chance}", order=tree.order, merges=tree.merges, **shared,
            ),
            {**numbers, "measure": measure, "order": tree.order, "values": values.tolist()},
        )  # fmt: skip
    tree = cluster(found.embeddings)
    figures["overlap_embeddings"] = (
        task_matrix(
            found.embeddings, names, names, label="cosine of the task embeddings", low=-1, diverging=True,
            title=f"{model}: cosine of the task embeddings, all heads", order=tree.order, merges=tree.merges, **shared,
        ),
        {**numbers, "measure": "embedding cosine", "order": tree.order, "values": found.embeddings.tolist()},
    )  # fmt: skip
    alphas = {short[one.embedding.task]: one.selection.alpha for one in adapters}
    figures["alpha_distribution"] = (
        alpha_distribution(alphas, title=f"{model}: alpha of all heads, seed {found.seed}"),
        {"model": model, "seed": found.seed, "shapes": {task: asdict(shape) for task, shape in found.shapes.items()}},
    )
    if any(entry.n_tasks for entry in entries):
        rows = [
            CatalogueRow(
                entry.layer,
                entry.head,
                {short[task]: alpha for task, alpha in entry.alphas.items()},
                entry.n_tasks,
                entry.induction,
                entry.previous,
            )
            for entry in entries
        ]
        figures["head_catalogue"] = (
            head_catalogue(rows, title=f"{model}: heads by the number of tasks that use them (alpha above 0.5)"),
            {"model": model, "heads": [asdict(entry) for entry in entries]},
        )
    if stabilities:
        figures["stability"] = (
            interval_bars(
                [one.jaccard for one in stabilities.values()],
                [one.lowest for one in stabilities.values()],
                [one.highest for one in stabilities.values()],
                [short[task] for task in stabilities],
                ylabel=f"Jaccard similarity of the top {found.k} heads",
                chance=found.chance.jaccard,
                title=f"{model}: how far seeds agree on the heads (lowest to highest pair)",
            ),
            numbers,
        )
    return figures


def overlap_values(found: Overlap, stabilities: Mapping[str, Stability], model: str) -> dict[str, Any]:
    """Everything as JSON values."""
    return {
        "model": model,
        "seed": found.seed,
        "tasks": found.tasks,
        "k": found.k,
        "chance": asdict(found.chance),
        "pairs": [asdict(pair) for pair in found.pairs],
        "order": found.clustering.order,
        "shapes": {task: {**asdict(shape), "near_binary": shape.near_binary} for task, shape in found.shapes.items()},
        "stability": {task: asdict(one) for task, one in stabilities.items()},
    }


def spread_values(heads: Sequence[TaskHeads], adapters: Mapping[str, Adapter]) -> dict[str, dict[str, float]]:
    """Spread of each task's embedding over its prompts, mean over all heads and over those the task uses."""
    found = {}
    for one in heads:
        used = np.asarray(adapters[one.task].selection.alpha) > 0.5
        found[one.task] = {
            "deviation": float(one.deviation.mean()),
            "split_half": float(one.split_half.mean()),
            "deviation_used": float(one.deviation[used].mean()) if used.any() else float("nan"),
            "split_half_used": float(one.split_half[used].mean()) if used.any() else float("nan"),
        }
    return found


def catalogue_csv(entries: Sequence[CatalogueEntry]) -> str:
    """The catalogue as a table, one line for each head, those that most tasks use first."""
    text = io.StringIO()
    first = entries[0]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["head", "layer", "index", "n_tasks", "induction", "previous_token"]
        + [f"alpha {task}" for task in first.alphas]
        + [f"attention to {part}" for part in first.looks_at]
    )
    for entry in entries:
        writer.writerow(
            [f"L{entry.layer}H{entry.head}", entry.layer, entry.head, entry.n_tasks]
            + [f"{value:.4f}" for value in (entry.induction, entry.previous)]
            + [f"{value:.4f}" for value in (*entry.alphas.values(), *entry.looks_at.values())]
        )
    return text.getvalue()
