"""Key/value caches: a copy of chosen rows that may be appended to, and several joined to one."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


def join_caches(parts: Sequence[tuple[Any, int]]) -> Any:
    """One cache of the rows of several, aligned at their ends: shorter ones are padded on the left, for a mask to hide.

    The layers are copies of the longest cache's, so that what they know beside keys and values (how much a sliding
    window has seen) stays right.

    Args:
        parts: Each cache, or None for prompts without a prefix, with its number of rows; not all None.
    """
    joined = select_rows(max((cache for cache, _ in parts if cache is not None), key=lambda one: one.get_seq_length()))
    for index, layer in enumerate(joined.layers):
        for name in ("keys", "values"):
            like = getattr(layer, name)
            padded = [
                _padded(None if cache is None else getattr(cache.layers[index], name), n_rows, like)
                for cache, n_rows in parts
            ]
            setattr(layer, name, torch.cat(padded))
    return joined


def _padded(values: Tensor | None, n_rows: int, like: Tensor) -> Tensor:
    """Keys or values with zeros in front, as long as `like`."""
    if values is None:
        return like.new_zeros(n_rows, *like.shape[1:])
    return torch.nn.functional.pad(values, (0, 0, like.shape[-2] - values.shape[-2], 0))


def expand_rows(cache: Any, n_rows: int) -> Any:
    """A cache of one row as one of many that share its memory; what is appended to it is a copy."""
    copied = select_rows(cache)
    for layer in copied.layers:
        for name in ("keys", "values"):
            values = getattr(layer, name)
            setattr(layer, name, values.expand(n_rows, *values.shape[1:]))
    return copied


def select_rows(cache: Any, rows: Int[Tensor, " batch"] | None = None) -> Any:
    """A copy of a cache that can be appended to, with the rows asked for; keys and values are gathered, not cloned.

    Works on the object that prefill returned, whatever its layers are (a cache rebuilt from keys and values is silently
    wrong for sliding windows).

    Args:
        cache: As `forward` returned it; left unchanged.
        rows: Which rows, repeats allowed; None keeps all.
    """
    if cache is None:
        return None
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    if rows is not None:
        copied.batch_select_indices(rows)
    return copied
