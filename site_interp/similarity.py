"""How alike head selections are: sets of top heads against chance, and the alphas themselves. Arithmetic only.

Chance for two sets of k of n heads drawn independently is hypergeometric.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.stats import hypergeom, spearmanr

Array = npt.NDArray[np.float64]
Heads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class PairOverlap:
    """How alike the selections of two tasks are.

    Args:
        first, second: The tasks.
        shared: Heads in both sets of k.
        jaccard: shared / (2 k - shared).
        p_value: Probability of so many shared heads or more by chance.
        p_corrected: The same, corrected for the number of pairs (Holm).
        weighted_jaccard: Sum of the smaller alphas over the sum of the larger ones.
        cosine, spearman: Of the alphas, and of their ranks.
    """

    first: str
    second: str
    shared: int
    jaccard: float
    p_value: float
    p_corrected: float
    weighted_jaccard: float
    cosine: float
    spearman: float


@dataclass(frozen=True)
class Chance:
    """What two independent sets of k of n heads have in common.

    Args:
        k, n: Heads in a set, heads in all.
        shared: Expected number of shared heads, k * k / n.
        jaccard: Expected Jaccard similarity.
    """

    k: int
    n: int
    shared: float
    jaccard: float


def chance_overlap(k: int, n: int) -> Chance:
    """Expected overlap of two independent sets of k of n heads.

    Raises:
        ValueError: k is not between 1 and n.

    Example:
        >>> chance_overlap(1, 2)
        Chance(k=1, n=2, shared=0.5, jaccard=0.5)
    """
    if not 1 <= k <= n:
        raise ValueError(f"Cannot draw {k} heads of {n}: give a number from 1 to {n}.")
    counts = np.arange(max(0, 2 * k - n), k + 1)
    jaccard = float((hypergeom.pmf(counts, n, k, k) * counts / (2 * k - counts)).sum())
    return Chance(k, n, k * k / n, round(jaccard, 12))


def overlap_p_value(shared: int, k: int, n: int) -> float:
    """Probability that two independent sets of k of n heads share so many or more.

    Example:
        >>> round(overlap_p_value(2, 2, 4), 6)  # one of the six pairs
        0.166667
    """
    return float(hypergeom.sf(shared - 1, n, k, k))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, step-down (Holm, 1979), in the order given.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = highest
    return corrected


def weighted_jaccard(first: Array, second: Array) -> float:
    """Sum of the smaller alphas over the sum of the larger ones; 1 where both are all 0.

    Example:
        >>> weighted_jaccard(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
        0.3333333333333333
    """
    larger = float(np.maximum(first, second).sum())
    return float(np.minimum(first, second).sum()) / larger if larger else 1.0


def cosine(first: Array, second: Array) -> float:
    """Cosine of the angle between two arrays; 0 where one is all 0."""
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float((first * second).sum()) / lengths if lengths else 0.0


def spearman(first: Array, second: Array) -> float:
    """Rank correlation of two arrays, equal values sharing their rank; nan where one is constant."""
    a, b = np.ravel(first), np.ravel(second)
    return float("nan") if np.ptp(a) == 0 or np.ptp(b) == 0 else float(spearmanr(a, b).statistic)


def pairwise_overlap(
    tasks: Sequence[str], alphas: Sequence[Array], rankings: Sequence[Heads], k: int
) -> list[PairOverlap]:
    """The overlap of every pair of tasks.

    Args:
        tasks: Their names, at least two.
        alphas: alpha [layer head] of each.
        rankings: All heads of each, the highest alpha first (`HeadSelection.ranking`).
        k: Heads in a set.

    Raises:
        ValueError: Fewer than two tasks, different models, or k out of range.
    """
    if len(tasks) < 2:
        raise ValueError("Cannot compare the heads of fewer than two tasks. Give two or more.")
    shapes = {alpha.shape for alpha in alphas}
    if len(shapes) != 1:
        raise ValueError(f"Cannot compare heads of different models: alphas have the shapes {sorted(shapes)}.")
    n = alphas[0].size
    chance_overlap(k, n)
    sets = [set(ranking[:k]) for ranking in rankings]
    pairs = list(combinations(range(len(tasks)), 2))
    shared = [len(sets[i] & sets[j]) for i, j in pairs]
    p_values = [overlap_p_value(count, k, n) for count in shared]
    return [
        PairOverlap(
            tasks[i],
            tasks[j],
            count,
            count / (2 * k - count),
            p_value,
            corrected,
            weighted_jaccard(alphas[i], alphas[j]),
            cosine(alphas[i], alphas[j]),
            spearman(alphas[i], alphas[j]),
        )
        for (i, j), count, p_value, corrected in zip(pairs, shared, p_values, holm(p_values), strict=True)
    ]


def as_matrix(tasks: Sequence[str], pairs: Sequence[PairOverlap], measure: str) -> Array:
    """One measure of all pairs as a symmetric matrix [task task], 1 on the diagonal."""
    place = {task: index for index, task in enumerate(tasks)}
    matrix = np.eye(len(tasks))
    for pair in pairs:
        i, j = place[pair.first], place[pair.second]
        matrix[i, j] = matrix[j, i] = getattr(pair, measure)
    return matrix


@dataclass(frozen=True)
class Clustering:
    """Tasks grouped by similarity.

    Args:
        order: Places of the tasks, similar ones side by side.
        merges: Average linkage, one row per merge: both clusters, their distance (1 - similarity), tasks in it.
    """

    order: tuple[int, ...]
    merges: Array


def cluster(similarity: Array) -> Clustering:
    """Hierarchical clustering (average linkage on 1 - similarity) with the leaves in the best order.

    Raises:
        ValueError: Not a symmetric matrix of two tasks or more, or a value that is not finite.
    """
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1] or len(similarity) < 2:
        raise ValueError(f"Cannot cluster a matrix of shape {similarity.shape}: it must be [task task], two or more.")
    if not np.isfinite(similarity).all() or not np.allclose(similarity, similarity.T):
        raise ValueError("Cannot cluster: the similarities are not finite, or not the same both ways.")
    distance = np.clip(1 - similarity, 0, None)
    np.fill_diagonal(distance, 0)
    merges = linkage(squareform(distance, checks=False), method="average", optimal_ordering=True)
    return Clustering(tuple(int(leaf) for leaf in leaves_list(merges)), merges)


@dataclass(frozen=True)
class AlphaShape:
    """How alpha is distributed over the heads.

    Args:
        near_zero, near_one: Shares of heads with alpha below 0.1 and above 0.9.
        mean: Mean alpha.
        by_layer: Mean alpha of each layer.
    """

    near_zero: float
    near_one: float
    mean: float
    by_layer: tuple[float, ...]

    @property
    def near_binary(self) -> float:
        """Share of heads that are near 0 or near 1."""
        return self.near_zero + self.near_one


def alpha_shape(alpha: Array) -> AlphaShape:
    """How one selection's alpha is distributed.

    Example:
        >>> alpha_shape(np.array([[0.0, 1.0], [0.5, 0.95]])).near_binary
        0.75
    """
    return AlphaShape(
        float((alpha < 0.1).mean()),
        float((alpha > 0.9).mean()),
        float(alpha.mean()),
        tuple(float(value) for value in alpha.mean(axis=1)),
    )


@dataclass(frozen=True)
class Stability:
    """How far seeds agree on the heads of one task; means over the pairs of seeds.

    Args:
        n_seeds: Seeds.
        spearman: Rank correlation of the logits.
        jaccard: Of the top k heads; `lowest` and `highest` over the pairs.
        chance: Jaccard expected of sets drawn at random.
    """

    n_seeds: int
    spearman: float
    jaccard: float
    lowest: float
    highest: float
    chance: float


def stability(logits: Sequence[Array], rankings: Sequence[Heads], k: int) -> Stability:
    """How far the seeds of one task agree.

    Raises:
        ValueError: Fewer than two seeds.
    """
    if len(logits) < 2:
        raise ValueError("Cannot say how stable a selection is from one seed. Fit two or more.")
    pairs = list(combinations(range(len(logits)), 2))
    shared = [len(set(rankings[i][:k]) & set(rankings[j][:k])) for i, j in pairs]
    jaccards = [count / (2 * k - count) for count in shared]
    return Stability(
        len(logits),
        float(np.mean([spearman(logits[i], logits[j]) for i, j in pairs])),
        float(np.mean(jaccards)),
        min(jaccards),
        max(jaccards),
        chance_overlap(k, logits[0].size).jaccard,
    )
