"""What a head writes: its target sent through W_O and the unembedding, as the tokens it promotes and suppresses."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model import Model, project_heads, token_text, unembed


@dataclass(frozen=True)
class HeadWrites:
    """Tokens that a head's output makes more and less likely, strongest first.

    Args:
        layer, head: Which head.
        norm: Length of what it adds to the residual stream.
        promoted, suppressed: (token, logit) pairs. Logits are those of the head's output alone after the final norm,
            which rescales it: they order tokens, their size means nothing across heads.
    """

    layer: int
    head: int
    norm: float
    promoted: tuple[tuple[str, float], ...]
    suppressed: tuple[tuple[str, float], ...]


@torch.no_grad()
def head_writes(
    model: Model, target: Float[Tensor, "layer head d_head"], heads: list[tuple[int, int]], *, n_tokens: int = 10
) -> list[HeadWrites]:
    """The logit lens on single heads' outputs.

        logits = W_U norm(target[l, h] W_O[l, h])

    Biases (of W_O, of the final norm and of the unembedding) are left out: they are the same whatever the head says.

    Args:
        model: Left as it is.
        target: z of every head, a task embedding's mean for example.
        heads: (layer, head) pairs.
        n_tokens: Tokens of either kind.

    Raises:
        UserError: A target of another shape or that is not finite, a head that the model does not have, or more
            tokens than it knows.
    """
    if not 0 < n_tokens <= model.d_vocab:
        raise UserError(f"Cannot list {n_tokens} tokens: {model.name} knows {model.d_vocab}.")
    shape = (model.n_layers, model.n_heads, model.d_head)
    if tuple(target.shape) != shape or not bool(target.isfinite().all()):
        raise UserError(
            f"Cannot read what heads of {model.name} write: the target must be finite numbers [layer head d_head] = "
            f"{list(shape)}, and has the shape {list(target.shape)}. Give a task embedding's mean."
        )
    found = []
    for layer, head in heads:
        if not (0 <= layer < model.n_layers and 0 <= head < model.n_heads):
            raise UserError(
                f"Cannot read L{layer}H{head} of {model.name}: it has {model.n_layers} layers of {model.n_heads} heads."
            )
        z = torch.zeros(model.n_heads, model.d_head)
        z[head] = target[layer, head]
        written = project_heads(model, layer, z[None])[0]
        logits = unembed(model, written[None])[0].float()
        high, low = logits.topk(n_tokens), logits.topk(n_tokens, largest=False)
        found.append(
            HeadWrites(
                layer,
                head,
                float(written.float().norm()),
                tuple((token_text(model, int(i)), float(v)) for v, i in zip(*high, strict=True)),
                tuple((token_text(model, int(i)), float(v)) for v, i in zip(*low, strict=True)),
            )
        )
    return found
