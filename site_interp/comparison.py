"""How sure a number is: bootstrap intervals over examples, seeds and tasks, and paired differences between methods.

Intervals are percentiles of means of resampled scores; equal arguments give equal intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = Sequence[float | int] | npt.NDArray[Any]
"""One score per example, in test order."""

SeedScores = Sequence[Scores] | npt.NDArray[Any]
"""Scores of one task: one row per seed, the same examples in the same order in every row."""

BLOCK_SIZE = 2_000_000  # resampled scores held in memory at once


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap interval.

    Args:
        value: The mean of the scores themselves.
        low, high: Ends of the interval, in the unit of the scores; nan where nothing could be resampled.
        n: How many units the mean is over: examples for one task, tasks for a mean over tasks.
    """

    value: float
    low: float
    high: float
    n: int

    def as_values(self) -> dict[str, float | int]:
        """The numbers as the records of a run name them."""
        return {"value": self.value, "ci_low": self.low, "ci_high": self.high, "n": self.n}


def bootstrap_mean(scores: Scores, *, n_draws: int = 2000, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean score of one task with an interval over its examples.

    One example says nothing about the spread, so its interval is (nan, nan). Scores that are all equal give an
    interval of width zero: the bootstrap cannot see what was never drawn.

    Args:
        scores: One finite score per example.
        n_draws: Resampled means to take.
        level: Share of the resampled means inside the interval, in (0, 1).
        seed: Seed of the resampling.

    Raises:
        ValueError: No scores, a score that is not finite, or `n_draws` or `level` out of range.

    Example:
        >>> bootstrap_mean([1.0, 1.0, 1.0])
        Interval(value=1.0, low=1.0, high=1.0, n=3)
    """
    table = _table("scores", [scores])
    _check_settings(n_draws, level)
    means = _resampled_means(table, n_draws, np.random.default_rng(seed))
    return _interval(float(table.mean()), means, level, n=table.shape[1], known=table.size > 1)


def paired_difference(a: Scores, b: Scores, *, n_draws: int = 2000, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean of a - b over the same examples; above zero means `a` scores higher.

    Args:
        a, b: One score per example, the same examples in the same order.
        n_draws, level, seed: As in `bootstrap_mean`.

    Raises:
        ValueError: `a` and `b` differ in length, or as in `bootstrap_mean`.

    Example:
        >>> paired_difference([1, 1, 0], [0, 0, -1])
        Interval(value=1.0, low=1.0, high=1.0, n=3)
    """
    difference = _difference("scores", [a], [b])
    return bootstrap_mean(difference[0], n_draws=n_draws, level=level, seed=seed)


def nested_mean(
    scores_by_task: Mapping[str, SeedScores], *, n_draws: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The mean over tasks of the mean over seeds and examples, each task counting the same.

    Each draw picks tasks with replacement and, for every pick anew, seeds and examples of that task. The seeds of a
    task were scored on the same examples, so one pick of examples serves all its seeds: seeds that agree do not
    make an interval narrower. With one task the interval is over its seeds and examples and says nothing of others;
    with one task and one seed it is that of `bootstrap_mean`. With about ten tasks or fewer it is somewhat too narrow,
    as percentile intervals of few units are.

    Args:
        scores_by_task: For each task its scores, one row per seed; tasks may differ in seeds and examples.
        n_draws, level, seed: As in `bootstrap_mean`.

    Raises:
        ValueError: No task, rows of one task that differ in length, or as in `bootstrap_mean`.

    Example:
        >>> nested_mean({"antonym": [[1, 1], [1, 1]], "capitalize": [[0, 0]]}).value
        0.5
    """
    return _nested(scores_by_task, n_draws, level, seed)[0]


def nested_difference(
    a: Mapping[str, SeedScores],
    b: Mapping[str, SeedScores],
    *,
    n_draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The mean of a - b over tasks, paired by task, seed and example; above zero means `a` scores higher.

    Both methods are resampled together, so what is hard for both does not widen the interval. A method with a single
    row for a task (one that takes no seed) is set against every seed of the other.

    Args:
        a, b: As in `nested_mean`; the same tasks, and for each task the same examples and seeds.
        n_draws, level, seed: As in `bootstrap_mean`.

    Raises:
        ValueError: Tasks, seeds or examples do not pair up, or as in `nested_mean`.
    """
    return nested_test(a, b, n_draws=n_draws, level=level, seed=seed)[0]


def nested_test(
    a: Mapping[str, SeedScores],
    b: Mapping[str, SeedScores],
    *,
    n_draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Interval, float]:
    """`nested_difference`, with the p-value of no difference.

    Two-sided, from the same draws: twice the share of draws on the other side of 0, those at 0 included, never below
    2 / (draws + 1). It is 1 where the methods never differ, nan where there is nothing to resample.

    Example:
        >>> nested_test({"t": [[1, 1, 1, 1]]}, {"t": [[0, 0, 0, 0]]})[1] < 0.01
        True
    """
    if a.keys() != b.keys():
        alone = ", ".join(sorted(a.keys() ^ b.keys()))
        raise ValueError(f"Cannot pair two methods: only one of them has scores for {alone}. Leave these tasks out.")
    differences = {task: _difference(f"task {task!r}", rows, b[task]) for task, rows in a.items()}
    interval, draws = _nested(differences, n_draws, level, seed)
    if np.isnan(interval.low):
        return interval, float("nan")
    fewer = min((draws <= 0).sum(), (draws >= 0).sum())
    return interval, float(min(1.0, 2 * (1 + fewer) / (1 + len(draws))))


def _nested(
    scores_by_task: Mapping[str, SeedScores], n_draws: int, level: float, seed: int
) -> tuple[Interval, npt.NDArray[np.float64]]:
    """The interval of `nested_mean`, and the resampled means it is made of."""
    tables = [_table(f"task {task!r}", rows) for task, rows in scores_by_task.items()]
    if not tables:
        raise ValueError("Cannot average over tasks: there is none. Give the scores of at least one task.")
    _check_settings(n_draws, level)
    picks = np.random.default_rng((seed, 1)).integers(len(tables), size=(n_draws, len(tables)))
    rng = np.random.default_rng(seed)
    means = np.empty(picks.shape)
    for task, table in enumerate(tables):
        picked = picks == task
        means[picked] = _resampled_means(table, int(picked.sum()), rng)
    value = float(np.mean([table.mean() for table in tables]))
    known = len(tables) > 1 or tables[0].size > 1
    n = len(tables) if len(tables) > 1 else tables[0].shape[1]
    draws = means.mean(axis=1)
    return _interval(value, draws, level, n=n, known=known), draws


def _table(what: str, rows: SeedScores) -> npt.NDArray[np.float64]:
    """Scores as an array [seed example], checked."""
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            f"Cannot average the {what}: the rows hold {sorted(lengths)} scores. "
            "Give at least one seed, and the same examples, at least one, for each seed."
        )
    table = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(table).all():
        raise ValueError(f"Cannot average the {what}: a score is nan or infinite. Look at the run that made it.")
    return table


def _difference(what: str, a: SeedScores, b: SeedScores) -> npt.NDArray[np.float64]:
    """a - b as an array [seed example], a single seed set against all of the other side."""
    left, right = _table(what, a), _table(what, b)
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            f"Cannot pair the {what}: {left.shape[1]} examples on one side, {right.shape[1]} on the other. "
            "Score both methods on the same examples."
        )
    if 1 not in (len(left), len(right)) and len(left) != len(right):
        raise ValueError(
            f"Cannot pair the {what}: {len(left)} seeds on one side, {len(right)} on the other. "
            "Use the same seeds for both methods, or a single one for one of them."
        )
    return left - right


def _resampled_means(table: npt.NDArray[np.float64], n_draws: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Means [draw] of a table [seed example] with its seeds and its examples drawn with replacement."""
    n_seeds, n_examples = table.shape
    means = np.empty(n_draws)
    block = max(1, BLOCK_SIZE // n_examples)
    for start in range(0, n_draws, block):
        size = min(block, n_draws - start)
        chosen = rng.integers(n_examples, size=(size, n_examples))
        if n_seeds == 1:
            drawn = table[0][chosen]
        else:
            shares = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=size) / n_seeds
            drawn = np.take_along_axis(shares @ table, chosen, axis=1)
        means[start : start + size] = drawn.mean(axis=1)
    return means


def _interval(value: float, means: npt.NDArray[np.float64], level: float, *, n: int, known: bool) -> Interval:
    """The middle `level` of the resampled means, or nan ends where there was nothing to resample."""
    if not known:
        return Interval(value, float("nan"), float("nan"), n)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), n)


def _check_settings(n_draws: int, level: float) -> None:
    if n_draws < 1 or not 0 < level < 1:
        raise ValueError(
            f"Cannot make an interval with n_draws={n_draws}, level={level}. "
            "Use at least one draw and a level between 0 and 1, such as 0.95."
        )
