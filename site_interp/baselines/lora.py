"""LoRA (Hu et al., ICLR 2022, arXiv 2106.09685) and (IA)^3 (Liu et al., NeurIPS 2022, arXiv 2205.05638), by peft."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from site_interp.baselines.method import Needs, check_counts, settings_of, variant_of
from site_interp.baselines.peft_fit import PeftFitted, Training, fit_peft
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.prompts import QA, Template
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled


@dataclass(frozen=True)
class LoRA:
    """Low-rank changes of the query and value projections, trained on whole answers of zero-shot prompts.

        W x + (alpha / rank) B A x          (section 4.1)

    Rank 8 on queries and values is what 3,407,872 parameters on Llama-3.1-8B come to, the count in SITE's table. Which
    modules that is in another architecture is peft's own choice.

    Args:
        rank, alpha: Of the change.
        lr: Largest step size; the default validated best of several (benchmarks/learning_rates.py).
        n_epochs, batch_size, n_examples, n_valid: As in `Training`.
        template: How inputs become prompts.
        memory: Budget in bytes; changes no number beyond rounding.
    """

    name: ClassVar[str] = "lora"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    rank: int = 8
    alpha: int = 16
    lr: int | float = 3e-3
    n_epochs: int = 2
    batch_size: int = 8
    n_examples: int = 300
    n_valid: int = 100
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        check_counts(self, "rank", "alpha", "n_epochs", "batch_size", "n_examples", "n_valid")
        FitSettings(lr=self.lr)

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        return settings_of(self)

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(LoRA(), plain=True))

    def fit(self, model: Model, labelled: Labelled, seed: int) -> PeftFitted:
        """Train on the answers of zero-shot prompts.

        Raises:
            UserError: Too few examples, no peft, or an architecture that it does not know.
        """
        training = Training(self.lr, self.n_epochs, self.batch_size, self.n_examples, self.n_valid)
        return fit_peft(
            model,
            labelled,
            seed,
            name=self.name,
            settings={"r": self.rank, "lora_alpha": self.alpha},
            training=training,
            template=self.template,
            memory=self.memory,
        )


@dataclass(frozen=True)
class IA3:
    """A factor for each channel of keys, values and the MLP's inner activations, trained as LoRA is.

        factor * k, factor * v, factor * MLP activation, from factors of 1          (section 3.3)

    Args:
        lr: Largest step size; the default validated best of several (benchmarks/learning_rates.py).
        n_epochs, batch_size, n_examples, n_valid: As in `Training`.
        template: How inputs become prompts.
        memory: Budget in bytes; changes no number beyond rounding.
    """

    name: ClassVar[str] = "ia3"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "valid"
    lr: int | float = 1e-2
    n_epochs: int = 2
    batch_size: int = 8
    n_examples: int = 300
    n_valid: int = 100
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        check_counts(self, "n_epochs", "batch_size", "n_examples", "n_valid")
        FitSettings(lr=self.lr)

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        return settings_of(self)

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(IA3(), plain=True))

    def fit(self, model: Model, labelled: Labelled, seed: int) -> PeftFitted:
        """Train on the answers of zero-shot prompts.

        Raises:
            UserError: Too few examples, no peft, or an architecture that it does not know.
        """
        training = Training(self.lr, self.n_epochs, self.batch_size, self.n_examples, self.n_valid)
        return fit_peft(
            model,
            labelled,
            seed,
            name=self.name,
            settings={},
            training=training,
            template=self.template,
            memory=self.memory,
        )
