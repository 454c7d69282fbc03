"""Choosing the layer of a residual-stream method on validation data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from site_interp.errors import UserError
from site_interp.fit_plan import draw_valid
from site_interp.injection import Edit, injected_logits
from site_interp.model import Model
from site_interp.prefixes import check_finite, iterate_prefixes
from site_interp.progress import Advance, advancing
from site_interp.prompts import Template
from site_interp.tasks import Labelled

MAX_ROWS = 64


@dataclass(frozen=True)
class Choice:
    """Which of several edits does best on validation prompts.

    Args:
        best: Its place: the most first tokens right, then the highest log-probability.
        first_token: Share of first answer tokens right, of each.
        log_prob: Mean log-probability of the first answer token, in nats, of each.
    """

    best: int
    first_token: tuple[float, ...]
    log_prob: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {"layer": self.best, "first_token": list(self.first_token), "log_prob": list(self.log_prob)}


@torch.no_grad()
def choose_edit(
    model: Model,
    labelled: Labelled,
    template: Template,
    edits: Sequence[Edit],
    *,
    n_valid: int,
    memory: int,
    progress: Advance | None = None,
) -> Choice:
    """Write each edit into the same zero-shot validation prompts; one token of each prompt is run for each edit.

    Args:
        model: Left as it is.
        labelled: Its validation answers are looked at, and counted.
        template: How inputs become prompts.
        edits: Each for every row.
        n_valid: At most so many validation examples.
        memory: Budget in bytes.
        progress: Called with the (edit, prompt) pairs done; by default a bar is shown.

    Raises:
        UserError: No validation examples.
    """
    if not labelled.n_valid or n_valid < 1:
        raise UserError(
            f"Cannot choose a layer for task '{labelled.task}': it has no validation examples. Add some to the task."
        )
    items = draw_valid(model, labelled, template, n_valid)
    answers = torch.tensor([answer[0] for _, answer in items], device=model.device)
    hits, log_probs = torch.zeros(len(edits)), torch.zeros(len(edits))
    prompts = [prompt for prompt, _ in items]
    with advancing(len(prompts) * len(edits), "choosing a layer", progress) as advance:
        for prefixes in iterate_prefixes(model, prompts, memory=memory // 2, max_rows=MAX_ROWS):
            wanted = answers[prefixes.rows][:, None]
            for place, edit in enumerate(edits):
                logits = injected_logits(prefixes, edit)
                check_finite(prefixes, logits, "logits")
                own = logits.gather(-1, wanted)
                hits[place] += ((logits >= own).sum(dim=-1) == 1).sum().cpu()
                log_probs[place] += logits.log_softmax(-1).gather(-1, wanted).sum().cpu()
                advance(len(prefixes))
    shares = [(float(hit) / len(items), float(value) / len(items)) for hit, value in zip(hits, log_probs, strict=True)]
    best = max(range(len(edits)), key=lambda place: shares[place])
    return Choice(best, tuple(share for share, _ in shares), tuple(value for _, value in shares))
