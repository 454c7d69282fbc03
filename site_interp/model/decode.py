"""Greedy decoding on a key/value cache, row by row finished and dropped."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.errors import NotFiniteError
from site_interp.model.caches import select_rows
from site_interp.model.model import Model


@torch.no_grad()
def decode_greedy(
    model: Model,
    logits: Float[Tensor, "batch d_vocab"],
    mask: Int[Tensor, "batch pos"],
    cache: Any,
    *,
    max_new_tokens: int,
    stop: str | Sequence[str],
) -> list[str]:
    """The most likely tokens, one after the other, until each row stops.

    A row that stops leaves the batch, so the cost falls as rows finish; rows do not influence each other.

    Args:
        logits: Logits after each prompt, for its first new token.
        mask: Mask of the prompts.
        cache: Cache of the prompts, last token included; left unchanged.
        max_new_tokens: Tokens a row may have.
        stop: A row ends when its text contains this (one text for all rows, or one for each), at an end-of-sequence
            token, or when the context is full.

    Returns:
        One text per row, special tokens left out.

    Raises:
        ValueError: As many stop texts as rows were not given.
        NotFiniteError: A logit is nan or infinite; names the row.
    """
    texts = [""] * len(logits)
    stops = [stop] * len(texts) if isinstance(stop, str) else list(stop)
    if len(stops) != len(texts):
        raise ValueError(
            f"Cannot decode {len(texts)} rows with {len(stops)} stop texts. Give one for all, or one for each."
        )
    tokens: list[list[int]] = [[] for _ in texts]
    active = torch.arange(len(texts), device=logits.device)
    for step in range(max_new_tokens):
        chosen = logits.argmax(dim=-1)
        lost = ~logits.gather(-1, chosen[:, None])[:, 0].isfinite()  # argmax takes nan for the largest
        if bool(lost.any()):
            row = int(active[lost][0])
            raise NotFiniteError(
                f"Cannot go on after {texts[row][:40]!r}, the answer of row {row}: the logits are not finite in "
                f"{model.dtype_name}. Load the model in float32, and check what is injected."
            )
        has_room = (mask.sum(dim=1) < model.n_ctx).tolist()
        going = []
        for place, (row, token) in enumerate(zip(active.tolist(), chosen.tolist(), strict=True)):
            if token in model.stop_ids:
                continue
            tokens[row].append(token)
            texts[row] = model.decode(tokens[row])
            if stops[row] not in texts[row] and has_room[place]:
                going.append(place)
        if not going or step == max_new_tokens - 1:
            break
        kept = torch.tensor(going, device=logits.device)
        active, mask = active[kept], torch.cat([mask[kept], mask.new_ones(len(kept), 1)], dim=1)
        new_logits, cache = model.forward(chosen[kept, None], mask, select_rows(cache, kept), n_logits=1)
        logits = new_logits[:, -1]
    return texts
