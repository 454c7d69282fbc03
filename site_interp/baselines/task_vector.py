"""Task vectors (Hendel et al., EMNLP Findings 2023, arXiv 2310.15916): the state behind a layer, replaced."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from site_interp.baselines.layers import choose_edit
from site_interp.baselines.method import Needs, check_counts, settings_of, variant_of
from site_interp.baselines.steered import Steered
from site_interp.embedding import read_prompts
from site_interp.injection import ResidualEdit
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.prompts import QA, Template, draw_embedding_prompts
from site_interp.provenance import Provenance
from site_interp.tasks import Labelled


@dataclass(frozen=True)
class TaskVector:
    """The residual stream at the last token of a few-shot prompt with another query, put into zero-shot prompts.

        residual stream behind layer L <- theta, at the last prompt token          (section 3.1)

    L is chosen by first tokens right on validation prompts. One prompt, as in the paper; more are averaged.

    Args:
        n_prompts: Prompts that theta is the mean of.
        n_shots: Demonstrations in each.
        n_valid: Validation examples for choosing the layer.
        template: How examples become prompts.
        memory: Budget in bytes; changes no number.
    """

    name: ClassVar[str] = "task_vector"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    n_prompts: int = 1
    n_shots: int = 10
    n_valid: int = 100
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        check_counts(self, "n_prompts", "n_valid")

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        return settings_of(self)

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(TaskVector(), plain=True))

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Steered:
        """Read the states behind all layers, and choose one."""
        prompts = draw_embedding_prompts(
            labelled, self.template, n_prompts=self.n_prompts, n_shots=self.n_shots, seed=seed
        )
        points = [model.hook_resid_post(layer) for layer in range(model.n_layers)]
        states = read_prompts(model, prompts, points, memory=self.memory, progress=lambda _: None).mean(dim=0)
        edits = [ResidualEdit(states[layer][None], layer, replaces=True) for layer in range(model.n_layers)]
        choice = choose_edit(
            model,
            labelled,
            self.template,
            edits,
            n_valid=self.n_valid,
            memory=self.memory,
            progress=lambda _: None,
        )
        notes = {"validation": choice.to_dict()}
        return Steered(self.name, Provenance.of(model, labelled, self.template, seed), edits[choice.best], notes=notes)
