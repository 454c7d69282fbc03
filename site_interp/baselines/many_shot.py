"""Many-shot in-context learning (Agarwal et al., NeurIPS 2024, arXiv 2404.11018): as many demonstrations as fit."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from site_interp.baselines.method import Needs, check_counts, settings_of, variant_of
from site_interp.errors import UserError
from site_interp.model import Model
from site_interp.prompts import QA, Template
from site_interp.tasks import Example, Labelled, Task, sub_seed


@dataclass(frozen=True)
class ManyShotICL:
    """The same demonstrations before every query, as many as fit in a number of tokens; their prefix is computed once.

    Args:
        max_tokens: Tokens that the demonstrations may have together.
        template: How examples become prompts.
    """

    name: ClassVar[str] = "many_shot_icl"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "train"
    max_tokens: int = 1024
    template: Template = QA

    def __post_init__(self) -> None:
        check_counts(self, "max_tokens")

    def settings(self) -> Mapping[str, Any]:
        """Tokens and template."""
        return settings_of(self)

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(ManyShotICL(), plain=True))

    def fit(self, model: Model, labelled: Labelled, seed: int) -> "ManyShotFitted":
        """Choose the demonstrations: the first of a shuffle that fit.

        Raises:
            UserError: Not one demonstration fits, or there is none.
        """
        order = list(range(labelled.n_train))
        random.Random(sub_seed(seed, "many shots", labelled.task)).shuffle(order)
        room = min(self.max_tokens, model.n_ctx)
        shown: list[Example] = []
        n_tokens = 0
        for index in order:
            (example,) = labelled.train([index])
            n_tokens += len(model.token_ids(self.template.few_shot([example], "")))
            if n_tokens > room:
                break
            shown.append(example)
        if not shown:
            raise UserError(
                f"Cannot show demonstrations of task '{labelled.task}' in {room} tokens: not one of its "
                f"{labelled.n_train} training examples fits. Raise max_tokens."
            )
        return ManyShotFitted(self.template, tuple(shown), labelled.n_used)


@dataclass(frozen=True)
class ManyShotFitted:
    """Prompts that begin with the same demonstrations."""

    template: Template
    shown: tuple[Example, ...]
    n_labels: int
    name: ClassVar[str] = "many_shot_icl"
    n_parameters: ClassVar[int] = 0

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """One prompt per input."""
        return tuple(self.template.few_shot(self.shown, text) for text in inputs)

    def intervention(self) -> None:
        """Nothing is injected."""

    def check(self, model: Model, task: Task) -> None:
        """Any model and split will do."""

    def save(self, folder: Path) -> None:
        """Nothing to keep."""
