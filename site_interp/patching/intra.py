"""The three questions of intra-task patching: are the heads enough, are they needed, does in-context learning use them.

All are one call of `score_alphas` each: only the prompts, the target and the alphas differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.adapter import Adapter
from site_interp.embedding import embed_prompts
from site_interp.errors import UserError
from site_interp.metrics import Metric
from site_interp.model import Model
from site_interp.patching.curve import (
    N_RANDOM,
    RANDOM_SHARES,
    SHARES,
    Curve,
    Point,
    mask_of,
    n_of_share,
    random_masks,
    score_alphas,
)
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance
from site_interp.prompts import draw_icl_prompts
from site_interp.tasks import Labelled, Task

Heads = Sequence[tuple[int, int]]
N_MEAN_PROMPTS = 100  # zero-shot training prompts whose mean z takes a head's place


@dataclass(frozen=True)
class CurveSet:
    """Curves over the same shares and examples, with chance and the scores they are set against.

    Args:
        question: `sufficiency`, `necessity` or `icl_ablation`.
        task: Name of the task.
        seed: Seed of the adapter and of the draws.
        n_heads: Heads of the model.
        curves: One for each ranking.
        draws: Sets drawn at random, several for each share; none where chance was not asked for.
        references: Scores per example without patching, such as `fitted adapter`, `zero-shot`, `10-shot`.
    """

    question: str
    task: str
    seed: int
    n_heads: int
    curves: tuple[Curve, ...]
    draws: tuple[Point, ...]
    references: Mapping[str, Mapping[Metric, tuple[float, ...]]]

    def __repr__(self) -> str:
        n = len(next(iter(self.references.values()))["first_token"])
        names = ", ".join(curve.name for curve in self.curves)
        return f"CurveSet({self.question}, {self.task}, seed {self.seed}: {names} on {n} examples)"


@dataclass(frozen=True)
class _Set:
    """A set of heads to be scored, and the curve it belongs to."""

    curve: str
    share: int | float
    heads: Heads


def sufficiency_curves(
    model: Model,
    task: Task,
    adapter: Adapter,
    rankings: Mapping[str, Heads],
    *,
    n_random: int = N_RANDOM,
    n_test: int | None = 50,
    memory: int = DEFAULT_MEMORY,
    progress: Advance = lambda _: None,
) -> CurveSet:
    """Are the heads enough: a set of heads is replaced by the task embedding (alpha = 1), all others stay (alpha = 0).

    Args:
        model: Left as it is.
        task: Its test examples are asked, zero-shot.
        adapter: Its embedding is written; its alphas stand beside the curves as `fitted adapter`.
        rankings: For each curve its heads, those that are taken first in front.
        n_random: Sets drawn at random for each of `RANDOM_SHARES`; 0 for none.
        n_test: Test examples; None for all.
        memory: Budget in bytes, beside the model.
        progress: Called with the (set, example) pairs done; `n_scored` says how many there are.

    Raises:
        UserError: No test examples, an adapter of another model or split, or a ranking that is not one of all heads.
    """
    shape, n_heads = adapter.selection.logits.shape, adapter.selection.logits.numel()
    _check(model, task, adapter, n_random)
    sets = _ranked_sets(rankings, shape)
    alphas = torch.stack([mask_of(one.heads, shape) for one in sets])
    drawn = _random_alphas(shape, n_random, adapter.selection.seed)
    prompts, answers = _zero_shot(model, task, adapter, n_test)
    found = score_alphas(
        model,
        prompts,
        answers,
        adapter.embedding.mean[None],
        torch.cat([alphas, *(masks for _, masks in drawn), adapter.selection.alpha[None]]),
        memory=memory,
        progress=progress,
    )
    zero = next(scores for one, scores in zip(sets, found, strict=False) if not one.heads)
    return CurveSet(
        "sufficiency",
        task.name,
        adapter.selection.seed,
        n_heads,
        _curves(sets, found),
        _points(drawn, found[len(sets) : -1], n_heads),
        {"fitted adapter": found[-1], "zero-shot": zero},
    )


def necessity_curves(
    model: Model,
    task: Task,
    adapter: Adapter,
    rankings: Mapping[str, Heads],
    *,
    n_random: int = N_RANDOM,
    n_test: int | None = 50,
    memory: int = DEFAULT_MEMORY,
    progress: Advance = lambda _: None,
) -> CurveSet:
    """Are the heads needed: the fitted alphas with a set of heads set back to 0.

    Arguments and errors as in `sufficiency_curves`.
    """
    alpha, shape, n_heads = adapter.selection.alpha, adapter.selection.logits.shape, adapter.selection.logits.numel()
    _check(model, task, adapter, n_random)
    sets = _ranked_sets(rankings, shape)
    drawn = _random_alphas(shape, n_random, adapter.selection.seed)
    masks = torch.cat([torch.stack([mask_of(one.heads, shape) for one in sets]), *(m for _, m in drawn)])
    prompts, answers = _zero_shot(model, task, adapter, n_test)
    found = score_alphas(
        model, prompts, answers, adapter.embedding.mean[None], alpha * (1 - masks), memory=memory, progress=progress
    )
    whole = next(scores for one, scores in zip(sets, found, strict=False) if not one.heads)
    return CurveSet(
        "necessity",
        task.name,
        adapter.selection.seed,
        n_heads,
        _curves(sets, found),
        _points(drawn, found[len(sets) :], n_heads),
        {"fitted adapter": whole},
    )


def icl_ablation_curves(
    model: Model,
    task: Task,
    adapter: Adapter,
    rankings: Mapping[str, Heads],
    *,
    to: str = "mean",
    n_random: int = N_RANDOM,
    n_test: int | None = 50,
    memory: int = DEFAULT_MEMORY,
    progress: Advance = lambda _: None,
) -> CurveSet:
    """Does in-context learning use the heads: they are ablated at the last token of few-shot prompts.

    Args:
        model, task, adapter, rankings, n_random, n_test, memory, progress: As in `sufficiency_curves`; the prompts
            have as many demonstrations as those of the embedding, drawn by the adapter's seed.
        to: What takes a head's place: `zero`, or the `mean` of z over zero-shot prompts of training inputs.

    Raises:
        UserError: Another `to`, or as in `sufficiency_curves`.
    """
    if to not in ("mean", "zero"):
        raise UserError(f"Cannot ablate heads to {to!r}: there are mean and zero.")
    shape, n_heads = adapter.selection.logits.shape, adapter.selection.logits.numel()
    _check(model, task, adapter, n_random)
    sets = _ranked_sets(rankings, shape)
    drawn = _random_alphas(shape, n_random, adapter.selection.seed)
    masks = torch.cat([torch.stack([mask_of(one.heads, shape) for one in sets]), *(m for _, m in drawn)])
    examples = task.test_examples(n_test)
    template, n_shots = adapter.template, adapter.embedding.n_shots
    labelled = Labelled(task)
    prompts = draw_icl_prompts(
        labelled, template, [example.input for example in examples], n_shots=n_shots, seed=adapter.selection.seed
    )
    answers = _answers(model, task, adapter, prompts, n_test)
    if to == "zero":
        target = torch.zeros_like(adapter.embedding.mean)
    else:
        inputs = [labelled.train_input(index) for index in range(min(N_MEAN_PROMPTS, labelled.n_train))]
        zero_shot = [template.zero_shot(text) for text in inputs]
        target = embed_prompts(model, zero_shot, memory=memory, progress=lambda _: None).mean(dim=0)
    found = score_alphas(model, prompts, answers, target[None], masks, memory=memory, progress=progress)
    whole = next(scores for one, scores in zip(sets, found, strict=False) if not one.heads)
    return CurveSet(
        f"icl_ablation_{to}",
        task.name,
        adapter.selection.seed,
        n_heads,
        _curves(sets, found),
        _points(drawn, found[len(sets) :], n_heads),
        {f"{n_shots}-shot": whole},
    )


def n_scored(rankings: int, *, n_random: int, n_examples: int, shares: int = len(SHARES)) -> int:
    """How many (set, example) pairs a call counts, the fitted adapter left out."""
    return (rankings * shares + n_random * len(RANDOM_SHARES)) * n_examples


def _check(model: Model, task: Task, adapter: Adapter, n_random: int) -> None:
    if n_random < 0:
        raise UserError(f"Cannot draw {n_random} random sets of heads. Give 0 for none, or more.")
    adapter.check_model(model)
    adapter.embedding.check_split(task, "Cannot patch heads on", "adapter")


def _ranked_sets(rankings: Mapping[str, Heads], shape: Sequence[int]) -> list[_Set]:
    everything = {(layer, head) for layer in range(shape[0]) for head in range(shape[1])}
    n_heads = len(everything)
    if not rankings:
        raise UserError("Cannot patch heads: no ranking was given. Give one or more, such as si.rankings(adapter, {}).")
    for name, heads in rankings.items():
        known = everything.intersection(heads)
        if len(known) != n_heads or len(heads) != n_heads:
            raise UserError(
                f"Cannot patch heads by the ranking {name!r}: of {len(heads)} entries {len(known)} are different heads "
                f"of this model, which has {n_heads}. Rank each of them once."
            )
    return [
        _Set(name, share, heads[: n_of_share(share, n_heads)]) for name, heads in rankings.items() for share in SHARES
    ]


def _random_alphas(
    shape: Sequence[int], n: int, seed: int
) -> list[tuple[int | float, Float[Tensor, "draw layer head"]]]:
    n_heads = shape[0] * shape[1]
    return [(share, random_masks(shape, n_of_share(share, n_heads), n=n, seed=seed)) for share in RANDOM_SHARES if n]


def _curves(sets: Sequence[_Set], found: Sequence[Mapping[Metric, tuple[float, ...]]]) -> tuple[Curve, ...]:
    points: dict[str, list[Point]] = {}
    for one, scores in zip(sets, found, strict=False):
        points.setdefault(one.curve, []).append(Point(one.share, len(one.heads), scores))
    return tuple(Curve(name, tuple(several)) for name, several in points.items())


def _points(
    drawn: Sequence[tuple[int | float, Tensor]], found: Sequence[Mapping[Metric, tuple[float, ...]]], n_heads: int
) -> tuple[Point, ...]:
    shares = chain.from_iterable([share] * len(masks) for share, masks in drawn)
    return tuple(Point(share, n_of_share(share, n_heads), scores) for share, scores in zip(shares, found, strict=True))


def _zero_shot(
    model: Model, task: Task, adapter: Adapter, n_test: int | None
) -> tuple[Sequence[str], list[list[list[int]]]]:
    prompts = adapter.prompts([example.input for example in task.test_examples(n_test)])
    return prompts, _answers(model, task, adapter, prompts, n_test)


def _answers(
    model: Model, task: Task, adapter: Adapter, prompts: Sequence[str], n_test: int | None
) -> list[list[list[int]]]:
    examples = task.test_examples(n_test)
    if not examples:
        raise UserError(f"Cannot patch heads on task '{task.name}': it has no test examples. Add some.")
    return [
        [model.answer_ids(prompt, adapter.template.answer(answer)) for answer in example.answers]
        for prompt, example in zip(prompts, examples, strict=True)
    ]
