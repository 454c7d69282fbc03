"""How much a task embedding depends on the prompts it was averaged over, head by head."""

import random
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.embedding import embed_prompts
from site_interp.errors import UserError
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance
from site_interp.prompts import QA, Template, draw_embedding_prompts
from site_interp.tasks import Labelled, Task, sub_seed

N_SPLITS = 20


@dataclass(frozen=True)
class EmbeddingSpread:
    """Spread of z over the M prompts of an embedding.

    Args:
        deviation: Root mean square distance of a prompt's z from the mean, as a share of the mean's length.
        split_half: Cosine of the means of two random halves of the prompts, mean over the splits.
        n_prompts: M.
    """

    deviation: Float[Tensor, "layer head"]
    split_half: Float[Tensor, "layer head"]
    n_prompts: int


def embedding_spread(
    model: Model,
    task: Task | Labelled,
    *,
    n_prompts: int = 50,
    n_shots: int = 10,
    seed: int = 0,
    template: Template = QA,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> EmbeddingSpread:
    """The spread of the embedding that `embed_task` makes with the same arguments.

    Args:
        model, task, n_prompts, n_shots, seed, template, memory, progress: As in `embed_task`; at least two prompts.

    Raises:
        UserError: A single prompt, or as in `embed_task`.
    """
    if n_prompts < 2:
        raise UserError(f"Cannot measure the spread over {n_prompts} prompts. Give two or more.")
    labelled = task if isinstance(task, Labelled) else Labelled(task)
    prompts = draw_embedding_prompts(labelled, template, n_prompts=n_prompts, n_shots=n_shots, seed=seed)
    z = embed_prompts(model, prompts, memory=memory, progress=progress)
    return spread_of(z, seed=seed)


def spread_of(z: Float[Tensor, "prompt layer head d_head"], *, seed: int = 0) -> EmbeddingSpread:
    """Spread of the head outputs of several prompts."""
    mean = z.mean(dim=0)
    away = (z - mean).square().sum(dim=-1).mean(dim=0).sqrt()
    chooser = random.Random(sub_seed(seed, "split halves", ""))
    order = list(range(len(z)))
    cosines = torch.zeros(mean.shape[:2])
    for _ in range(N_SPLITS):
        chooser.shuffle(order)
        first, second = z[order[::2]].mean(dim=0), z[order[1::2]].mean(dim=0)
        cosines += torch.nn.functional.cosine_similarity(first, second, dim=-1) / N_SPLITS
    return EmbeddingSpread(away / mean.norm(dim=-1).clamp(min=1e-12), cosines, len(z))
