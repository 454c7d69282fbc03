"""SITE: soft head selection for injecting an ICL-derived task embedding (Park et al., arXiv 2507.20906)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import torch

from site_interp.adapter import Adapter
from site_interp.baselines.ablations import Heads, Target, hard_heads, mean_target, random_target
from site_interp.baselines.embedded import embedding_of
from site_interp.baselines.method import FITTED_TOGETHER, Needs, variant_of
from site_interp.embedding import TaskEmbedding
from site_interp.errors import UserError
from site_interp.fit_plan import FitRun
from site_interp.fitting import fit_selections
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance
from site_interp.prompts import QA, Template
from site_interp.selection import PAPER, FitSettings, HeadSelection
from site_interp.tasks import Labelled, Task

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
        heads: `soft` takes each head's alpha. `hard` opens those above one half, `top` the `share` of all heads that
            rank first, `all` every head without a fit; heads that are not opened stay as they are.
        share: Of `top`.
        target: What heads take: the `task` embedding; a `random` one of the same norm in every head; that of the next
            of `donors` (`other`); or the `mean` of all donors but this task. Alpha is fitted to what is taken.
        donors: Tasks that lend their embedding.
    """

    name: ClassVar[str] = "site"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    together: ClassVar[int] = FITTED_TOGETHER
    n_prompts: int = 50
    n_shots: int = 10
    fitting: FitSettings = DEFAULT
    template: Template = QA
    memory: int = DEFAULT_MEMORY
    heads: Heads = "soft"
    share: int | float = 0.3
    target: Target = "task"
    donors: tuple[Task, ...] = ()

    def __post_init__(self) -> None:
        for name, known in (("heads", get_args(Heads)), ("target", get_args(Target))):
            if getattr(self, name) not in known:
                raise UserError(f"Cannot run site with {name} {getattr(self, name)!r}. Give {', '.join(known)}.")
        if not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise UserError(f"Cannot run site with share {self.share!r}. Give a number above 0, at most 1.")

    @property
    def preset(self) -> str | None:
        """The preset whose fit settings these are; None for others."""
        return next((name for name, fitting in PRESETS.items() if fitting == self.fitting), None)

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        embedding = {"n_prompts": self.n_prompts, "n_shots": self.n_shots, "template": self.template.to_dict()}
        # Left out where they are the default, so that older results keep their hashes.
        other: dict[str, Any] = {} if self.heads == "soft" else {"heads": self.heads}
        if self.heads == "top":
            other["share"] = self.share
        if self.target != "task":
            other["target"] = self.target
        if self.target in ("other", "mean"):
            other["donors"] = [task.split_hash for task in self.donors]
        return {**embedding, **self.fitting.to_dict(), **other}

    def variant(self) -> str:
        """Settings that are not the default, by name; donors are the run's tasks."""
        plain = {**self.settings(), "template": self.template.name}
        plain.pop("donors", None)
        return variant_of(plain, {**SITE().settings(), "template": QA.name})

    def embed(self, model: Model, labelled: Labelled, seed: int, progress: Advance | None = None) -> TaskEmbedding:
        """The first half of the fit: the task embedding, or what stands in its place.

        Raises:
            UserError: Too few examples, or no other task to lend its embedding.
        """
        if self.target == "task":
            return embedding_of(self, model, labelled, seed, progress)
        if self.target == "random":
            return random_target(embedding_of(self, model, labelled, seed, progress), seed)
        lenders = self._lenders(labelled.task)
        if not lenders:
            raise UserError(
                f"Cannot take the target of another task than '{labelled.task}': no other was given. Run several tasks "
                "together, or give donors."
            )
        return mean_target([embedding_of(self, model, Labelled(task), seed, progress) for task in lenders], labelled)

    @property
    def n_fit_steps(self) -> int:
        """Steps of one fit; none where every head is open."""
        return 0 if self.heads == "all" else self.fitting.n_steps

    def n_read(self, task: str) -> int:
        """Prompts of the task embedding, or of those that are taken instead."""
        lenders = self._lenders(task) if self.target in ("other", "mean") else ()
        return self.n_prompts * max(1, len(lenders))

    def prepare(self, model: Model, labelled: Labelled, seed: int, progress: Advance | None = None) -> FitRun:
        """The embedding, and whose labels alpha is fitted to; errors are those of `embed`."""
        return FitRun(self.embed(model, labelled, seed, progress), labelled, seed)

    def _lenders(self, task: str) -> tuple[Task, ...]:
        """The donors of `other` or `mean`; `other` is the one that follows in their order."""
        names = [donor.name for donor in self.donors]
        place = names.index(task) + 1 if task in names else 0
        others = [donor for donor in (*self.donors[place:], *self.donors[:place]) if donor.name != task]
        return tuple(others[:1] if self.target == "other" else others)

    def fit_prepared(
        self, model: Model, prepared: Sequence[FitRun], progress: Advance = lambda _: None
    ) -> list[Adapter]:
        """The second half, for many runs in one batch: alpha."""
        if self.heads == "all":
            shape = (model.n_layers, model.n_heads)
            selections = [HeadSelection(torch.zeros(shape), seed=r.seed, n_labels=r.labelled.n_used) for r in prepared]
        else:
            selections = fit_selections(model, prepared, settings=self.fitting, memory=self.memory, progress=progress)
        return [
            Adapter(run.embedding, hard_heads(selection, self.heads, self.share))
            for run, selection in zip(prepared, selections, strict=True)
        ]

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Adapter:
        """Embed the task and fit alpha."""
        return self.fit_prepared(model, [self.prepare(model, labelled, seed)])[0]
