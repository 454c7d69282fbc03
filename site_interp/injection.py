"""The one module that writes into the model: z[l, h] <- lerp(z[l, h], target[l, h], alpha[l, h]) at one position.

The position is absolute: a column of the padded batch. Every forward that computes that column injects each (row,
layer) exactly once, every other forward injects nothing, and a receipt counts. No hook outlives its `with` block.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model import Call, Hook, Model, decode_greedy
from site_interp.prefixes import Prefixes, check_finite


@dataclass(frozen=True)
class Intervention:
    """What to write into which head: one (target, alpha) for every row, or one for each row of a batch.

    Args:
        target: Values to move z towards; a leading axis of 1 serves every row.
        alpha: Share taken from `target`, 0 keeps the model's own value, 1 replaces it. May carry gradients.
    """

    target: Float[Tensor, "#batch layer head d_head"]
    alpha: Float[Tensor, "#batch layer head"]

    def rows(self, chosen: Int[Tensor, " chosen"]) -> "Intervention":
        """The intervention of chosen rows; a shared one stays shared."""
        target = self.target if len(self.target) == 1 else self.target[chosen.to(self.target.device)]
        return Intervention(target, self.alpha if len(self.alpha) == 1 else self.alpha[chosen.to(self.alpha.device)])


@dataclass
class Receipt:
    """What an injection did: counts that must add up, or the call is an error.

    Args:
        n_forwards: Forwards that contained the position of at least one row.
        n_injected: (row, layer) pairs injected, over all forwards.
        columns: The position of each row in the latest call, as a column of the padded batch.
    """

    n_forwards: int = 0
    n_injected: int = 0
    columns: list[int] = field(default_factory=list)


@contextmanager
def injecting(
    model: Model, intervention: Intervention, columns: Int[Tensor, " batch"] | None = None
) -> Iterator[Receipt]:
    """Inject during every forward inside the `with` block that computes the position; works for generation as well.

    Args:
        model: The model whose forwards are meant; call its bridge in any way.
        intervention: Targets and alphas, for all rows or row by row.
        columns: Position of each row as a column of the padded batch. By default the last real token of the first
            forward of a call, whichever side is padded; give it where a prompt is computed in several chunks.

    Raises:
        UserError: Shapes that do not fit the model or the batch, or padding without an attention mask.
        RuntimeError: A layer was injected twice or not at all, a row was never reached, or no forward ran.
    """
    if model.is_watched:
        raise UserError(
            "Cannot inject inside another injection: positions would be written twice. Leave that block first."
        )
    _check_shapes(model, intervention)
    injector = _Injector(model, intervention, columns)
    hooks = [(model.hook_z(layer), injector.hook(layer)) for layer in range(model.n_layers)]
    try:
        with model.hooked(hooks, injector.before, injector.after):
            yield injector.receipt
    finally:
        injector.at = None  # a hook whose removal was interrupted writes nothing any more
    injector.finish()


def injected_logits(prefixes: Prefixes, intervention: Intervention) -> Float[Tensor, "batch d_vocab"]:
    """Next-token logits of each prompt with its last token injected; one token per prompt is run, in fp32 at the end.

    Gradients reach `intervention.alpha` if the caller asked for them.
    """
    with injecting(prefixes.model, intervention, last_columns(prefixes)):
        logits, _ = prefixes.run_last()
    return logits[:, -1].float()


def injected_text(
    prefixes: Prefixes,
    intervention: Intervention | None = None,
    *,
    max_new_tokens: int = 20,
    stop: str | Sequence[str] = "\n",
) -> list[str]:
    """Greedy text after each prompt: its last token injected once, then plain cached decoding.

    Args:
        prefixes: The prompts.
        intervention: What to inject; None generates from the model as it is.
        max_new_tokens: Longest answer in tokens.
        stop: A row ends where this text appears, or at an end-of-sequence token; one for all rows, or one for each.

    Returns:
        One text per row, up to and including the stop text.
    """
    with torch.no_grad():
        if intervention is None:
            logits, cache = prefixes.run_last()
        else:
            with injecting(prefixes.model, intervention, last_columns(prefixes)):
                logits, cache = prefixes.run_last()
        check_finite(prefixes, logits[:, -1], "logits")
        return decode_greedy(
            prefixes.model, logits[:, -1], prefixes.mask, cache, max_new_tokens=max_new_tokens, stop=stop
        )


def last_columns(prefixes: Prefixes) -> Int[Tensor, " batch"]:
    """The column of each prompt's last token."""
    return torch.full((len(prefixes),), prefixes.ids.shape[1] - 1, device=prefixes.ids.device)


def _check_shapes(model: Model, intervention: Intervention) -> None:
    heads = (model.n_layers, model.n_heads)
    if tuple(intervention.alpha.shape[1:]) != heads or tuple(intervention.target.shape[1:]) != (*heads, model.d_head):
        raise UserError(
            f"Cannot inject into {model.name}: target {tuple(intervention.target.shape)} and alpha "
            f"{tuple(intervention.alpha.shape)} must be [batch layer head d_head] and [batch layer head] with "
            f"{model.n_layers} layers, {model.n_heads} heads and d_head {model.d_head}."
        )


