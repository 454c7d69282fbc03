"""The only way in which a method sees answers: it counts the labelled examples that were looked at."""

from collections.abc import Sequence

from site_interp.errors import UserError
from site_interp.tasks.task import Example, Task


class Labelled:
    """Training and validation examples of a task, with a count of the distinct ones whose answer was looked at.

    Inputs are free; answers are counted once each, validation included. Test examples are out of reach.

    Example:
        >>> task = Task("file/t", (Example("a", ("b",)), Example("c", ("d",))), (), ())
        >>> labelled = Labelled(task)
        >>> labelled.train([0, 0])[0].answer, labelled.n_used
        ('b', 1)
    """

    def __init__(self, task: Task) -> None:
        if not isinstance(task, Task):
            raise UserError(f"Cannot use {task!r} as a task: give a Task, such as load_task('antonym').")
        self._task = task
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
        return len(self._task.train)

    @property
    def n_valid(self) -> int:
        """Validation examples there are."""
        return len(self._task.valid)

    @property
    def n_used(self) -> int:
        """Distinct labelled examples looked at so far."""
        return len(self._train_seen) + len(self._valid_seen)

    def train_input(self, index: int) -> str:
        """One training input, without its answer."""
        return self._task.train[index].input

    def train(self, indices: Sequence[int]) -> tuple[Example, ...]:
        """Training examples by index, counted as used."""
        self._train_seen.update(indices)
        return tuple(self._task.train[index] for index in indices)

    def valid(self, indices: Sequence[int]) -> tuple[Example, ...]:
        """Validation examples by index, counted as used."""
        self._valid_seen.update(indices)
        return tuple(self._task.valid[index] for index in indices)
