"""A fitted method that asks without demonstrations and writes once, at the last prompt token; and its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from site_interp.adapter_files import WEIGHTS_NAME
from site_interp.baselines.fitted_files import read_fitted, write_fitted
from site_interp.errors import UserError
from site_interp.injection import Intervention, ResidualEdit
from site_interp.model import Model
from site_interp.prompts import Template
from site_interp.provenance import Provenance, check_model, check_split
from site_interp.tasks import Task


@dataclass(frozen=True)
class Steered:
    """What function vectors, task vectors, MTV and LTV come to: zero-shot prompts, and something written into them.

    Args:
        name: The method's name.
        origin: Model, task, split, template, seed and labels of the fit.
        written: What is written, one for every row.
        n_parameters: Trained scalars.
        notes: What the method tells about its fit, as JSON values (the layer chosen, validation scores).
    """

    name: str
    origin: Provenance
    written: Intervention | ResidualEdit
    n_parameters: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Steered({self.name} of {self.origin.task} on {self.origin.model}, seed {self.origin.seed})"

    @property
    def template(self) -> Template:
        """How inputs become prompts."""
        return self.origin.template

    @property
    def n_labels(self) -> int:
        """Distinct labelled examples used, validation included."""
        return self.origin.n_labels

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Zero-shot prompts of inputs."""
        return tuple(self.template.zero_shot(text) for text in inputs)

    def intervention(self) -> Intervention | ResidualEdit:
        """What is written, one for every row."""
        return self.written

    def check(self, model: Model, task: Task) -> None:
        """Refuse another model, or the same task with another split.

        Raises:
            UserError: Says what differs.
        """
        check_model(self.origin, model, f"{self.name} adapter")
        check_split(self.origin, task, "Cannot evaluate the adapter on", "adapter")

    def save(self, folder: Path) -> None:
        """The same as `save_pretrained`."""
        self.save_pretrained(folder)

    def save_pretrained(self, folder: str | Path, **notes: Any) -> None:
        """Write it to a folder of a safetensors and a JSON file, whole or not at all.

        Raises:
            UserError: The folder cannot be written.
        """
        written = self.written
        tensors = (
            {"target": written.target, "alpha": written.alpha}
            if isinstance(written, Intervention)
            else {"vector": written.vector}
        )
        how: dict[str, Any] = (
            {"kind": "heads", "adds": written.adds}
            if isinstance(written, Intervention)
            else {"kind": "residual", "layer": written.layer, "replaces": written.replaces}
        )
        config = {**notes, "written": how, "n_parameters": self.n_parameters, "notes": dict(self.notes)}
        write_fitted(folder, self.name, self.origin, tensors, config)

    @classmethod
    def from_pretrained(cls, folder: str | Path, model: Model | None = None) -> "Steered":
        """Read it back.

        Args:
            folder: Where `save_pretrained` wrote it.
            model: If given, it must have been made with this model.

        Raises:
            UserError: Missing, damaged or mismatched files, another kind of adapter, or one of another model.
        """
        read = read_fitted(
            folder,
            model,
            lambda config, tensors, origin: cls(
                name=config["method"],
                origin=origin,
                written=_written(config["written"], tensors),
                n_parameters=config["n_parameters"],
                notes=config["notes"],
            ),
        )
        if model is not None:
            read.written.writes(model)
        return read


def _written(how: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Intervention | ResidualEdit:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    n_axes = {name: len(shape) for name, shape in shapes.items()}
    if how["kind"] == "heads" and n_axes == {"target": 4, "alpha": 3}:
        return Intervention(tensors["target"], tensors["alpha"], adds=bool(how["adds"]))
    if how["kind"] == "residual" and n_axes == {"vector": 2}:
        return ResidualEdit(tensors["vector"], int(how["layer"]), replaces=bool(how["replaces"]))
    raise UserError(f"{WEIGHTS_NAME} holds {shapes}, which does not fit an adapter of {how['kind']!r}. Save it again.")
