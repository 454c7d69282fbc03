"""Learnable task vectors (Saglam et al., ACL Findings 2025, arXiv 2502.05390): weighted sums of mean head outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from site_interp.baselines.embedded import embedding_of
from site_interp.baselines.method import FITTED_TOGETHER, Needs, check_counts, settings_of, variant_of
from site_interp.baselines.steered import Steered
from site_interp.fit_plan import FitRun
from site_interp.fitting import fit_weights
from site_interp.injection import Intervention
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance
from site_interp.prompts import QA, Template
from site_interp.provenance import Provenance
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled


@dataclass(frozen=True)
class LTV:
    """In every layer, a weighted sum of the heads' mean outputs is added to the state of the last prompt token.

        residual stream of layer l <- itself + sum over h of w[l, h] W_O[l, h] t[l, h]

    The weights are real numbers fitted by gradient from 0, on the first answer token of zero-shot prompts; adding
    w[l, h] t[l, h] to z[l, h] is the same sum. Steps, validation and task embedding are those of SITE, so that only the
    form differs (the paper trains on sequences of its own).

    Args:
        n_prompts, n_shots: Prompts and demonstrations for the mean outputs.
        n_steps, lr: Steps of Adam with one example each, and their size, which validated best of three
            (benchmarks/learning_rates.py).
        n_valid: At most so many validation examples.
        template: How examples become prompts.
        memory: Budget in bytes; changes no number.
    """

    name: ClassVar[str] = "ltv"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    together: ClassVar[int] = FITTED_TOGETHER
    n_prompts: int = 50
    n_shots: int = 10
    n_steps: int = 400
    lr: int | float = 0.05
    n_valid: int = 100
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        check_counts(self, "n_prompts", "n_steps", "n_valid")
        FitSettings(lr=self.lr)

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        return settings_of(self)

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(LTV(), plain=True))

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

    def fit_prepared(
        self, model: Model, prepared: Sequence[FitRun], progress: Advance = lambda _: None
    ) -> list[Steered]:
        """The weights of each.

        Raises:
            UserError: No training or validation examples.
        """
        settings = FitSettings(n_steps=self.n_steps, lr=self.lr, n_valid=self.n_valid)
        found = fit_weights(model, prepared, settings=settings, memory=self.memory, progress=progress)
        made = []
        for run, (weights, trace) in zip(prepared, found, strict=True):
            written = Intervention(run.embedding.mean[None], weights[None], adds=True)
            notes = {"step": trace.chosen_step, "valid_loss": list(trace.valid_loss)}
            origin = Provenance.of(model, run.labelled, self.template, run.seed)
            made.append(Steered(self.name, origin, written, weights.numel(), notes))
        return made

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Steered:
        """Embed the task and fit the weights.

        Raises:
            UserError: Too few examples.
        """
        return self.fit_prepared(model, [self.prepare(model, labelled, seed, lambda _: None)])[0]
