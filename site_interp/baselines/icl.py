"""Few-shot in-context learning: fresh seeded demonstrations for every query, as in SITE's evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from site_interp.baselines.method import Needs, variant_of
from site_interp.errors import UserError
from site_interp.model import Model
from site_interp.prompts import QA, Template, draw_icl_prompts
from site_interp.tasks import Labelled, Task


@dataclass(frozen=True)
class ICL:
    """N demonstrations before each query, drawn anew for every query and never the query itself.

    Args:
        n_shots: N.
        template: How examples become prompts.
    """

    name: ClassVar[str] = "icl"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "train"
    n_shots: int = 10
    template: Template = QA

    def __post_init__(self) -> None:
        if not isinstance(self.n_shots, int) or self.n_shots < 0:
            raise UserError(f"Cannot ask with {self.n_shots!r} demonstrations. Give a whole number of 0 or more.")

    def settings(self) -> Mapping[str, Any]:
        """Shots and template."""
        return {"n_shots": self.n_shots, "template": self.template.to_dict()}

    def variant(self) -> str:
        """Shots and the template's name, where not the default."""
        return variant_of(
            {"n_shots": self.n_shots, "template": self.template.name}, {"n_shots": 10, "template": QA.name}
        )

    def fit(self, model: Model, labelled: Labelled, seed: int) -> "ICLFitted":
        """Nothing is fitted; demonstrations are drawn when prompts are asked for, and counted then."""
        return ICLFitted(labelled, self.template, self.n_shots, seed)


@dataclass(frozen=True)
class ICLFitted:
    """Few-shot prompts of inputs."""

    labelled: Labelled
    template: Template
    n_shots: int
    seed: int
    name: ClassVar[str] = "icl"
    n_parameters: ClassVar[int] = 0

    @property
    def n_labels(self) -> int:
        """Distinct examples shown so far, over all queries; each query shows `n_shots`."""
        return self.labelled.n_used

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """One few-shot prompt per input."""
        return draw_icl_prompts(self.labelled, self.template, inputs, n_shots=self.n_shots, seed=self.seed)

    def intervention(self) -> None:
        """Nothing is injected."""

    def check(self, model: Model, task: Task) -> None:
        """Any model and split will do."""

    def save(self, folder: Path) -> None:
        """Nothing to keep."""
