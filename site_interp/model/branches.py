"""Many variants of a prompt's last token in one forward: they share the prefix, and each begins where it first differs.

A branch is one more query at the position of the last token: it attends to the prefix and to its own key, never to
another branch. Up to the layer where it is first injected it would be the plain last token, so it begins there, as a
copy of it. Nothing of the prefix is copied for each branch, and layers before its first are not run.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from site_interp.model.model import Model

ATTENTION = "site_interp_branches"


@contextmanager
def branching(
    layers: Sequence[Any], config: Any, prefix_mask: Int[Tensor, "batch past"], n_new: Sequence[int]
) -> Iterator[None]:
    """Inside, a forward of one token grows: `n_new[l]` copies of the plain token are put behind the others at layer l.

    Args:
        layers: The decoder layers that run, in order.
        config: The configuration that names their attention function.
        prefix_mask: 1 for the real tokens before the last one.
        n_new: Branches that begin at each layer.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = config._attn_implementation
    with ExitStack() as stack:
        for layer, n in zip(layers, n_new, strict=True):
            if n:
                stack.callback(layer.register_forward_pre_hook(_Grow(n)).remove)
        # A name without a mask function: the model then makes no mask, and the attention below knows what to hide.
        ALL_ATTENTION_FUNCTIONS[ATTENTION] = _Attention(prefix_mask.bool())
        stack.callback(ALL_ATTENTION_FUNCTIONS.pop, ATTENTION)
        stack.callback(setattr, config, "_attn_implementation", before)
        config._attn_implementation = ATTENTION
        yield


class _Grow:
    """A hook before a layer: so many copies of the first query are appended."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, _layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, *others = args
        return (torch.cat([hidden, hidden[:, :1].expand(-1, self.n, -1)], dim=1), *others)


class _Attention:
    """Attention of queries that share a position: to the prefix, and each to its own key."""

    def __init__(self, prefix_mask: Bool[Tensor, "batch past"]) -> None:
        self.prefix_mask = prefix_mask

    def __call__(
        self,
        module: Any,
        query: Float[Tensor, "batch head query d_head"],
        key: Float[Tensor, "batch kv_head key d_head"],
        value: Float[Tensor, "batch kv_head key d_head"],
        attention_mask: Tensor | None,
        scaling: float | None = None,
        softcap: float | None = None,
        **_: Any,
    ) -> tuple[Float[Tensor, "batch query head d_head"], None]:
        n_queries, n_past = query.shape[2], key.shape[2] - query.shape[2]
        # Queries of the heads that share keys side by side, so that these are never repeated.
        query = rearrange(query, "batch (kv group) query d -> batch kv (group query) d", kv=key.shape[1])
        past, own = key[:, :, :n_past], key[:, :, n_past:]
        n_group = query.shape[2] // n_queries
        own, own_value = (
            repeat(part, "batch kv query d -> batch kv (group query) d", group=n_group)
            for part in (own, value[:, :, n_past:])
        )
        scores = torch.cat([query @ past.transpose(-1, -2), (query * own).sum(dim=-1, keepdim=True)], dim=-1)
        scores = scores * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        # A layer with a sliding window holds the newest tokens only.
        hidden = ~self.prefix_mask[:, self.prefix_mask.shape[1] - n_past :]
        scores[..., :-1].masked_fill_(hidden[:, None, None], float("-inf"))
        shares = scores.float().softmax(dim=-1).to(query.dtype)
        out = shares[..., :-1] @ value[:, :, :n_past] + shares[..., -1:] * own_value
        return rearrange(out, "batch kv (group query) d -> batch query (kv group) d", query=n_queries), None


def forward_branches(
    model: Model, ids: Int[Tensor, "batch 1"], mask: Int[Tensor, "batch all"], cache: Any, n_new: Sequence[int]
) -> Float[Tensor, "batch query d_vocab"]:
    """Logits of the last token of each prompt as it is, and of all its branches behind it, in the order they begin.

    Args:
        model: One that runs lean (`model.lean.serves`).
        ids: The last token of each prompt.
        mask: 1 for real tokens, all of the prompt.
        cache: Keys and values of the tokens before; appended to.
        n_new: Branches that begin at each layer.
    """
    layers = [model.bridge.blocks[layer].original_component for layer in range(model.n_layers)]
    with model.lean.running(), branching(layers, model.inner.config, mask[:, :-1], n_new):
        out = model.inner(input_ids=ids, **model.inputs(ids, mask, cache))
    # GPT-2 gives its output the shape of its input, which puts the queries into the batch.
    logits: Tensor = out.logits
    return logits.reshape(len(ids), -1, model.d_vocab)
