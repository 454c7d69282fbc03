"""Prompts with all positions but the last already computed, so that everything later is one token per prompt.

In a causal model nothing before the last token sees an injection there. Keys and values of the earlier positions are
computed once, without gradient; fitting, sweeps and generation go on from them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.errors import NotFiniteError, UserError
from site_interp.model import Model, expand_rows, join_caches, pad_left, select_rows

GIB = 1 << 30
DEFAULT_MEMORY = 4 * GIB
# What starting a forward costs (reading the weights), in tokens of a long prompt; measured by benchmarks/costs.py.
FORWARD_START = 48


@dataclass(frozen=True)
class Prefixes:
    """A bucket of prompts of similar length, padded on the left, all but the last token computed.

    Args:
        model: The model that computed them.
        ids: Token ids, [batch pos]; the last column is each prompt's last token.
        mask: 1 for real tokens.
        cache: Keys and values of all columns but the last; None where prompts have one token.
        rows: Place of each row among the prompts that were encoded together.
    """

    model: Model = field(repr=False)
    ids: Int[Tensor, "batch pos"]
    mask: Int[Tensor, "batch pos"]
    cache: Any = field(repr=False)
    rows: Int[Tensor, " batch"]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, chosen: Int[Tensor, " chosen"]) -> "Prefixes":
        """The same prompts in another choice and order, repeats allowed."""
        return Prefixes(
            self.model, self.ids[chosen], self.mask[chosen], select_rows(self.cache, chosen), self.rows[chosen]
        )

    def run_last(
        self, more: Int[Tensor, "batch more"] | None = None, *, n_logits: int = 1
    ) -> tuple[Float[Tensor, "batch kept d_vocab"], Any]:
        """Run the last token of each prompt, and further tokens after it, on the kept prefix.

        Args:
            more: Tokens after the prompt, right padded: padding after the last token of interest is harmless.
            n_logits: Logits of the last so many of these positions; 0 means all.

        Returns:
            Logits, and a cache that holds everything up to the last token run. The kept prefix stays as it is.
        """
        ids, mask = self.ids[:, -1:], self.mask
        if more is not None:
            ids = torch.cat([ids, more], dim=1)
            mask = torch.cat([mask, torch.ones_like(more)], dim=1)
        return self.model.forward(ids, mask, select_rows(self.cache), n_logits=n_logits)


def check_finite(prefixes: Prefixes, values: Float[Tensor, "batch ..."], what: str) -> None:
    """Refuse values computed from prompts, one row for each, of which one is nan or infinite.

    Raises:
        NotFiniteError: Names the prompt: its place among those encoded together, and its first characters.
    """
    wrong = ~values.isfinite().flatten(1).all(dim=1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        ids = prefixes.ids[row][prefixes.mask[row].bool()].tolist()
        raise NotFiniteError(
            f"Cannot use the {what} of prompt {int(prefixes.rows[row])}, {prefixes.model.decode(ids)[:40]!r}: they are "
            f"not finite in {prefixes.model.dtype_name}. Load the model in float32, and check what is injected."
        )


def kv_bytes(model: Model, n_tokens: int) -> int:
    """Memory of the keys and values of so many tokens."""
    return 2 * model.n_layers * model.n_kv_heads * model.d_head * model.dtype.itemsize * n_tokens


def forward_bytes(model: Model, n_tokens: int, *, n_rows: int) -> int:
    """A generous estimate of what a forward of `n_tokens` new tokens in `n_rows` rows holds at its peak.

    The widest layer's activations in fp32, attention scores over the row, and logits of one position per row.
    """
    longest = -(-n_tokens // max(n_rows, 1))
    wide = 16 * model.d_model + 4 * model.n_heads * longest
    return 4 * (n_tokens * wide + 3 * n_rows * model.d_vocab)


def length_buckets(
    lengths: Sequence[int], fits: Callable[[int, int], bool], *, start: int = FORWARD_START
) -> list[list[int]]:
    """Group rows by length, shortest first, so that padding and starting forwards cost least together.

        minimise the sum over buckets of (start + rows * longest)

    Args:
        lengths: Tokens of each row.
        fits: Whether so many rows of so many tokens fit in memory; one row is always accepted.
        start: What one more bucket costs, in tokens.

    Returns:
        Lists of indices into `lengths`; rows of one token never share a bucket with longer ones.

    Example:
        >>> length_buckets([5, 40, 6, 41], lambda n_rows, length: True)
        [[0, 2], [1, 3]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    ends = [i + 1 for i in range(len(order)) if i + 1 == len(order) or lengths[order[i]] != lengths[order[i + 1]]]
    cost, begin = {0: 0}, {}
    for place, end in enumerate(ends):  # the cheapest grouping of the rows before `end`: where its last bucket begins
        longest = lengths[order[end - 1]]
        firsts = [0, *ends[:place]] if longest == 1 or lengths[order[0]] > 1 else ends[:place]
        begin[end] = min(firsts, key=lambda first: cost[first] + start + (end - first) * longest)
        cost[end] = cost[begin[end]] + start + (end - begin[end]) * longest
    cuts = [len(order)]
    while cuts[-1]:
        cuts.append(begin[cuts[-1]])
    buckets = []
    for first, end in pairwise(reversed(cuts)):
        bucket: list[int] = []
        for index in order[first:end]:
            if bucket and not fits(len(bucket) + 1, lengths[index]):
                buckets.append(bucket)
                bucket = []
            bucket.append(index)
        buckets.append(bucket)
    return buckets


def iterate_prefixes(
    model: Model, prompts: Sequence[str], *, memory: int = DEFAULT_MEMORY, max_rows: int | None = None
) -> Iterator[Prefixes]:
    """Encode prompts batch by batch, shortest first; a batch's memory is free when the caller lets go of it.

    A long start that all prompts share, such as the same demonstrations, is computed once.

    Args:
        model: The model to run.
        prompts: Texts, each ending in the token where an injection would happen.
        memory: Budget in bytes for one batch, its forwards included.
        max_rows: At most so many prompts in a batch.

    Raises:
        UserError: A prompt without tokens or longer than the context.
    """
    tokens = [model.token_ids(prompt) for prompt in prompts]
    start = _compute_start(model, tokens) if tokens else None
    batch: list[int] = []
    for index in sorted(range(len(tokens)), key=lambda i: (len(tokens[i]), i)):
        full = len(batch) == max_rows or _needed_bytes(model, len(batch) + 1, len(tokens[index])) > memory
        if batch and full:
            yield _encode_batch(model, tokens, batch, memory, start)
            batch = []
        batch.append(index)
    if batch:
        yield _encode_batch(model, tokens, batch, memory, start)


def _encode_batch(
    model: Model, tokens: Sequence[Sequence[int]], chosen: Sequence[int], memory: int, start: "_Start | None"
) -> Prefixes:
    joined = join_prefixes(_encode_tokens(model, [tokens[index] for index in chosen], memory, start))
    return replace(joined, rows=torch.tensor(chosen, device=model.device)[joined.rows])


def encode_prompts(model: Model, prompts: Sequence[str], *, memory: int = DEFAULT_MEMORY) -> list[Prefixes]:
    """All prompts encoded and kept, in buckets of similar length; the caller answers for the total memory.

    Args:
        model: The model to run.
        prompts: Texts, each ending in the token where an injection would happen.
        memory: Budget in bytes for the forward of one bucket, its keys and values included.

    Raises:
        UserError: A prompt without tokens or longer than the context, or an injection is under way.
    """
    return _encode_tokens(model, [model.token_ids(prompt) for prompt in prompts], memory, None)


def _encode_tokens(
    model: Model, tokens: Sequence[Sequence[int]], memory: int, start: "_Start | None"
) -> list[Prefixes]:
    if model.is_watched:
        raise UserError(
            "Cannot compute prompts inside an inject block: it would write into the tokens before the last one as "
            "well. Leave the block first."
        )
    lengths = list(map(len, tokens))
    if start is None:
        buckets = prompt_buckets(model, lengths, memory)
    else:  # padding would stand between the start and the rest
        same = [[i for i, n in enumerate(lengths) if n == length] for length in sorted(set(lengths))]
        most = max(1, memory // _needed_bytes(model, 1, max(lengths)))
        buckets = [part[first : first + most] for part in same for first in range(0, len(part), most)]
    return [_encode_bucket(model, [tokens[index] for index in bucket], bucket, start) for bucket in buckets]


def prompt_buckets(model: Model, lengths: Sequence[int], memory: int) -> list[list[int]]:
    """How `encode_prompts` groups prompts of so many tokens: lists of indices into `lengths`, shortest first."""
    return length_buckets(lengths, lambda n, length: _needed_bytes(model, n, length) <= memory)


def join_prefixes(parts: Sequence[Prefixes]) -> Prefixes:
    """Prompts of several lengths as one batch, in the order of the parts; keys and values are copied.

    One token is run on them in one forward, whose cost hardly depends on the padding.
    """
    if len(parts) == 1:
        return parts[0]
    longest = max(part.ids.shape[1] for part in parts)
    pad = torch.nn.functional.pad
    return Prefixes(
        parts[0].model,
        torch.cat([pad(part.ids, (longest - part.ids.shape[1], 0)) for part in parts]),
        torch.cat([pad(part.mask, (longest - part.mask.shape[1], 0)) for part in parts]),
        join_caches([(part.cache, len(part)) for part in parts]) if longest > 1 else None,
        torch.cat([part.rows for part in parts]),
    )


def _needed_bytes(model: Model, n_rows: int, length: int) -> int:
    return kv_bytes(model, n_rows * length) + forward_bytes(model, n_rows * length, n_rows=n_rows)


@dataclass(frozen=True)
class _Start:
    """Tokens that all prompts begin with, computed once."""

    n_tokens: int
    cache: Any


SHARED_TOKENS = 64  # a shorter common start is not worth giving up buckets of mixed lengths


@torch.no_grad()
def _compute_start(model: Model, tokens: Sequence[list[int]]) -> _Start | None:
    """The common start of prompts, such as demonstrations that are the same for every query; None where it is short.

    The last token of each prompt is left out of it.
    """
    first, last = min(tokens), max(tokens)  # what these two share, all share
    shortest = min(map(len, tokens))
    differ = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    n_shared = min(next(differ, shortest), shortest - 1)
    if len(tokens) < 2 or n_shared < SHARED_TOKENS or model.is_watched:
        return None
    ids = torch.tensor([list(tokens[0][:n_shared])], device=model.device)
    return _Start(n_shared, model.prefill(ids, torch.ones_like(ids)))


@torch.no_grad()
def _encode_bucket(
    model: Model, tokens: Sequence[Sequence[int]], rows: Sequence[int], start: _Start | None
) -> Prefixes:
    ids, mask = pad_left(tokens, model.device)
    cache = None
    if start is not None:
        cache = expand_rows(start.cache, len(ids))
        if ids.shape[1] - 1 > start.n_tokens:
            _, cache = model.forward(ids[:, start.n_tokens : -1], mask[:, :-1], cache, n_logits=1)
    elif ids.shape[1] > 1:
        cache = model.prefill(ids[:, :-1], mask[:, :-1])
    return Prefixes(model, ids, mask, cache, torch.tensor(rows, device=model.device))
