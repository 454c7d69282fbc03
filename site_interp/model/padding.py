"""The one place that pads: always on the left, so that the last column is each prompt's last token."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor


def pad_left(
    rows: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    """Token ids and mask of prompts of unequal length, padded on the left.

    Args:
        rows: Token ids of each prompt, at least one each.
        device: Where the tensors go.

    Returns:
        Ids, with 0 in masked positions, and the mask, 1 for real tokens.
    """
    longest = max(len(row) for row in rows)
    ids = [[0] * (longest - len(row)) + list(row) for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
