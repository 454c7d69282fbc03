"""State of one injection block: where in a forward the last prompt token lies, and a count of who was written to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model import Call, Hook, Model

Write = Callable[[Float[Tensor, "batch new ..."], Bool[Tensor, "batch new"]], Tensor]
"""The value of a hook point, and where the position is among its tokens; returns the value with that written."""


@dataclass
class Receipt:
    """What an injection did: counts that must add up, or the call is an error.

    Args:
        n_forwards: Forwards that contained the position of at least one row.
        n_injected: (row, hook point) pairs injected, over all forwards; an adapter has one point in each layer.
        columns: The position of each row in the latest call, as a column of the padded batch.
    """

    n_forwards: int = 0
    n_injected: int = 0
    columns: list[int] = field(default_factory=list)


def _looks_padded(ids: Int[Tensor, "batch new"], tokenizer: Any) -> bool:
    """Whether a row begins or ends in padding; a lone row may have one BOS or EOS that is also the pad token."""
    pad = tokenizer.pad_token_id
    n_pads = 2 if len(ids) == 1 and pad in (tokenizer.bos_token_id, tokenizer.eos_token_id) else 1
    if pad is None or ids.shape[1] < n_pads:
        return False
    is_pad = ids == pad
    return bool((is_pad[:, :n_pads].all(dim=1) | is_pad[:, -n_pads:].all(dim=1)).any())


class Injector:
    """State of one `injecting` block: where the position lies in the forward under way, and who was injected."""

    def __init__(
        self,
        model: Model,
        writes: Sequence[tuple[str, Write]],
        n_rows: Mapping[str, int],
        columns: Int[Tensor, " batch"] | None,
    ) -> None:
        self.model = model
        self.receipt = Receipt()
        self.writes = writes
        self.n_rows = n_rows
        self.given = columns
        self.columns = columns
        self.reached: Bool[Tensor, " batch"] | None = None
        self.before_ids: Tensor | None = None
        self.end = 0
        self.at: Bool[Tensor, "batch new"] | None = None
        self.n_fired = [0] * len(writes)

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
        self.n_fired = [0] * len(self.writes)

    def hook(self, place: int) -> Hook:
        """The hook of one of the points."""
        _, write = self.writes[place]

        def inject(value: Tensor) -> Tensor | None:
            if self.at is None:
                return None
            self.n_fired[place] += 1
            return write(value, self.at)

        return inject

    def after(self) -> None:
        """Count what the forward injected."""
        if self.at is None or self.reached is None:
            return
        for (point, _), n_fired in zip(self.writes, self.n_fired, strict=True):
            if n_fired != 1:
                raise RuntimeError(
                    f"Injection into {self.model.name} went wrong: {point} was injected {n_fired} times in one "
                    "forward, not once. It does not fire as expected on this architecture."
                )
        rows = self.at.any(dim=1)
        self.reached |= rows
        self.receipt.n_forwards += 1
        self.receipt.n_injected += int(rows.sum()) * len(self.writes)
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
        sizes = {**self.n_rows, "positions": len(self.columns)}
        if set(sizes.values()) - {1, n_rows}:
            found = ", ".join(f"{n} {what}" for what, n in sizes.items())
            raise UserError(
                f"Cannot inject into a batch of {n_rows} rows: there are {found}. Give one for all rows, or one for "
                "each."
            )
