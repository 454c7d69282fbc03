"""What a fit will look at: the items of every step and of the validation, drawn before the first step."""

import random
from dataclasses import dataclass

from site_interp.embedding import TaskEmbedding
from site_interp.errors import UserError
from site_interp.model import Model
from site_interp.prompts import Template
from site_interp.selection import FitSettings
from site_interp.tasks import Example, Labelled, sub_seed


@dataclass(frozen=True)
class FitRun:
    """One selection to be fitted: an embedding and the labelled examples of its task.

    Args:
        embedding: The target of every head; its template writes the prompts.
        labelled: Training and validation examples; counts those used.
        seed: Decides the order of the training examples.
    """

    embedding: TaskEmbedding
    labelled: Labelled
    seed: int


Item = tuple[str, tuple[int, ...]]  # a zero-shot prompt and the ids of its answer


@dataclass(frozen=True)
class FitPlan:
    """Everything a run will look at, drawn before the first step.

    Args:
        steps: The items of each training step.
        valid: The validation items, the same for every seed.
    """

    steps: tuple[tuple[Item, ...], ...]
    valid: tuple[Item, ...]


def draw_plan(model: Model, run: FitRun, settings: FitSettings) -> FitPlan:
    """Draw the training examples of each step, with replacement, and the validation examples.

    Raises:
        UserError: No training or validation examples, an embedding of another model or split, or an answer that
            merges with its prompt.
    """
    labelled, template = run.labelled, run.embedding.template
    check_examples(labelled)
    run.embedding.check_model(model)
    run.embedding.check_split(labelled, "Cannot fit")
    chooser = random.Random(sub_seed(run.seed, "fitting order", labelled.task))
    drawn = [chooser.choices(range(labelled.n_train), k=settings.batch_size) for _ in range(settings.n_steps)]
    items = {}
    for index in sorted({index for step in drawn for index in step}):
        (example,) = labelled.train([index])
        items[index] = _item(model, template, example)
    steps = tuple(tuple(items[index] for index in step) for step in drawn)
    return FitPlan(steps, draw_valid(model, labelled, template, settings.n_valid))


def draw_valid(model: Model, labelled: Labelled, template: Template, n_valid: int) -> tuple[Item, ...]:
    """The first validation examples after a shuffle that is the same for every seed and method.

    Raises:
        UserError: An answer that merges with its prompt.
    """
    return tuple(_item(model, template, example) for example in valid_examples(labelled, n_valid))


def valid_examples(labelled: Labelled, n_valid: int) -> tuple[Example, ...]:
    """The examples of `draw_valid`."""
    shuffled = list(range(labelled.n_valid))
    random.Random(sub_seed(0, "validation examples", labelled.task)).shuffle(shuffled)
    return labelled.valid(shuffled[:n_valid])


def check_examples(labelled: Labelled) -> None:
    """Refuse a task that cannot be fitted.

    Raises:
        UserError: No training or no validation examples.
    """
    if not labelled.n_train or not labelled.n_valid:
        raise UserError(
            f"Cannot fit task '{labelled.task}': it has {labelled.n_train} training and {labelled.n_valid} validation "
            "examples, and needs at least one of each."
        )


def _item(model: Model, template: Template, example: Example) -> Item:
    prompt = template.zero_shot(example.input)
    return prompt, tuple(model.answer_ids(prompt, template.answer(example.answer)))
