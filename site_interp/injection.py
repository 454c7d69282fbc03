"""The one module that writes into the model: z[l, h] <- lerp(z[l, h], target[l, h], alpha[l, h]) at one position.

The position is absolute: a column of the padded batch. Every forward that computes that column injects each (row,
layer) exactly once, every other forward injects nothing, and a receipt counts. No hook outlives its `with` block.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from site_interp.errors import UserError
from site_interp.injector import Injector, Receipt, Write
from site_interp.model import Model, decode_greedy
from site_interp.prefixes import Prefixes, check_finite


@runtime_checkable
class Edit(Protocol):
    """What is written at the last prompt position, and at which hook points."""

    @property
    def n_rows(self) -> Mapping[str, int]:
        """How many rows each of its parts is for, by the part's name; 1 serves every row."""

    def rows(self, chosen: Int[Tensor, " chosen"]) -> "Edit":
        """The edit of chosen rows; a shared one stays shared."""

    def writes(self, model: Model) -> list[tuple[str, Write]]:
        """Hook points with what is done to their values, in the order of the layers.

        Raises:
            UserError: Shapes that do not fit the model.
        """


@dataclass(frozen=True)
class Intervention:
    """What to write into which head: one (target, alpha) for every row, or one for each row of a batch.

    Args:
        target: Values to move z towards; a leading axis of 1 serves every row.
        alpha: Share taken from `target`, 0 keeps the model's own value, 1 replaces it. May carry gradients.
        adds: Write z + alpha * target instead, which keeps all of z; any alpha has a meaning then.
    """

    target: Float[Tensor, "#batch layer head d_head"]
    alpha: Float[Tensor, "#batch layer head"]
    adds: bool = False

    @property
    def n_rows(self) -> Mapping[str, int]:
        """Rows of alpha and of the target."""
        return {"alphas": len(self.alpha), "targets": len(self.target)}

    def rows(self, chosen: Int[Tensor, " chosen"]) -> "Intervention":
        """The intervention of chosen rows; a shared one stays shared."""
        return replace(self, target=_of_rows(self.target, chosen), alpha=_of_rows(self.alpha, chosen))

    def writes(self, model: Model) -> list[tuple[str, Write]]:
        """The formula at hook_z of every layer, as new tensors."""
        heads = (model.n_layers, model.n_heads)
        if tuple(self.alpha.shape[1:]) != heads or tuple(self.target.shape[1:]) != (*heads, model.d_head):
            raise UserError(
                f"Cannot inject into {model.name}: target {tuple(self.target.shape)} and alpha "
                f"{tuple(self.alpha.shape)} must be [batch layer head d_head] and [batch layer head] with "
                f"{model.n_layers} layers, {model.n_heads} heads and d_head {model.d_head}."
            )
        targets, alphas = self.target.to(model.device, model.dtype), self.alpha.to(model.device, model.dtype)

        def write(layer: int, z: Tensor, at: Bool[Tensor, "batch new"]) -> Tensor:
            share = rearrange(alphas[:, layer], "batch head -> batch 1 head 1") * rearrange(
                at, "batch pos -> batch pos 1 1"
            )
            target = rearrange(targets[:, layer], "batch head d_head -> batch 1 head d_head")
            return torch.addcmul(z, share, target) if self.adds else torch.lerp(z, target, share)

        return [(model.hook_z(layer), partial(write, layer)) for layer in range(model.n_layers)]


