"""What a step of a fit computes: the losses of a batch of rows, and their gradient; nothing is drawn or kept here."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.fit_plan import FitPlan
from site_interp.injection import Intervention, injected_logits
from site_interp.kept import KeptPrefixes, kept_bytes
from site_interp.model import Model
from site_interp.prefixes import Prefixes, check_finite, kv_bytes
from site_interp.scoring import answer_logits
from site_interp.selection import FitSettings


@dataclass(frozen=True)
class Row:
    """One prompt of one run in a batch."""

    run: int
    prompt: str
    answer: tuple[int, ...]


@dataclass(frozen=True)
class Written:
    """What a step writes, and what it asks for.

    Args:
        targets: Embedding of each run.
        settings: How alpha is mixed, and the loss.
        values: What the values of a run are: `logits` of shares, `shares`, or `weights` of an added target.
        n_draws: Sets of values that take one target: values and rows count draws of runs, run after run.
    """

    targets: Float[Tensor, "run layer head d_head"]
    settings: FitSettings
    values: Literal["logits", "shares", "weights"] = "logits"
    n_draws: int = 1

    def edit(self, values: Float[Tensor, "run layer head"], of_run: Int[Tensor, " batch"]) -> Intervention:
        """The intervention of the rows of a batch."""
        shares = torch.sigmoid(values[of_run]) if self.values == "logits" else values[of_run]
        adds = self.values == "weights" or self.settings.mixing == "add"
        return Intervention(self.targets[of_run // self.n_draws], shares, adds=adds)

    def loss(
        self, prefixes: Prefixes, answers: Sequence[tuple[int, ...]], edit: Intervention
    ) -> Float[Tensor, " batch"]:
        """Cross-entropy of each row's first answer token, or of its whole answer, in nats."""
        if self.settings.loss == "first_token":
            first = torch.tensor([ids[0] for ids in answers], device=edit.alpha.device)
            return torch.nn.functional.cross_entropy(injected_logits(prefixes, edit), first, reduction="none")
        logits = answer_logits(prefixes, answers, edit)
        ids = torch.full(logits.shape[:2], IGNORED, device=logits.device)
        for row, answer in enumerate(answers):
            ids[row, : len(answer)] = torch.tensor(answer, device=logits.device)
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none")
        return losses.view(ids.shape).sum(dim=1)


IGNORED = -100  # cross_entropy counts these as 0


class Validation:
    """The validation examples of all runs; their prompts are kept if they fit in the budget, else encoded each time."""

    def __init__(self, model: Model, plans: Sequence[FitPlan], memory: int) -> None:
        self.model, self.memory, self.n_runs = model, memory, len(plans)
        rows = [Row(run, prompt, answer) for run, plan in enumerate(plans) for prompt, answer in plan.valid]
        self.parts = [rows]
        while any(len(part) > 1 and kept_bytes(model, _texts(part), memory) > memory for part in self.parts):
            self.parts = [half for part in self.parts for half in (part[::2], part[1::2]) if half]
        # Prompts that are encoded each time take the budget of what is kept when they are.
        self.n_bytes = kept_bytes(model, _texts(rows), memory) if len(self.parts) == 1 else memory
        self.kept = [KeptPrefixes(model, _texts(rows), memory)] if len(self.parts) == 1 else []

    @torch.no_grad()
    def losses(self, written: "Written", logits: Float[Tensor, "run layer head"]) -> list[float]:
        """Mean loss of each run."""
        found: dict[int, list[float]] = {}
        for part in self.parts:
            encoded = self.kept[0] if self.kept else KeptPrefixes(self.model, _texts(part), self.memory)
            for run, values in row_losses(encoded, part, written, logits, self.memory, backward=False).items():
                found.setdefault(run, []).extend(values)
        return means(found, self.n_runs)


def _texts(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.prompt for row in rows))


def row_losses(
    kept: KeptPrefixes,
    rows: Sequence[Row],
    written: Written,
    logits: Float[Tensor, "run layer head"],
    memory: int,
    *,
    backward: bool,
) -> dict[int, list[float]]:
    """Cross-entropy of each row, by run; with `backward`, the gradient of the sum of the runs' means."""
    found: dict[int, list[float]] = {}
    n_rows = Counter(row.run for row in rows)
    n_tokens = 1 if written.settings.loss == "first_token" else max(len(row.answer) for row in rows)
    max_rows = max(1, memory // _row_bytes(kept, n_tokens, backward=backward))
    for prefixes, places in kept.batches([row.prompt for row in rows], max_rows):
        members = [rows[place] for place in places]
        of_run = torch.tensor([row.run for row in members], device=logits.device)
        loss = written.loss(prefixes, [row.answer for row in members], written.edit(logits, of_run))
        if backward:
            weights = torch.tensor([1 / n_rows[row.run] for row in members], device=loss.device)
            (loss * weights).sum().backward()
        check_finite(prefixes, loss[:, None], "loss and logits")
        for row, value in zip(members, loss.tolist(), strict=True):
            found.setdefault(row.run, []).append(value)
    return found


def _row_bytes(kept: KeptPrefixes, n_tokens: int, *, backward: bool) -> int:
    """What one row of a step holds at its peak: its keys and values (gathered, extended, spread over query heads for
    the backward pass), the activations and the logits of the tokens that are run.
    """
    model = kept.model
    spread = 2 + model.n_heads // model.n_kv_heads
    activations = 4 * model.n_layers * 40 * model.d_model * n_tokens
    if backward:
        return spread * kv_bytes(model, kept.longest) + activations + 16 * model.d_vocab * n_tokens
    return 2 * kv_bytes(model, kept.longest) + activations // model.n_layers + 12 * model.d_vocab * n_tokens


def means(per_run: dict[int, list[float]], n_runs: int) -> list[float]:
    """Mean loss of each run, in their order."""
    return [sum(per_run[run]) / len(per_run[run]) for run in range(n_runs)]


def prompts_of(plans: Sequence[FitPlan], first: int, last: int) -> list[str]:
    """The different training prompts of the steps from `first` to before `last`."""
    return list(dict.fromkeys(prompt for plan in plans for step in plan.steps[first:last] for prompt, _ in step))


def windows(model: Model, plans: Sequence[FitPlan], n_steps: int, budget: tuple[int, int]) -> list[tuple[int, int]]:
    """Stretches of steps, as long as their prompts fit when kept; usually one that holds them all.

    Args:
        budget: Bytes for what is kept, and for encoding it.
    """
    most, scratch = budget

    def kept(steps: tuple[int, int]) -> int:
        return kept_bytes(model, prompts_of(plans, *steps), scratch)

    found: list[tuple[int, int]] = []
    while not found or found[-1][1] < n_steps:
        first = found[-1][1] if found else 0
        stretches = [(first, last) for last in range(first + 1, n_steps + 1)]
        whole = kept(stretches[-1]) <= most
        found.append(stretches[-1 if whole else max(0, bisect_right(stretches, most, key=kept) - 1)])
    return found
