"""Which heads tasks share, how stable each selection is, and a catalogue of all heads: read from adapters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, zscore

from site_interp.adapter import Adapter
from site_interp.errors import UserError
from site_interp.experiments.head_pieces import ModelScores, TaskHeads
from site_interp.patching import n_of_share
from site_interp.similarity import (
    AlphaShape,
    Chance,
    Clustering,
    PairOverlap,
    Stability,
    alpha_shape,
    as_matrix,
    chance_overlap,
    cluster,
    cosine,
    pairwise_overlap,
    spearman,
    stability,
)

Array = npt.NDArray[np.float64]
MEASURES = ("jaccard", "weighted_jaccard", "cosine", "spearman", "p_corrected")
USED = 0.5  # a task uses a head if its alpha is above


@dataclass(frozen=True)
class Overlap:
    """Similarity of the head selections of several tasks.

    Args:
        tasks: In the order given.
        seed: Seed of the adapters compared; None where they have different ones.
        k: Heads in a set.
        chance: What independent sets of k heads share.
        pairs: Every pair.
        clustering: Tasks grouped by the Jaccard similarity.
        embeddings: Cosine of the task embeddings, all heads side by side [task task].
        shapes: Distribution of alpha for each task.
    """

    tasks: tuple[str, ...]
    seed: int | None
    k: int
    chance: Chance
    pairs: tuple[PairOverlap, ...]
    clustering: Clustering
    embeddings: Array
    shapes: Mapping[str, AlphaShape]

    def __repr__(self) -> str:
        above = sum(pair.p_corrected < 0.05 for pair in self.pairs)
        return (
            f"Overlap({len(self.tasks)} tasks, top {self.k} heads: {above} of {len(self.pairs)} pairs share more than "
            f"chance (Jaccard {self.chance.jaccard:.2f}))"
        )

    def matrix(self, measure: str = "jaccard") -> Array:
        """One measure as a symmetric matrix [task task]: one of `MEASURES`.

        Raises:
            UserError: Another measure.
        """
        if measure not in MEASURES:
            raise UserError(f"Cannot give the matrix of {measure!r}: there are {', '.join(MEASURES)}.")
        return as_matrix(self.tasks, self.pairs, measure)


def overlap(adapters: Sequence[Adapter], *, k: int | None = None) -> Overlap:
    """Compare the heads that tasks use.

    Args:
        adapters: One for each task, all of one model.
        k: Heads in a set; by default 30 % of all.

    Raises:
        UserError: Fewer than two tasks, a task twice, adapters of different models, or k out of range.

    Example:
        plots.task_matrix(overlap([adapter_a, adapter_b]).matrix(), ...)
    """
    tasks = [adapter.embedding.task for adapter in adapters]
    if len(set(tasks)) < 2 or len(set(tasks)) < len(tasks):
        raise UserError(
            f"Cannot compare the heads of {', '.join(tasks) or 'no task'}: give the adapters of two or more tasks, "
            "one for each."
        )
    check_one_model(adapters)
    n_heads = adapters[0].selection.logits.numel()
    k = n_of_share(30, n_heads) if k is None else k
    check_k(k, n_heads)
    seeds = {adapter.selection.seed for adapter in adapters}
    alphas = [np.asarray(adapter.selection.alpha, dtype=np.float64) for adapter in adapters]
    found = pairwise_overlap(tasks, alphas, [adapter.selection.ranking() for adapter in adapters], k)
    targets = [np.asarray(adapter.embedding.mean, dtype=np.float64).ravel() for adapter in adapters]
    return Overlap(
        tuple(tasks),
        seeds.pop() if len(seeds) == 1 else None,
        k,
        chance_overlap(k, n_heads),
        tuple(found),
        cluster(as_matrix(tasks, found, "jaccard")),
        np.array([[cosine(a, b) for b in targets] for a in targets]),
        {task: alpha_shape(alpha) for task, alpha in zip(tasks, alphas, strict=True)},
    )


def check_k(k: int | None, n_heads: int) -> None:
    """Refuse sets of more heads than there are, or of none.

    Raises:
        UserError: Says how many there are.
    """
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= n_heads):
        raise UserError(f"Cannot compare sets of {k} heads: the model has {n_heads}. Give a number from 1 to that.")


def check_one_model(adapters: Sequence[Adapter]) -> None:
    """Refuse adapters of different models.

    Raises:
        UserError: Names two of them.
    """
    first = adapters[0].embedding
    for adapter in adapters[1:]:
        other = adapter.embedding
        if other.fingerprint.id != first.fingerprint.id:
            raise UserError(
                f"Cannot compare the heads of {first.task} and {other.task}: their adapters are of different models "
                f"({first.model} and {other.model}). Take all from one model."
            )


def seed_stability(adapters: Sequence[Adapter], *, k: int | None = None) -> Stability:
    """How far the seeds of one task agree on its heads.

    Args:
        adapters: Of one task with different seeds.
        k: Heads in a set; by default 30 % of all.

    Raises:
        UserError: Fewer than two seeds, or several tasks.
    """
    tasks = {adapter.embedding.task for adapter in adapters}
    seeds = {adapter.selection.seed for adapter in adapters}
    if len(tasks) != 1 or len(seeds) < 2 or len(seeds) < len(adapters):
        raise UserError(
            f"Cannot say how stable the heads of {', '.join(sorted(tasks)) or 'no task'} are: give the adapters of one "
            f"task with two seeds or more; there are {len(seeds)}."
        )
    check_one_model(adapters)
    n_heads = adapters[0].selection.logits.numel()
    k = n_of_share(30, n_heads) if k is None else k
    check_k(k, n_heads)
    logits = [np.asarray(adapter.selection.logits, dtype=np.float64) for adapter in adapters]
    return stability(logits, [adapter.selection.ranking() for adapter in adapters], k)


@dataclass(frozen=True)
class Correlation:
    """A rank correlation over pairs of tasks.

    Args:
        value: Spearman; nan where one side is constant.
        p_value: Share of relabellings of the tasks with a correlation as far from 0 (Mantel's test, two-sided). Pairs
            that share a task are not independent, and the usual p-value would be too small.
        n_pairs: Ordered pairs of different tasks.
    """

    value: float
    p_value: float
    n_pairs: int


def transfer_correlation(similarity: Array, transfer: Array, *, n_draws: int = 2000, seed: int = 0) -> Correlation:
    """Rank correlation of overlap with transfer over all ordered pairs of different tasks.

    Args:
        similarity: [task task].
        transfer: Score of the source's heads on the target [source target], the same tasks; pairs that are nan are
            left out.
        n_draws: Relabellings for the p-value.
        seed: Of the relabellings.

    Example:
        transfer_correlation(overlap(adapters).matrix(), transfer(model, tasks, adapters).relative("soft"))
    """
    apart = ~np.eye(len(similarity), dtype=bool) & np.isfinite(transfer)
    found = spearman(similarity[apart], transfer[apart]) if apart.any() else float("nan")
    if np.isnan(found):
        return Correlation(found, float("nan"), int(apart.sum()))
    chooser = np.random.default_rng(seed)
    orders = (chooser.permutation(len(similarity)) for _ in range(n_draws))
    ranks = rankdata([similarity[np.ix_(order, order)][apart] for order in orders], axis=1)  # all draws at once
    drawn = (zscore(ranks, axis=1) * zscore(rankdata(transfer[apart]))).mean(axis=1)
    as_far = np.abs(drawn) >= abs(found) - 1e-12
    return Correlation(found, float((1 + as_far.sum()) / (1 + n_draws)), int(apart.sum()))


@dataclass(frozen=True)
class CatalogueEntry:
    """One head over all tasks.

    Args:
        layer, head: Which.
        alphas: By task.
        n_tasks: Tasks that use it (alpha above 0.5).
        induction, previous: Its attention scores.
        looks_at: Its attention from the last token of few-shot prompts, by part of the prompt, mean over the tasks.
    """

    layer: int
    head: int
    alphas: Mapping[str, float]
    n_tasks: int
    induction: float
    previous: float
    looks_at: Mapping[str, float]


def catalogue(
    adapters: Sequence[Adapter], induction: Array, previous: Array, looks_at: Mapping[str, Array]
) -> list[CatalogueEntry]:
    """Every head with its alphas and what it attends to, those that most tasks use first.

    Args:
        adapters: One for each task, all of one model.
        induction, previous: Scores [layer head].
        looks_at: Shares [layer head] by part of the prompt.
    """
    check_one_model(adapters)
    alphas = {adapter.embedding.task: np.asarray(adapter.selection.alpha, dtype=np.float64) for adapter in adapters}
    shape = next(iter(alphas.values())).shape
    entries = [
        CatalogueEntry(
            layer,
            head,
            {task: float(alpha[layer, head]) for task, alpha in alphas.items()},
            sum(bool(alpha[layer, head] > USED) for alpha in alphas.values()),
            float(induction[layer, head]),
            float(previous[layer, head]),
            {part: float(shares[layer, head]) for part, shares in looks_at.items()},
        )
        for layer in range(shape[0])
        for head in range(shape[1])
    ]
    return sorted(entries, key=lambda entry: (-entry.n_tasks, -sum(entry.alphas.values()), entry.layer, entry.head))


def catalogue_of(adapters: Sequence[Adapter], heads: Sequence[TaskHeads], scores: ModelScores) -> list[CatalogueEntry]:
    """The catalogue of what was read of the model and of each task."""
    parts = heads[0].looks_at
    looks_at = {part: np.mean([one.looks_at[part] for one in heads], axis=0) for part in parts}
    return catalogue(adapters, scores.induction, scores.previous, looks_at)
