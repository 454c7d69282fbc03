"""Where a fitted value comes from, and the refusal of another model or another split."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from site_interp.errors import UserError
from site_interp.model import Fingerprint, Model
from site_interp.prompts import Template
from site_interp.tasks import Labelled, Task


@runtime_checkable
class Made(Protocol):
    """What any fitted value knows of its origin."""

    @property
    def task(self) -> str:
        """Name of the task."""

    @property
    def split_hash(self) -> str:
        """Hash of the task's splits."""

    @property
    def split_seed(self) -> int:
        """Seed of the task's splits."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def dtype(self) -> str:
        """Precision the model ran in."""

    @property
    def fingerprint(self) -> Fingerprint:
        """What the model looked like."""


@dataclass(frozen=True)
class Provenance:
    """Model, task, split, template and seed of a fitted method, and the labels it saw.

    Args:
        task, split_hash, split_seed: What it was fitted on.
        template: How examples became text.
        seed: Seed of the fit.
        n_labels: Distinct labelled examples looked at, validation included.
        model, revision, dtype, fingerprint: The model, and the precision it ran in.
    """

    task: str
    split_hash: str
    split_seed: int
    template: Template
    seed: int
    n_labels: int
    model: str
    revision: str | None
    dtype: str
    fingerprint: Fingerprint

    @classmethod
    def of(cls, model: Model, labelled: Labelled, template: Template, seed: int) -> "Provenance":
        """What is known at the end of a fit."""
        return cls(
            task=labelled.task,
            split_hash=labelled.split_hash,
            split_seed=labelled.split_seed,
            template=template,
            seed=seed,
            n_labels=labelled.n_used,
            model=model.name,
            revision=model.revision,
            dtype=model.dtype_name,
            fingerprint=model.fingerprint,
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, named as in an adapter's configuration."""
        plain = {
            "template": self.template.to_dict(),
            "fingerprint": self.fingerprint.to_dict(),
            "labels": self.n_labels,
        }
        return {name: value for name, value in vars(self).items() if name != "n_labels"} | plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Provenance":
        """Read it back from a configuration.

        Raises:
            KeyError, TypeError: A field is missing or of another kind.
            UserError: A template or fingerprint that is none.
        """
        texts, counts = ("task", "split_hash", "model", "dtype"), ("split_seed", "seed", "labels")
        for kind, names in ((str, texts), (int, counts)):
            if wrong := [name for name in names if not isinstance(values[name], kind)]:
                raise TypeError(f"{wrong[0]} is {values[wrong[0]]!r}")
        if not isinstance(values["revision"], str | None):
            raise TypeError(f"revision is {values['revision']!r}")
        return cls(
            **{name: values[name] for name in (*texts, "split_seed", "seed", "revision")},
            template=Template.from_dict(values["template"]),
            n_labels=values["labels"],
            fingerprint=Fingerprint.from_dict(values["fingerprint"]),
        )


def check_model(made: Made, model: Model, what: str) -> None:
    """Refuse a model that is not the one something was made with.

    Raises:
        UserError: Names the fields that differ.
    """
    narrower = made.dtype if made.dtype != "float32" else model.dtype_name
    if differences := made.fingerprint.differences(model.fingerprint, narrower):
        raise UserError(
            f"This {what} was made with {made.model}, and the model is {model.name}: {'; '.join(differences)}. "
            "Use it with its own model, or make a new one."
        )


def check_split(made: Made, task: Task | Labelled, doing: str, what: str) -> None:
    """Refuse the same task with another split: what something was made from may stand among its held-out examples.

    Args:
        made: What was made from a split.
        task: Any other task is fine.
        doing: Start of the sentence.
        what: What was made.

    Raises:
        UserError: Names both split seeds.
    """
    name = task.name if isinstance(task, Task) else task.task
    if made.task == name and made.split_hash != task.split_hash:
        raise UserError(
            f"{doing} task '{name}': its {what} is of another split (split_seed {made.split_seed}, now "
            f"{task.split_seed}), so it may have seen the examples that are held out here. Load the task with the "
            f"same split_seed and data, or make the {what} anew."
        )
