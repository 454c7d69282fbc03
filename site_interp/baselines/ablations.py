"""What SITE is set against in itself: other targets than the task embedding, hard heads in place of soft ones."""

from dataclasses import replace
from typing import Literal

import torch

from site_interp.embedding import TaskEmbedding
from site_interp.selection import HeadSelection
from site_interp.tasks import Labelled, sub_seed

Heads = Literal["soft", "hard", "top", "all"]
"""Which heads take the target: by their alpha, those above one half, a share that ranks first, or all of them."""
Target = Literal["task", "random", "other", "mean"]
"""What heads take: the task embedding, a random one of the same norm, another task's, or the mean of other tasks'."""

SATURATED = 120.0  # a logit whose sigmoid is exactly 1, and of its negative exactly 0, in fp32


def hard_heads(selection: HeadSelection, heads: Heads, share: int | float) -> HeadSelection:
    """The selection with every alpha exactly 0 or 1, or as it is for `soft`.

    Args:
        selection: As fitted; its trace and settings are kept.
        heads: Which heads are open.
        share: Of `top`, the share of all heads.
    """
    match heads:
        case "soft":
            return selection
        case "hard":
            opened = (selection.logits > 0).float()
        case "top":
            opened = selection.top(max(1, round(share * selection.logits.numel())))
        case "all":
            opened = torch.ones_like(selection.logits)
    return replace(selection, logits=SATURATED * (2 * opened - 1))


def random_target(embedding: TaskEmbedding, seed: int) -> TaskEmbedding:
    """Gaussian directions, each head's of the norm that the embedding has there."""
    draw = torch.Generator().manual_seed(sub_seed(seed, "random target", embedding.task) % 2**63)
    drawn = torch.randn(embedding.mean.shape, generator=draw)
    mean = drawn * (embedding.mean.norm(dim=-1, keepdim=True) / drawn.norm(dim=-1, keepdim=True))
    return replace(embedding, mean=mean, std=torch.zeros_like(mean))


def mean_target(others: list[TaskEmbedding], labelled: Labelled) -> TaskEmbedding:
    """The mean of other tasks' embeddings, for use on a task none of whose labels it has seen."""
    mean = torch.stack([other.mean for other in others]).mean(dim=0)
    return replace(
        others[0],
        mean=mean,
        std=torch.zeros_like(mean),
        task=labelled.task,
        split_hash=labelled.split_hash,
        split_seed=labelled.split_seed,
        n_labels=labelled.n_used,
    )
