"""Multimodal task vectors (Huang et al., NeurIPS 2024, arXiv 2406.15334): mean head outputs at sampled heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.baselines.method import Needs, check_counts, settings_of, variant_of
from site_interp.baselines.steered import Steered
from site_interp.embedding import embed_task
from site_interp.errors import UserError
from site_interp.fit_plan import FitRun, Item, draw_plan
from site_interp.injection import Intervention, injected_logits
from site_interp.kept import KeptPrefixes
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY, check_finite
from site_interp.prompts import QA, Template
from site_interp.provenance import Provenance
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled, sub_seed

CLAMP = 1e-3  # of the gates' probabilities, and of the rewards' spread
MAX_ROWS = 64


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
        memory: Budget in bytes; changes no number.
    """

    name: ClassVar[str] = "mtv"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
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

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Steered:
        """Embed the task and fit the gates.

        Raises:
            UserError: Too few examples.
        """
        embedding = embed_task(
            model,
            labelled,
            n_prompts=self.n_prompts,
            n_shots=self.n_shots,
            seed=seed,
            template=self.template,
            memory=self.memory,
            progress=lambda _: None,
        )
        settings = FitSettings(n_steps=self.n_steps, n_valid=self.n_valid)
        plan = draw_plan(model, FitRun(embedding, labelled, seed), settings)
        target = embedding.mean[None].to(model.device)
        logits = torch.full((model.n_layers, model.n_heads), float(self.init))
        optimizer = torch.optim.Adam([logits], lr=self.lr)
        draw = torch.Generator().manual_seed(sub_seed(seed, "gates", labelled.task) % 2**63)
        train = _kept(model, [item for step in plan.steps for item in step], self.memory)
        valid = _kept(model, plan.valid, self.memory)
        best, validated = (float("inf"), torch.zeros_like(logits), 0), []
        for step, items in enumerate(plan.steps, start=1):
            probability = torch.sigmoid(logits).clamp(CLAMP, 1 - CLAMP)
            gates = torch.rand(self.n_samples, *logits.shape, generator=draw) < probability
            rewards = _log_probs(train, list(items) * self.n_samples, target, gates.float())
            logits.grad = policy_gradient(logits, gates.float(), rewards)
            optimizer.step()
            if step % self.validate_every == 0 or step == self.n_steps:
                opened = (logits > 0).float()
                loss = -float(_log_probs(valid, plan.valid, target, opened.expand(len(plan.valid), -1, -1)).mean())
                validated.append(loss)
                best = min(best, (loss, opened, step), key=lambda found: found[0])
        _, opened, step = best
        notes = {"step": step, "n_open": int(opened.sum()), "valid_loss": validated}
        origin = Provenance.of(model, labelled, self.template, seed)
        written = Intervention(embedding.mean[None], opened[None])
        return Steered(self.name, origin, written, opened.numel(), notes)


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


def _kept(model: Model, items: Sequence[Item], memory: int) -> KeptPrefixes:
    return KeptPrefixes(model, list(dict.fromkeys(prompt for prompt, _ in items)), memory // 4)


@torch.no_grad()
def _log_probs(
    kept: KeptPrefixes,
    items: Sequence[Item],
    target: Float[Tensor, "1 layer head d_head"],
    gates: Float[Tensor, "row layer head"],
) -> Float[Tensor, " row"]:
    """Log-probability of each item's first answer token with its gates open."""
    found = torch.zeros(len(items))
    for prefixes, places in kept.batches([prompt for prompt, _ in items], MAX_ROWS):
        logits = injected_logits(prefixes, Intervention(target, gates[places]))
        check_finite(prefixes, logits, "logits")
        first = torch.tensor([items[place][1][0] for place in places], device=logits.device)
        found[places] = logits.log_softmax(-1).gather(-1, first[:, None])[:, 0].cpu()
    return found
