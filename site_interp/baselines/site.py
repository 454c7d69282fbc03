"""SITE: soft head selection for injecting an ICL-derived task embedding (Park et al., arXiv 2507.20906)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from site_interp.adapter import Adapter
from site_interp.baselines.method import Needs, variant_of
from site_interp.embedding import TaskEmbedding, embed_task
from site_interp.fit_plan import FitRun
from site_interp.fitting import fit_selections
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance
from site_interp.prompts import QA, Template
from site_interp.selection import PAPER, FitSettings
from site_interp.tasks import Labelled

DEFAULT = PAPER
PRESETS: Mapping[str, FitSettings] = {"default": DEFAULT, "paper": PAPER}
"""`paper`: 400 steps of one example, lr 0.2. `default`: the same, as validation found nothing better (decisions.md)."""


@dataclass(frozen=True)
class SITE:
    """Task embedding from M prompts of N demonstrations, one fitted alpha per head, one injection per query.

    Args:
        n_prompts: M.
        n_shots: N.
        fitting: Steps, batch size, step size, validation.
        template: How examples become prompts.
        memory: Budget in bytes; changes no number.
    """

    name: ClassVar[str] = "site"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    n_prompts: int = 50
    n_shots: int = 10
    fitting: FitSettings = DEFAULT
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    @property
    def preset(self) -> str | None:
        """The preset whose fit settings these are; None for others."""
        return next((name for name, fitting in PRESETS.items() if fitting == self.fitting), None)

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        embedding = {"n_prompts": self.n_prompts, "n_shots": self.n_shots, "template": self.template.to_dict()}
        return {**embedding, **self.fitting.to_dict()}

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        plain = {**self.settings(), "template": self.template.name}
        return variant_of(plain, {**SITE().settings(), "template": QA.name})

    def embed(self, model: Model, labelled: Labelled, seed: int, progress: Advance | None = None) -> TaskEmbedding:
        """The first half of the fit: the task embedding."""
        return embed_task(
            model,
            labelled,
            n_prompts=self.n_prompts,
            n_shots=self.n_shots,
            seed=seed,
            template=self.template,
            memory=self.memory,
            progress=progress,
        )

    def select(self, model: Model, runs: Sequence[FitRun], progress: Advance = lambda _: None) -> list[Adapter]:
        """The second half, for many runs in one batch: alpha."""
        selections = fit_selections(model, runs, settings=self.fitting, memory=self.memory, progress=progress)
        return [Adapter(run.embedding, selection) for run, selection in zip(runs, selections, strict=True)]

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Adapter:
        """Embed the task and fit alpha."""
        return self.select(model, [FitRun(self.embed(model, labelled, seed), labelled, seed)])[0]
