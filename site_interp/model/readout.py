"""Weights read as maps: from a head's z to the residual stream, and from there to tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model.model import Model


@torch.no_grad()
def project_heads(model: Model, layer: int, z: Float[Tensor, "batch head d_head"]) -> Float[Tensor, "batch d_model"]:
    """What z of one layer adds to the residual stream through W_O, the bias left out.

    The module itself multiplies, so that quantised weights work too. A norm behind it (Gemma) is not applied.
    """
    projection = model.bridge.blocks[layer].attn.o.original_component
    flat = z.to(model.device, model.dtype).flatten(1)
    written: Tensor = projection(flat) - projection(torch.zeros_like(flat[:1]))
    return written.float().cpu()


@torch.no_grad()
def unembed(model: Model, residual: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_vocab"]:
    """Logits of vectors of the residual stream through the final norm and the unembedding, biases left out."""
    norm, head = model.bridge.ln_final.original_component, model.inner.get_output_embeddings()
    given = residual.to(model.device, model.dtype)
    logits: Tensor = head(norm(given)) - head(norm(torch.zeros_like(given[:1])))
    return logits.float().cpu()


def token_text(model: Model, token: int) -> str:
    """A token as text, its leading space kept."""
    return str(model.tokenizer.decode([token], clean_up_tokenization_spaces=False))


def token_spans(model: Model, text: str) -> tuple[Int[Tensor, " pos"], list[tuple[int, int]]]:
    """Ids of a prompt, and the characters each of them stands for; (0, 0) for one that stands for none, as a BOS.

    Raises:
        UserError: The tokenizer cannot say.
    """
    if not model.tokenizer.is_fast:
        raise UserError(f"Cannot tell which characters the tokens of {model.name} stand for: its tokenizer is slow.")
    found = model.tokenizer(text, return_offsets_mapping=True)
    return torch.tensor(found.input_ids), [tuple(span) for span in found.offset_mapping]
