"""What every way of adapting a model has in common."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from site_interp.errors import UserError
from site_interp.injection import Edit
from site_interp.model import Model
from site_interp.progress import Advance
from site_interp.prompts import Template
from site_interp.tasks import Labelled, Task

Needs = Literal["nothing", "train", "valid"]
"""Labels a method looks at: none, training examples, or validation examples as well."""


@runtime_checkable
class Fitted(Protocol):
    """A method after fitting: how to ask the model, and what to inject."""

    @property
    def name(self) -> str:
        """Name of the method."""

    @property
    def template(self) -> Template:
        """How inputs and answers become text."""

    @property
    def n_parameters(self) -> int:
        """Trained scalars."""

    @property
    def n_labels(self) -> int:
        """Distinct labelled examples looked at so far, validation included."""

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """One prompt per input."""

    def intervention(self) -> Edit | None:
        """What to write at the last prompt token, or None."""

    def check(self, model: Model, task: Task) -> None:
        """Refuse a model or a split that this was not fitted for.

        Raises:
            UserError: Says what differs.
        """

    def save(self, folder: Path) -> None:
        """Write what was fitted to a folder; nothing where there is nothing to keep."""


@runtime_checkable
class ChangesModel(Protocol):
    """A fitted method that changes the model itself while it is asked, at every position."""

    def changing(self, model: Model) -> AbstractContextManager[Model]:
        """The changed model inside the block; exactly as before afterwards."""


@dataclass(frozen=True)
class FixedAnswers:
    """A method that answers without the model: the floors that a score must be read against.

    Args:
        name: Name of the method.
        template: How answers become text, for the first-token score.
        answer: The text given for an input.
        n_labels: Distinct labelled examples looked at.
    """

    name: str
    template: Template
    answer: Callable[[str], str]
    n_labels: int = 0
    n_parameters: int = 0


@runtime_checkable
class Method(Protocol):
    """A way of adapting a model to a task; a frozen value whose fields are its settings."""

    name: ClassVar[str]
    """What `--method` and records call it."""
    revision: ClassVar[int]
    """Raised by hand when a change of the code changes its numbers, so that old results are not reused."""
    seeded: ClassVar[bool]
    """Whether the seed changes anything; without, it runs once, as seed 0."""
    needs: ClassVar[Needs]
    """Which labels it looks at."""

    def settings(self) -> Mapping[str, Any]:
        """Every setting that changes its numbers, as JSON values."""

    def variant(self) -> str:
        """The settings that are not the default, `key=value,...`; empty for the defaults."""

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Fitted | FixedAnswers:
        """Adapt to a task."""


FITTED_TOGETHER = 10
"""Runs fitted in one batch: by ten the arithmetic outweighs reading the weights, and a killed run loses little."""


@runtime_checkable
class FitsTogether(Protocol):
    """A method whose fits on several tasks and seeds go through the model in one batch; each comes out as alone."""

    together: ClassVar[int]
    """At most so many fits in a batch."""

    @property
    def n_fit_steps(self) -> int:
        """Steps of one fit."""

    def n_read(self, task: str) -> int:
        """Prompts that the fit on a task reads before its first step."""

    def prepare(self, model: Model, labelled: Labelled, seed: int, progress: Advance | None = None) -> Any:
        """What a fit starts from; `progress` is called with the prompts read."""

    def fit_prepared(self, model: Model, prepared: Sequence[Any], progress: Advance) -> Sequence[Any]:
        """The fitted method of each; `progress` is called with steps of single fits."""


def variant_of(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The settings that differ from the defaults, sorted by name.

    Example:
        >>> variant_of({"n_shots": 5, "template": "qa"}, {"n_shots": 10, "template": "qa"})
        'n_shots=5'
    """
    return ",".join(f"{key}={settings[key]}" for key in sorted(settings) if settings[key] != defaults.get(key))


def settings_of(method: Any, *, plain: bool = False) -> dict[str, Any]:
    """The fields of a method but the memory budget, as JSON values; `plain` gives the template by its name."""
    values = {field.name: getattr(method, field.name) for field in fields(method) if field.name != "memory"}
    template: Template = values["template"]
    return {**values, "template": template.name if plain else template.to_dict()}


def check_counts(method: Any, *names: str) -> None:
    """Refuse settings that must be whole numbers of 1 or more and are not.

    Raises:
        UserError: Names the setting.
    """
    for name in names:
        count = getattr(method, name)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UserError(f"Cannot run {method.name} with {name} {count!r}. Give a whole number of 1 or more.")