@dataclass(frozen=True)
class ResidualEdit:
    """A vector put into the residual stream after one layer: added to what is there, or in its place.

    Args:
        vector: A leading axis of 1 serves every row.
        layer: Behind which layer.
        replaces: Whether the state is replaced.
    """

    vector: Float[Tensor, "#batch d_model"]
    layer: int
    replaces: bool = False

    @property
    def n_rows(self) -> Mapping[str, int]:
        """Rows of the vector."""
        return {"vectors": len(self.vector)}

    def rows(self, chosen: Int[Tensor, " chosen"]) -> "ResidualEdit":
        """The vectors of chosen rows; a shared one stays shared."""
        return replace(self, vector=_of_rows(self.vector, chosen))

    def writes(self, model: Model) -> list[tuple[str, Write]]:
        """One point: the state behind the layer."""
        if self.vector.shape[1] != model.d_model or not 0 <= self.layer < model.n_layers:
            raise UserError(
                f"Cannot write a vector of {self.vector.shape[1]} numbers behind layer {self.layer} of {model.name}, "
                f"which has {model.n_layers} layers of {model.d_model} numbers, counted from 0."
            )
        vector = rearrange(self.vector.to(model.device, model.dtype), "batch d_model -> batch 1 d_model")

        def write(state: Tensor, at: Bool[Tensor, "batch new"]) -> Tensor:
            return torch.where(at[:, :, None], vector if self.replaces else state + vector, state)

        return [(model.hook_resid_post(self.layer), write)]


def _of_rows(values: Float[Tensor, "batch ..."], chosen: Int[Tensor, " chosen"]) -> Float[Tensor, "rows ..."]:
    return values if len(values) == 1 else values[chosen.to(values.device)]


@contextmanager
def injecting(model: Model, edit: Edit, columns: Int[Tensor, " batch"] | None = None) -> Iterator[Receipt]:
    """Inject during every forward inside the `with` block that computes the position; works for generation as well.

    Args:
        model: The model whose forwards are meant; call its bridge in any way.
        edit: What to write: an `Intervention` into heads, or another edit; for all rows or row by row.
        columns: Position of each row as a column of the padded batch. By default the last real token of the first
            forward of a call, whichever side is padded; give it where a prompt is computed in several chunks.

    Raises:
        UserError: Shapes that do not fit the model or the batch, or padding without an attention mask.
        RuntimeError: A hook point was injected twice or not at all, a row was never reached, or no forward ran.
    """
    if model.is_watched:
        raise UserError(
            "Cannot inject inside another injection: positions would be written twice. Leave that block first."
        )
    writes = edit.writes(model)
    injector = Injector(model, writes, edit.n_rows, columns)
    hooks = [(point, injector.hook(place)) for place, (point, _) in enumerate(writes)]
    try:
        with model.hooked(hooks, injector.before, injector.after):
            yield injector.receipt
    finally:
        injector.at = None  # a hook whose removal was interrupted writes nothing any more
    injector.finish()


def injected_logits(prefixes: Prefixes, edit: Edit) -> Float[Tensor, "batch d_vocab"]:
    """Next-token logits of each prompt with its last token injected; one token per prompt is run, in fp32 at the end.

    Gradients reach what the edit was made of, if the caller asked for them.
    """
    with injecting(prefixes.model, edit, last_columns(prefixes)):
        logits, _ = prefixes.run_last()
    return logits[:, -1].float()


def injected_text(
    prefixes: Prefixes,
    edit: Edit | None = None,
    *,
    max_new_tokens: int = 20,
    stop: str | Sequence[str] = "\n",
) -> list[str]:
    """Greedy text after each prompt: its last token injected once, then plain cached decoding.

    Args:
        prefixes: The prompts.
        edit: What to inject; None generates from the model as it is.
        max_new_tokens: Longest answer in tokens.
        stop: A row ends where this text appears, or at an end-of-sequence token; one for all rows, or one for each.

    Returns:
        One text per row, up to and including the stop text.
    """
    with torch.no_grad():
        if edit is None:
            logits, cache = prefixes.run_last()
        else:
            with injecting(prefixes.model, edit, last_columns(prefixes)):
                logits, cache = prefixes.run_last()
        check_finite(prefixes, logits[:, -1], "logits")
        return decode_greedy(
            prefixes.model, logits[:, -1], prefixes.mask, cache, max_new_tokens=max_new_tokens, stop=stop
        )


def last_columns(prefixes: Prefixes) -> Int[Tensor, " batch"]:
    """The column of each prompt's last token."""
    return torch.full((len(prefixes),), prefixes.ids.shape[1] - 1, device=prefixes.ids.device)
