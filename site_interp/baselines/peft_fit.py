"""Fine-tuning with peft: training on whole answers, and a fitted method that changes weights while it is asked."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from site_interp.baselines.answers import Pair, answer_losses, check_loss, pair_of, parts_of
from site_interp.baselines.fitted_files import read_fitted, write_fitted
from site_interp.fit_plan import check_examples, valid_examples
from site_interp.model import Model, load_peft_parameters, peft_modules, peft_parameters
from site_interp.prompts import Template
from site_interp.provenance import Provenance, check_model, check_split
from site_interp.tasks import Labelled, Task, sub_seed

WARM_UP = 0.06  # share of the steps in which the step size rises


@dataclass(frozen=True)
class Training:
    """How weights are trained.

    Args:
        lr: Largest step size of AdamW; it rises at first and falls linearly to 0.
        n_epochs: Passes over the training examples; after each one validation is run, and the best is kept.
        batch_size: Examples in a step.
        n_examples: At most so many training examples.
        n_valid: At most so many validation examples.
    """

    lr: int | float
    n_epochs: int
    batch_size: int
    n_examples: int
    n_valid: int


@dataclass(frozen=True)
class PeftFitted:
    """Zero-shot prompts to a model whose weights are changed by LoRA or (IA)^3.

    Args:
        name: `lora` or `ia3`.
        origin: Model, task, split, template, seed and labels of the fit.
        settings: Arguments of peft's configuration.
        values: The adapter's parameters, by their name in the model.
        notes: What is told about the fit: losses of the steps, validation losses of the epochs.
    """

    name: str
    origin: Provenance
    settings: Mapping[str, Any]
    values: Mapping[str, Tensor] = field(repr=False)
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def template(self) -> Template:
        """How inputs become prompts."""
        return self.origin.template

    @property
    def n_labels(self) -> int:
        """Distinct labelled examples used, validation included."""
        return self.origin.n_labels

    @property
    def n_parameters(self) -> int:
        """Trained scalars."""
        return sum(value.numel() for value in self.values.values())

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Zero-shot prompts of inputs."""
        return tuple(self.template.zero_shot(text) for text in inputs)

    def intervention(self) -> None:
        """Nothing is injected; the weights are changed."""

    def check(self, model: Model, task: Task) -> None:
        """Refuse another model, or the same task with another split.

        Raises:
            UserError: Says what differs.
        """
        check_model(self.origin, model, f"{self.name} adapter")
        check_split(self.origin, task, "Cannot evaluate the adapter on", "adapter")

    @contextmanager
    def changing(self, model: Model) -> Iterator[Model]:
        """The model with the trained weights inside the block; exactly as before afterwards."""
        with peft_modules(model, self.name, self.settings) as changed:
            load_peft_parameters(changed, self.values)
            yield changed

    def save(self, folder: Path) -> None:
        """The same as `save_pretrained`."""
        self.save_pretrained(folder)

    def save_pretrained(self, folder: str | Path, **notes: Any) -> None:
        """Write it to a folder of a safetensors and a JSON file, whole or not at all.

        Raises:
            UserError: The folder cannot be written.
        """
        config = {**notes, "peft": dict(self.settings), "notes": dict(self.notes)}
        write_fitted(folder, self.name, self.origin, self.values, config)

    @classmethod
    def from_pretrained(cls, folder: str | Path, model: Model | None = None) -> "PeftFitted":
        """Read it back.

        Args:
            folder: Where `save_pretrained` wrote it.
            model: If given, it must have been made with this model.

        Raises:
            UserError: Missing, damaged or mismatched files, or an adapter of another model.
        """
        return read_fitted(
            folder,
            model,
            lambda config, values, origin: cls(config["method"], origin, config["peft"], values, config["notes"]),
        )


def fit_peft(
    model: Model,
    labelled: Labelled,
    seed: int,
    *,
    name: str,
    settings: Mapping[str, Any],
    training: Training,
    template: Template,
    memory: int,
) -> PeftFitted:
    """Train an adapter on the answers of zero-shot prompts, each with the text that ends it.

    Raises:
        UserError: No training or validation examples, no peft, or an architecture that it does not know.
    """
    check_examples(labelled)
    chooser = random.Random(sub_seed(seed, "training examples", labelled.task))
    chosen = chooser.sample(range(labelled.n_train), min(training.n_examples, labelled.n_train))
    train = [pair_of(model, template, example) for example in labelled.train(chosen)]
    valid = [pair_of(model, template, example) for example in valid_examples(labelled, training.n_valid)]
    with peft_modules(model, name, settings, seed=seed) as changed, torch.enable_grad():
        values, notes = _train(changed, train, valid, training, chooser, memory)
    return PeftFitted(name, Provenance.of(model, labelled, template, seed), settings, values, notes)


def _train(
    model: Model, train: Sequence[Pair], valid: Sequence[Pair], training: Training, chooser: random.Random, memory: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The adapter's values after the best epoch, and how it went."""
    parameters = peft_parameters(model)
    n_steps = training.n_epochs * -(-len(train) // training.batch_size)
    rise = max(1, round(WARM_UP * n_steps))
    optimizer = torch.optim.AdamW(parameters.values(), lr=training.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rise, (n_steps - step) / max(1, n_steps - rise))
    )
    losses, validated, best = [], [], (float("inf"), 0, dict[str, Tensor]())
    for epoch in range(1, training.n_epochs + 1):
        order = chooser.sample(range(len(train)), len(train))
        for first in range(0, len(order), training.batch_size):
            pairs = [train[index] for index in order[first : first + training.batch_size]]
            n_tokens = sum(len(answer) for _, answer in pairs)
            optimizer.zero_grad()
            total = 0.0
            for part in parts_of(model, pairs, memory):
                summed = answer_losses(model, [pairs[place] for place in part]).sum() / n_tokens
                summed.backward()
                total += float(summed.detach())
            check_loss(model, total, "training loss")
            optimizer.step()
            schedule.step()
            losses.append(total)
        validated.append(_validate(model, valid, memory))
        if validated[-1] < best[0]:
            kept = {name: value.detach().float().cpu().clone() for name, value in parameters.items()}
            best = (validated[-1], epoch, kept)
    return best[2], {"train_loss": losses, "valid_loss": validated, "epoch": best[1]}


@torch.no_grad()
def _validate(model: Model, pairs: Sequence[Pair], memory: int) -> float:
    """Mean cross-entropy of an answer token over all of them, in nats."""
    parts = [[pairs[place] for place in part] for part in parts_of(model, pairs, memory)]
    total = sum(float(answer_losses(model, part).sum()) for part in parts)
    mean = total / sum(len(answer) for _, answer in pairs)
    check_loss(model, mean, "validation loss")
    return mean
