"""The model as it is, asked without demonstrations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from site_interp.baselines.method import Needs, variant_of
from site_interp.model import Model
from site_interp.prompts import QA, Template
from site_interp.tasks import Labelled, Task


@dataclass(frozen=True)
class ZeroShot:
    """Zero-shot prompts and nothing injected.

    Args:
        template: How inputs become prompts.
    """

    name: ClassVar[str] = "zero_shot"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = False
    needs: ClassVar[Needs] = "nothing"
    template: Template = QA

    def settings(self) -> Mapping[str, Any]:
        """The template."""
        return {"template": self.template.to_dict()}

    def variant(self) -> str:
        """The template's name, unless it is the default."""
        return variant_of({"template": self.template.name}, {"template": QA.name})

    def fit(self, model: Model, labelled: Labelled, seed: int) -> "ZeroShotFitted":
        """Nothing is fitted and no answer is looked at."""
        return ZeroShotFitted(self.template)


@dataclass(frozen=True)
class ZeroShotFitted:
    """Zero-shot prompts of inputs."""

    template: Template
    name: ClassVar[str] = "zero_shot"
    n_parameters: ClassVar[int] = 0
    n_labels: ClassVar[int] = 0

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """One zero-shot prompt per input."""
        return tuple(self.template.zero_shot(text) for text in inputs)

    def intervention(self) -> None:
        """Nothing is injected."""

    def check(self, model: Model, task: Task) -> None:
        """Any model and split will do."""

    def save(self, folder: Path) -> None:
        """Nothing to keep."""
