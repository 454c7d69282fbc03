"""Multimodal task vectors (Huang et al., NeurIPS 2024, arXiv 2406.15334): mean head outputs at sampled heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.baselines.embedded import embedding_of
from site_interp.baselines.method import Needs, check_counts, settings_of, variant_of
from site_interp.baselines.steered import Steered
from site_interp.errors import UserError
from site_interp.fit_plan import FitRun, draw_plan
from site_interp.fit_steps import Row, Validation, Written, prompts_of, row_losses, windows
from site_interp.injection import Intervention
from site_interp.kept import KeptPrefixes
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance
from site_interp.prompts import QA, Template
from site_interp.provenance import Provenance
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled, sub_seed

CLAMP = 1e-3  # of the gates' probabilities, and of the rewards' spread
TOGETHER = 4  # runs in a batch: each brings `n_samples` rows


@dataclass(frozen=True)
class MTV:
    """Which heads take their mean few-shot output is drawn from Bernoulli gates, which REINFORCE moves.

        z[l, h] <- t[l, h] where gate[l, h] is 1, at the last prompt token
        gate[l, h] ~ Bernoulli(sigmoid(logits[l, h]))
        reward: log-probability of the first answer token, standardised over the samples of a step

    One training example and `n_samples` draws of all gates in each step. Kept are the gates above one half at the step
    with the lowest validation loss. Defaults are those of the authors' code, which draws gates at the end as well.

    Args:
        n_prompts, n_shots: Prompts and demonstrations for the mean outputs.
        n_steps, lr: Steps of Adam, and their size.
        n_samples: Draws of the gates in a step.
        init: Logit of every gate at the start.
        validate_every: Steps between validations.
        n_valid: At most so many validation examples.
        template: How examples become prompts.
        memory: Budget in bytes; changes no number beyond rounding.
    """

    name: ClassVar[str] = "mtv"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    together: ClassVar[int] = TOGETHER
    n_prompts: int = 100
    n_shots: int = 4
    n_steps: int = 600
    lr: int | float = 0.1
    n_samples: int = 32
    init: int | float = -1.0
    validate_every: int = 50
    n_valid: int = 100
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        check_counts(self, "n_prompts", "n_steps", "validate_every", "n_valid")
        FitSettings(lr=self.lr, init=self.init)
        if not isinstance(self.n_samples, int) or self.n_samples < 2:
            raise UserError(
                f"Cannot run mtv with n_samples {self.n_samples!r}: rewards are compared between draws. Give 2 or more."
            )

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        return settings_of(self)

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(MTV(), plain=True))

    @property
    def n_fit_steps(self) -> int:
        """Steps of one fit."""
        return self.n_steps

    def n_read(self, task: str) -> int:
        """Prompts of the mean outputs."""
        return self.n_prompts

    def prepare(self, model: Model, labelled: Labelled, seed: int, progress: Advance | None = None) -> FitRun:
        """The mean outputs.

        Raises:
            UserError: Too few examples.
        """
        return FitRun(embedding_of(self, model, labelled, seed, progress), labelled, seed)

    @torch.no_grad()
    def fit_prepared(
        self, model: Model, prepared: Sequence[FitRun], progress: Advance = lambda _: None
    ) -> list[Steered]:
        """The gates of each; draws of all of them go through the model together.

        Raises:
            UserError: No training or validation examples.
        """
        settings = FitSettings(n_steps=self.n_steps, validate_every=self.validate_every, n_valid=self.n_valid)
        plans = [draw_plan(model, run, settings) for run in prepared]
        targets = torch.stack([run.embedding.mean for run in prepared]).to(model.device, torch.float32)
        drawn = Written(targets, settings, "shares", n_draws=self.n_samples)
        chosen = Written(targets, settings, "shares")
        logits = torch.full((len(prepared), model.n_layers, model.n_heads), float(self.init))
        optimizer = torch.optim.Adam([logits], lr=self.lr)
        draws = [
            torch.Generator().manual_seed(sub_seed(run.seed, "gates", run.labelled.task) % 2**63) for run in prepared
        ]
        scratch = self.memory // 4
        validating = Validation(model, plans, scratch)
        opened_at: list[list[tuple[float, Tensor, int]]] = [[] for _ in prepared]
        for first, last in windows(model, plans, self.n_steps, (self.memory - scratch - validating.n_bytes, scratch)):
            train = KeptPrefixes(model, prompts_of(plans, first, last), scratch)
            for step in range(first, last):
                probability = torch.sigmoid(logits).clamp(CLAMP, 1 - CLAMP)
                gates = torch.stack(
                    [
                        (torch.rand(self.n_samples, *own.shape, generator=draw) < own).float()
                        for own, draw in zip(probability, draws, strict=True)
                    ]
                )
                items = [item for plan in plans for item in plan.steps[step] for _ in range(self.n_samples)]
                rows = [Row(place, *item) for place, item in enumerate(items)]
                losses = row_losses(train, rows, drawn, gates.flatten(0, 1).to(model.device), scratch, backward=False)
                rewards = -torch.tensor([losses[place][0] for place in range(len(rows))]).view(len(prepared), -1)
                logits.grad = torch.stack(list(map(policy_gradient, logits, gates, rewards)))
                optimizer.step()
                if (step + 1) % self.validate_every == 0 or step + 1 == self.n_steps:
                    opened = (logits > 0).float()
                    validated = validating.losses(chosen, opened.to(model.device))
                    for run, loss in enumerate(validated):
                        opened_at[run].append((loss, opened[run], step + 1))
                progress(len(prepared))
        return [self._steered(model, run, found) for run, found in zip(prepared, opened_at, strict=True)]

    def _steered(self, model: Model, run: FitRun, found: Sequence[tuple[float, Tensor, int]]) -> Steered:
        """The gates of the step that validated best."""
        _, opened, step = min(found, key=lambda one: one[0])
        notes = {"step": step, "n_open": int(opened.sum()), "valid_loss": [loss for loss, *_ in found]}
        origin = Provenance.of(model, run.labelled, self.template, run.seed)
        written = Intervention(run.embedding.mean[None], opened[None])
        return Steered(self.name, origin, written, opened.numel(), notes)

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Steered:
        """Embed the task and fit the gates.

        Raises:
            UserError: Too few examples.
        """
        return self.fit_prepared(model, [self.prepare(model, labelled, seed, lambda _: None)])[0]


def policy_gradient(
    logits: Float[Tensor, "layer head"],
    gates: Float[Tensor, "sample layer head"],
    rewards: Float[Tensor, " sample"],
) -> Float[Tensor, "layer head"]:
    """Gradient of minus the expected reward: the sum of (standardised reward) * d(-log p(gates)) / d logits."""
    advantage = (rewards - rewards.mean()) / (rewards.std() + CLAMP)
    probability = torch.sigmoid(logits)
    inside = (probability > CLAMP) & (probability < 1 - CLAMP)  # beyond, the clamp lets no gradient through
    # The advantages add up to 0, so any constant may stand for the probability. With the mean of the draws a gate on
    # which all draws agree gets exactly 0; Adam would blow rounding up to a whole step.
    return -(advantage[:, None, None] * (gates - gates.mean(dim=0)) * inside).sum(dim=0)
