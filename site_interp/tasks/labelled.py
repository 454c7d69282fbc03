"""The only way in which a method sees answers: it counts the labelled examples that were looked at."""

import random
from collections.abc import Sequence

from site_interp.errors import UserError
from site_interp.tasks.task import Example, Task, sub_seed


class Labelled:
    """Training and validation examples of a task, with a count of the distinct ones whose answer was looked at.

    Inputs are free; answers are counted once each, validation included. Test examples are out of reach.

    With a budget of labels only so many training examples are there: the first of a shuffle, so that larger budgets
    hold the smaller ones. A fifth of them is held out for validation where the method needs that.

    Args:
        task: Whose examples.
        n_labels: At most so many labelled examples in all, validation included; None for all there are.
        seed: Of the shuffle.
        holds_out: Whether validation examples are needed.

    Raises:
        UserError: Fewer training examples than the budget, or a budget too small to hold any out.

    Example:
        >>> task = Task("file/t", (Example("a", ("b",)), Example("c", ("d",))), (), ())
        >>> labelled = Labelled(task)
        >>> labelled.train([0, 0])[0].answer, labelled.n_used
        ('b', 1)
    """

    def __init__(self, task: Task, n_labels: int | None = None, *, seed: int = 0, holds_out: bool = True) -> None:
        if not isinstance(task, Task):
            raise UserError(f"Cannot use {task!r} as a task: give a Task, such as load_task('antonym').")
        self._task = task
        self._train, self._valid = task.train, task.valid
        if n_labels is not None:
            self._train, self._valid = _within(task, n_labels, seed, holds_out=holds_out)
        self._train_seen: set[int] = set()
        self._valid_seen: set[int] = set()

    @property
    def task(self) -> str:
        """The task's name."""
        return self._task.name

    @property
    def split_hash(self) -> str:
        """Hash of the task's splits."""
        return self._task.split_hash

    @property
    def split_seed(self) -> int:
        """Seed of the task's splits."""
        return self._task.split_seed

    @property
    def n_train(self) -> int:
        """Training examples there are."""
        return len(self._train)

    @property
    def n_valid(self) -> int:
        """Validation examples there are."""
        return len(self._valid)

    @property
    def n_used(self) -> int:
        """Distinct labelled examples looked at so far."""
        return len(self._train_seen) + len(self._valid_seen)

    def train_input(self, index: int) -> str:
        """One training input, without its answer."""
        return self._train[index].input

    def train(self, indices: Sequence[int]) -> tuple[Example, ...]:
        """Training examples by index, counted as used."""
        self._train_seen.update(indices)
        return tuple(self._train[index] for index in indices)

    def valid(self, indices: Sequence[int]) -> tuple[Example, ...]:
        """Validation examples by index, counted as used."""
        self._valid_seen.update(indices)
        return tuple(self._valid[index] for index in indices)


HELD_OUT = 5  # one in so many labels


def held_out(n_labels: int) -> range:
    """Places of a budget's labels that are held out: spread, so that larger budgets hold smaller ones part by part.

    Example:
        >>> list(held_out(12))
        [1, 6, 11]
    """
    return range(1, n_labels, HELD_OUT)


def _within(
    task: Task, n_labels: int, seed: int, *, holds_out: bool
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Training and validation examples within a budget of labels."""
    if n_labels < 2 or n_labels > len(task.train):
        raise UserError(
            f"Cannot use {n_labels} labels of task '{task.name}': it has {len(task.train)} training examples. Give a "
            "number from 2 to that."
        )
    order = list(range(len(task.train)))
    random.Random(sub_seed(seed, "labels", task.name)).shuffle(order)
    chosen = [task.train[index] for index in order[:n_labels]]
    apart = held_out(n_labels) if holds_out else range(0)
    valid = tuple(chosen[place] for place in apart)
    return tuple(example for place, example in enumerate(chosen) if place not in apart), valid
