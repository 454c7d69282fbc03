"""Function vectors (Todd et al., ICLR 2024, arXiv 2310.15213): a few heads' mean outputs, added behind a layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.baselines.embedded import embedding_of
from site_interp.baselines.layers import choose_edit
from site_interp.baselines.method import Needs, check_counts, settings_of, variant_of
from site_interp.baselines.steered import Steered
from site_interp.embedding import TaskEmbedding
from site_interp.injection import ResidualEdit
from site_interp.model import Model, project_heads
from site_interp.patching import HeadEffects, rank_heads, sweep_heads
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.prompts import QA, Template
from site_interp.provenance import Provenance
from site_interp.tasks import Labelled


@dataclass(frozen=True)
class FunctionVector:
    """Mean head outputs over few-shot prompts; of the heads with the largest causal indirect effect the sum is added.

        v = sum over chosen heads (l, h) of W_O[l, h] t[l, h]          (section 2.4)
        residual stream behind layer L <- itself + v, at the last prompt token

    The heads are those whose mean output, written into few-shot prompts with shuffled labels, raises the probability of
    the right answer most (section 2.3, there averaged over many tasks; here of the task itself). L is chosen by first
    tokens right on validation prompts. Defaults are those of the authors' code.

    Args:
        n_prompts: Prompts for the mean outputs.
        n_shots: Demonstrations in each, and in the prompts with shuffled labels.
        n_queries: Prompts for the indirect effects, at most the validation examples there are.
        n_heads: Heads that are summed.
        n_valid: Validation examples for choosing the layer.
        template: How examples become prompts.
        memory: Budget in bytes; changes no number.
    """

    name: ClassVar[str] = "function_vector"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    n_prompts: int = 100
    n_shots: int = 10
    n_queries: int = 25
    n_heads: int = 10
    n_valid: int = 100
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        check_counts(self, "n_prompts", "n_queries", "n_heads", "n_valid")

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        return settings_of(self)

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(FunctionVector(), plain=True))

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Steered:
        """Embed, sweep, sum and choose the layer."""
        embedding = embedding_of(self, model, labelled, seed, lambda _: None)
        effects = sweep_heads(
            model,
            labelled,
            embedding,
            kind="shuffled",
            n_prompts=min(self.n_queries, max(labelled.n_valid, 1)),
            seed=seed,
            memory=self.memory,
            progress=lambda _: None,
        )
        heads = rank_heads(probability_effects(effects))[: self.n_heads]
        vector = sum_of_heads(model, embedding, heads)
        edits = [ResidualEdit(vector[None], layer) for layer in range(model.n_layers)]
        choice = choose_edit(
            model,
            labelled,
            self.template,
            edits,
            n_valid=self.n_valid,
            memory=self.memory,
            progress=lambda _: None,
        )
        notes = {"heads": [list(head) for head in heads], "validation": choice.to_dict()}
        origin = Provenance.of(model, labelled, self.template, seed)
        return Steered(self.name, origin, edits[choice.best], notes=notes)


def probability_effects(effects: HeadEffects) -> Float[Tensor, "layer head"]:
    """Mean change of the answer's probability, from changes of its log-probability."""
    clean = effects.clean[:, None, None]
    return ((clean + effects.values).exp() - clean.exp()).mean(dim=0)


def sum_of_heads(model: Model, embedding: TaskEmbedding, heads: list[tuple[int, int]]) -> Float[Tensor, " d_model"]:
    """What the heads' mean outputs add to the residual stream together."""
    chosen = torch.zeros_like(embedding.mean)
    for layer, head in heads:
        chosen[layer, head] = embedding.mean[layer, head]
    layers = sorted({layer for layer, _ in heads})
    return torch.stack([project_heads(model, layer, chosen[layer][None])[0] for layer in layers]).sum(dim=0)
