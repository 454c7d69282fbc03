"""A vote of the most similar training inputs, without any model: what similarity alone is worth."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

from site_interp.baselines.method import FixedAnswers, Needs, check_counts, variant_of
from site_interp.errors import UserError
from site_interp.model import Model
from site_interp.prompts import QA, Template
from site_interp.tasks import Labelled


@dataclass(frozen=True)
class Similarity:
    """How alike two inputs are.

    Args:
        name: What settings and records call it.
        against: Given the training inputs, a function from an input to its similarity with each of them; it may prepare
            them once. The higher, the more alike.
    """

    name: str
    against: Callable[[Sequence[str]], Callable[[str], Sequence[float]]]


def _trigrams_against(texts: Sequence[str]) -> Callable[[str], Sequence[float]]:
    counted = [_trigrams(text) for text in texts]

    def similarities(text: str) -> list[float]:
        own = _trigrams(text)
        return [_cosine(own, other) for other in counted]

    return similarities


def _trigrams(text: str) -> Counter[str]:
    padded = f"  {text.lower()}  "
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))


def _cosine(a: Counter[str], b: Counter[str]) -> float:
    shared = sum(n * b[part] for part, n in a.items())
    return shared / sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))


TRIGRAMS = Similarity("trigrams", _trigrams_against)
"""Cosine between counts of three characters in a row, letter case ignored."""


@dataclass(frozen=True)
class KNN:
    """The most frequent answer among the k training inputs most like the query; among equals that of the nearer ones.

    Args:
        k: Neighbours that vote.
        similarity: How alike inputs are.
        template: How answers become text, for the first-token score.
    """

    name: ClassVar[str] = "knn"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = False
    needs: ClassVar[Needs] = "train"
    k: int = 5
    similarity: Similarity = TRIGRAMS
    template: Template = QA

    def __post_init__(self) -> None:
        check_counts(self, "k")

    def settings(self) -> Mapping[str, Any]:
        """Neighbours, the similarity's name, and the template."""
        return {"k": self.k, "similarity": self.similarity.name, "template": self.template.to_dict()}

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        plain = {**self.settings(), "template": self.template.name}
        return variant_of(plain, {**KNN().settings(), "template": QA.name})

    def fit(self, model: Model, labelled: Labelled, seed: int) -> FixedAnswers:
        """Read all training examples.

        Raises:
            UserError: There are none.
        """
        examples = labelled.train(range(labelled.n_train))
        if not examples:
            raise UserError(f"Cannot ask the neighbours of task '{labelled.task}': it has no training examples.")
        similarities = self.similarity.against([example.input for example in examples])

        def answer(text: str) -> str:
            found = similarities(text)
            nearest = sorted(range(len(found)), key=lambda index: (-found[index], index))[: self.k]
            votes = Counter(examples[index].answer for index in nearest)  # in the order of nearness
            return votes.most_common(1)[0][0]

        return FixedAnswers(self.name, self.template, answer, n_labels=labelled.n_used)
