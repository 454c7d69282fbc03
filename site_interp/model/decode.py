"""Greedy decoding on a key/value cache, row by row finished and dropped."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.model.model import Model, select_rows


@torch.no_grad()
def decode_greedy(
    model: Model,
    logits: Float[Tensor, "batch d_vocab"],
    mask: Int[Tensor, "batch pos"],
    cache: Any,
    *,
    max_new_tokens: int,
    stop: str,
) -> list[str]:
    """The most likely tokens, one after the other, until each row stops.

    A row that stops leaves the batch, so the cost falls as rows finish; rows do not influence each other.

    Args:
        logits: Logits after each prompt, for its first new token.
        mask: Mask of the prompts.
        cache: Cache of the prompts, last token included; left unchanged.
        max_new_tokens: Tokens a row may have.
        stop: A row ends when its text contains this, at an end-of-sequence token, or when the context is full.

    Returns:
        One text per row, special tokens left out.
    """
    texts = [""] * len(logits)
    tokens: list[list[int]] = [[] for _ in texts]
    active = torch.arange(len(texts), device=logits.device)
    for step in range(max_new_tokens):
        chosen = logits.argmax(dim=-1)
        has_room = (mask.sum(dim=1) < model.n_ctx).tolist()
        going = []
        for place, (row, token) in enumerate(zip(active.tolist(), chosen.tolist(), strict=True)):
            if token in model.stop_ids:
                continue
            tokens[row].append(token)
            texts[row] = model.decode(tokens[row])
            if stop not in texts[row] and has_room[place]:
                going.append(place)
        if not going or step == max_new_tokens - 1:
            break
        kept = torch.tensor(going, device=logits.device)
        active, mask = active[kept], torch.cat([mask[kept], mask.new_ones(len(kept), 1)], dim=1)
        new_logits, cache = model.forward(chosen[kept, None], mask, select_rows(cache, kept), n_logits=1)
        logits = new_logits[:, -1]
    return texts