def _looks_padded(ids: Int[Tensor, "batch new"], tokenizer: Any) -> bool:
    """Whether a row begins or ends in padding; a lone row may have one BOS or EOS that is also the pad token."""
    pad = tokenizer.pad_token_id
    n_pads = 2 if len(ids) == 1 and pad in (tokenizer.bos_token_id, tokenizer.eos_token_id) else 1
    if pad is None or ids.shape[1] < n_pads:
        return False
    is_pad = ids == pad
    return bool((is_pad[:, :n_pads].all(dim=1) | is_pad[:, -n_pads:].all(dim=1)).any())


class _Injector:
    """State of one `injecting` block: where the position lies in the forward under way, and who was injected."""

    def __init__(self, model: Model, intervention: Intervention, columns: Int[Tensor, " batch"] | None) -> None:
        self.model = model
        self.receipt = Receipt()
        self.target = intervention.target.to(model.device, model.dtype)
        self.alpha = intervention.alpha.to(model.device, model.dtype)
        self.given = columns
        self.columns = columns
        self.reached: Bool[Tensor, " batch"] | None = None
        self.before_ids: Tensor | None = None
        self.end = 0
        self.at: Bool[Tensor, "batch new"] | None = None
        self.n_fired = [0] * model.n_layers

    def before(self, call: Call) -> None:
        """Find the position among the tokens of a forward that is about to run."""
        if self.columns is None or self.reached is None or (call.n_past == 0 and self._is_new_call(call)):
            self.finish_call()
            # On a cache made outside the block, the last token of this first forward is meant.
            self.columns = self.given if self.given is not None else self._last_real_column(call)
            self.reached = torch.zeros(len(call.ids), dtype=torch.bool, device=call.ids.device)
        elif call.n_past and call.n_past != self.end and self.given is None:
            raise UserError(
                f"Cannot tell whether a forward after {call.n_past} cached tokens begins a new call: the last one "
                f"ended after {self.end}. Use one block for each cache, or pass the columns of the last prompt tokens."
            )
        self.before_ids = call.ids if call.n_past == 0 else None
        self.end = call.n_past + call.ids.shape[1]
        self._check_rows(len(call.ids))
        new = torch.arange(call.n_past, call.n_past + call.ids.shape[1], device=call.ids.device)
        at = (new[None, :] == self.columns[:, None]).expand(len(call.ids), -1)
        self.at = at if bool(at.any()) else None
        self.n_fired = [0] * self.model.n_layers

    def hook(self, layer: int) -> Hook:
        """The hook of one layer: the formula, as a new tensor."""

        def inject(z: Tensor) -> Tensor | None:
            if self.at is None:
                return None
            self.n_fired[layer] += 1
            share = rearrange(self.alpha[:, layer], "batch head -> batch 1 head 1")
            target = rearrange(self.target[:, layer], "batch head d_head -> batch 1 head d_head")
            return torch.lerp(z, target, share * rearrange(self.at, "batch pos -> batch pos 1 1"))

        return inject

    def after(self) -> None:
        """Count what the forward injected."""
        if self.at is None or self.reached is None:
            return
        wrong = [layer for layer, n in enumerate(self.n_fired) if n != 1]
        if wrong:
            raise RuntimeError(
                f"Injection into {self.model.name} went wrong: layer {wrong[0]} was injected {self.n_fired[wrong[0]]} "
                "times in one forward, not once. Its hook_z does not fire as expected on this architecture."
            )
        rows = self.at.any(dim=1)
        self.reached |= rows
        self.receipt.n_forwards += 1
        self.receipt.n_injected += int(rows.sum()) * self.model.n_layers
        self.receipt.columns = [] if self.columns is None else self.columns.expand(len(rows)).tolist()

    def finish_call(self) -> None:
        """A call has ended: every row must have been injected."""
        if self.reached is not None and not bool(self.reached.all()):
            missed = int((~self.reached).nonzero()[0])
            raise RuntimeError(
                f"Injection into {self.model.name} never reached row {missed}: no forward computed its position. "
                "Pass the columns of the last prompt tokens."
            )

    def finish(self) -> None:
        """The block has ended without an exception."""
        if self.reached is None:
            raise RuntimeError(f"Nothing was injected into {self.model.name}: no forward ran inside the block.")
        self.finish_call()

    def _is_new_call(self, call: Call) -> bool:
        """Without a cache, decoding runs the same ids and one more each time; anything else is a new call."""
        before = self.before_ids
        if before is None or call.ids.shape != (len(before), before.shape[1] + 1):
            return True
        return not bool((call.ids[:, :-1] == before).all())

    def _last_real_column(self, call: Call) -> Int[Tensor, " batch"]:
        n_columns = call.n_past + call.ids.shape[1]
        if call.mask is None:
            if _looks_padded(call.ids, self.model.tokenizer):
                raise UserError(
                    "Cannot tell where the prompts end: the batch is padded and has no attention mask. Pass "
                    "attention_mask together with the ids."
                )
            return torch.full((len(call.ids),), n_columns - 1, device=call.ids.device)
        order = torch.arange(n_columns, device=call.ids.device)
        return (call.mask[:, :n_columns].bool() * order).argmax(dim=1)

    def _check_rows(self, n_rows: int) -> None:
        assert self.columns is not None
        if {len(self.columns), len(self.alpha), len(self.target)} - {1, n_rows}:
            raise UserError(
                f"Cannot inject into a batch of {n_rows} rows: there are {len(self.alpha)} alphas, {len(self.target)} "
                f"targets and {len(self.columns)} positions. Give one for all rows, or one for each."
            )
