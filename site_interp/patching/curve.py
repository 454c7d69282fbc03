"""Intra-task patching: what the task scores when only some heads are replaced, or left out, by the order of a ranking.

A share of heads is always said with its number k; chance is the same number of heads drawn at random.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.comparison import Interval, bootstrap_mean
from site_interp.errors import UserError
from site_interp.injection import Intervention
from site_interp.metrics import Metric
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY, Prefixes, iterate_prefixes, kv_bytes
from site_interp.progress import Advance
from site_interp.scoring import score_answers
from site_interp.tasks import sub_seed

SHARES = (0, 1, 2, 5, 10, 15, 20, 30, 40, 50, 70, 100)
RANDOM_SHARES = (5, 10, 30, 50)
N_RANDOM = 20
MAX_ROWS = 64
CURVE_METRICS: tuple[Metric, ...] = ("first_token", "answer_log_prob")


@dataclass(frozen=True)
class Point:
    """Scores with one set of heads.

    Args:
        share: Heads in the set, in percent of all.
        k: Heads in the set.
        scores: For each metric one score per example, in test order.
    """

    share: int | float
    k: int
    scores: Mapping[Metric, tuple[float, ...]]

    def interval(self, metric: Metric) -> Interval:
        """Mean and 95 % interval over the examples."""
        return bootstrap_mean(self.scores[metric])


@dataclass(frozen=True)
class Curve:
    """Scores as a function of the share of heads, by one ranking.

    Args:
        name: Which heads come first, such as `top alpha`.
        points: By rising share.
    """

    name: str
    points: tuple[Point, ...]

    def area(self, metric: Metric) -> Interval:
        """Area under the curve over the share of heads from 0 to 1: the mean score over all shares.

        Interval over the examples. The higher, the fewer heads of this ranking are enough.
        """
        shares = np.array([point.share / 100 for point in self.points])
        scores = np.array([point.scores[metric] for point in self.points])  # [share example]
        per_example = np.trapezoid(scores, shares, axis=0) / (shares[-1] - shares[0])
        return bootstrap_mean(per_example.tolist())


def n_of_share(share: int | float, n_heads: int) -> int:
    """Heads in a share given in percent, rounded; at least one where the share is above 0.

    Raises:
        UserError: A share that is none.

    Example:
        >>> n_of_share(30, 270), n_of_share(0.1, 270), n_of_share(0, 270)
        (81, 1, 0)
    """
    if not 0 <= share <= 100:
        raise UserError(f"Cannot take a share of {share} % of the heads. Give a number from 0 to 100.")
    return 0 if share == 0 else max(1, round(share * n_heads / 100))


def rank_heads(
    values: Float[Tensor, "layer head"], ties: Float[Tensor, "layer head"] | None = None
) -> list[tuple[int, int]]:
    """(layer, head) pairs, highest value first; equal ones by `ties`, then by layer.

    Raises:
        UserError: A value that is nan, or values that are not [layer head].
    """
    if values.ndim != 2 or (ties is not None and ties.shape != values.shape):
        raise UserError(f"Cannot rank heads by values of shape {tuple(values.shape)}: give [layer head], ties alike.")
    if bool(values.isnan().any()):
        raise UserError("Cannot rank the heads: a value is nan. Look at the prompts it was computed on.")
    second = torch.zeros_like(values) if ties is None else ties
    keys = [(-float(v), -float(t)) for v, t in zip(values.flatten(), second.flatten(), strict=True)]
    return [divmod(index, values.shape[1]) for index in sorted(range(len(keys)), key=lambda i: (*keys[i], i))]


def mask_of(heads: Sequence[tuple[int, int]], shape: Sequence[int]) -> Float[Tensor, "layer head"]:
    """A hard alpha: 1 on the heads given, 0 elsewhere."""
    mask = torch.zeros(*shape)
    for layer, head in heads:
        mask[layer, head] = 1.0
    return mask


def random_masks(shape: Sequence[int], k: int, *, n: int, seed: int) -> Float[Tensor, "draw layer head"]:
    """Hard alphas on k heads drawn without replacement, n draws."""
    places = [divmod(index, shape[1]) for index in range(shape[0] * shape[1])]
    chooser = random.Random(sub_seed(seed, f"random sets of {k} heads", f"{shape[0]}x{shape[1]}"))
    return torch.stack([mask_of(chooser.sample(places, k), shape) for _ in range(n)])


@torch.no_grad()
def score_alphas(
    model: Model,
    prompts: Sequence[str],
    answers: Sequence[Sequence[Sequence[int]]],
    target: Float[Tensor, "#alpha layer head d_head"],
    alphas: Float[Tensor, "alpha layer head"],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Advance = lambda _: None,
) -> list[dict[Metric, tuple[float, ...]]]:
    """First-token hits and log-probabilities of whole answers, with each alpha injected into every prompt.

    The prompts are computed once, their answers for every alpha anew, several alphas in a batch where prompts are few.

    Args:
        model: Left as it is.
        prompts: Each ends in the token that is injected.
        answers: For each prompt, the token ids of every right answer.
        target: What to move z towards, one for all alphas or one for each.
        alphas: Shares taken from the target.
        memory: Budget in bytes, beside the model.
        progress: Called with the (alpha, prompt) pairs done.

    Returns:
        For each alpha its scores, in the order of the prompts.
    """
    hits = np.zeros((len(alphas), len(prompts)))
    log_probs = np.zeros((len(alphas), len(prompts)))
    for prefixes in iterate_prefixes(model, prompts, memory=memory // 2, max_rows=MAX_ROWS):
        rows = prefixes.rows.tolist()
        own = [answers[row] for row in rows]
        together = _alphas_together(prefixes, memory // 4)
        for part in torch.arange(len(alphas)).split(together):
            several = prefixes.select(torch.arange(len(rows), device=prefixes.ids.device).repeat(len(part)))
            each = part.repeat_interleave(len(rows))  # alpha of each row
            written = Intervention(target if len(target) == 1 else target[each], alphas[each])
            found = np.array(score_answers(several, own * len(part), written)).reshape(len(part), len(rows), 2)
            hits[np.ix_(part, rows)], log_probs[np.ix_(part, rows)] = found[..., 0], found[..., 1]
            progress(len(each))
    return [
        {"first_token": tuple(hit), "answer_log_prob": tuple(log_prob)}
        for hit, log_prob in zip(hits.tolist(), log_probs.tolist(), strict=True)
    ]


def _alphas_together(prefixes: Prefixes, memory: int) -> int:
    """How many alphas are scored on all these prompts at once: few prompts alone would not fill a batch."""
    n_rows = min(MAX_ROWS, memory // max(1, kv_bytes(prefixes.model, prefixes.ids.shape[1])))
    return max(1, n_rows // len(prefixes))
