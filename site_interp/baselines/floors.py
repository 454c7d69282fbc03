"""The floors: what a score is worth that needs no understanding at all."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from site_interp.baselines.method import FixedAnswers, Needs, variant_of
from site_interp.model import Model
from site_interp.prompts import QA, Template
from site_interp.tasks import Labelled


@dataclass(frozen=True)
class Echo:
    """The input given back as the answer; right surprisingly often under a prefix match.

    Args:
        template: How answers become text, for the first-token score.
    """

    name: ClassVar[str] = "echo"
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

    def fit(self, model: Model, labelled: Labelled, seed: int) -> FixedAnswers:
        """Nothing is fitted."""
        return FixedAnswers(self.name, self.template, lambda text: text)


@dataclass(frozen=True)
class Majority:
    """The most frequent training answer, whatever the input; the first in order among equals.

    Args:
        template: How answers become text, for the first-token score.
    """

    name: ClassVar[str] = "majority"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = False
    needs: ClassVar[Needs] = "train"
    template: Template = QA

    def settings(self) -> Mapping[str, Any]:
        """The template."""
        return {"template": self.template.to_dict()}

    def variant(self) -> str:
        """The template's name, unless it is the default."""
        return variant_of({"template": self.template.name}, {"template": QA.name})

    def fit(self, model: Model, labelled: Labelled, seed: int) -> FixedAnswers:
        """Count the training answers."""
        examples = labelled.train(range(labelled.n_train))
        (answer, _), *_ = Counter(example.answer for example in examples).most_common(1)
        return FixedAnswers(self.name, self.template, lambda _: answer, n_labels=labelled.n_used)
