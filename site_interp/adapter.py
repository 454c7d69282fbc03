"""A task adapter: embedding, selection and template in one value that can be applied, saved and loaded.

On disk it is a folder of `adapter.safetensors` and `adapter_config.json`; never pickle.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from site_interp.adapter_files import CONFIG_NAME, FORMAT_VERSION, WEIGHTS_NAME, read_files, write_files
from site_interp.embedding import TaskEmbedding
from site_interp.errors import UserError
from site_interp.injection import Intervention
from site_interp.model import Fingerprint, Model
from site_interp.prompts import Template
from site_interp.selection import FitSettings, FitTrace, HeadSelection
from site_interp.tasks import Task

__all__ = ["CONFIG_NAME", "WEIGHTS_NAME", "Adapter"]

PACKAGES = ("site-interp", "torch", "transformer-lens", "transformers")  # their versions are kept


@dataclass(frozen=True)
class Adapter:
    """The task, ready to be switched on: what each head should put out, and which heads should.

    It is a fitted method (`name`, `prompts`, `intervention`, `n_parameters`, `n_labels`), so `evaluate` takes it.

    Args:
        embedding: Target of every head, with where it came from.
        selection: alpha of every head, with how it was fitted.

    Raises:
        UserError: Embedding and selection are of different shapes.
    """

    embedding: TaskEmbedding
    selection: HeadSelection

    def __post_init__(self) -> None:
        target, logits = self.embedding.mean, self.selection.logits
        if target.shape[:2] != logits.shape:
            raise UserError(
                f"Cannot make an adapter of an embedding of {tuple(target.shape[:2])} layers x heads and a selection "
                f"of {tuple(logits.shape)}. Take both from one model."
            )

    @property
    def name(self) -> str:
        """Name of the method in results."""
        return "site"

    @property
    def template(self) -> Template:
        """How inputs become prompts."""
        return self.embedding.template

    @property
    def n_parameters(self) -> int:
        """Trained scalars: one per head."""
        return self.selection.n_parameters

    @property
    def n_labels(self) -> int:
        """Distinct labelled examples used, validation included."""
        return max(self.selection.n_labels, self.embedding.n_labels)

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Zero-shot prompts of inputs."""
        return tuple(self.template.zero_shot(text) for text in inputs)

    def intervention(self) -> Intervention:
        """Target and alpha, one for every row."""
        return Intervention(self.embedding.mean[None], self.selection.alpha[None], adds=self.selection.adds)

    def save(self, folder: Path) -> None:
        """The same as `save_pretrained`."""
        self.save_pretrained(folder)

    def save_pretrained(self, folder: str | Path, **notes: Any) -> None:
        """Write the adapter to a folder, whole or not at all.

        Args:
            folder: Made if needed; an adapter that is there is replaced, and kept if the writing fails.
            notes: Further JSON values for the configuration, for example `preset="paper"`; a field of the adapter
                itself stays as it is.

        Raises:
            UserError: The folder cannot be written.
        """
        tensors = {
            "embedding": self.embedding.mean.float().contiguous(),
            "embedding_std": self.embedding.std.float().contiguous(),
            "logits": self.selection.logits.float().contiguous(),
        }
        write_files(Path(folder), tensors, {"preset": None, **notes, **self._config()})

    def _config(self) -> dict[str, Any]:
        embedding, selection = self.embedding, self.selection
        trace, settings = selection.trace, selection.settings
        return {
            "format_version": FORMAT_VERSION,
            "method": self.name,
            "model": embedding.model,
            "revision": embedding.revision,
            "dtype": embedding.dtype,
            "fingerprint": embedding.fingerprint.to_dict(),
            "task": embedding.task,
            "split_hash": embedding.split_hash,
            "split_seed": embedding.split_seed,
            "template": embedding.template.to_dict(),
            "tokenisation": {"ids": "AutoTokenizer(text)", "tokenizer": embedding.fingerprint.tokenizer},
            "n_prompts": embedding.n_prompts,
            "n_shots": embedding.n_shots,
            "embedding_seed": embedding.seed,
            "embedding_labels": embedding.n_labels,
            "seed": selection.seed,
            "labels": selection.n_labels,
            "settings": None if settings is None else settings.to_dict(),
            "steps": None if settings is None else settings.n_steps,
            "chosen_step": None if trace is None else trace.chosen_step,
            "metrics": _metrics(trace),
            "trace": None if trace is None else asdict(trace),
            "versions": {package: version(package) for package in PACKAGES},
        }

    @classmethod
    def from_pretrained(cls, folder: str | Path, model: Model | None = None) -> "Adapter":
        """Read an adapter back.

        Args:
            folder: Where `save_pretrained` wrote it.
            model: If given, the adapter must have been made with this model.

        Raises:
            UserError: Missing, damaged or mismatched files, or an adapter of another model.
        """
        adapter, _ = cls.from_pretrained_with_notes(folder)
        if model is not None:
            adapter.check_model(model)
        return adapter

    @classmethod
    def from_pretrained_with_notes(cls, folder: str | Path) -> "tuple[Adapter, Mapping[str, Any]]":
        """Read an adapter back, together with everything in its configuration.

        Raises:
            UserError: Missing, damaged or mismatched files.
        """
        doing = f"Cannot load an adapter from {folder}"
        config, tensors = read_files(Path(folder), doing)
        if config.get("method") != "site":
            raise UserError(f"{doing}: it holds the method {config.get('method')!r}, not SITE. Give another folder.")
        _check_tensors(tensors, doing)
        try:
            return _assemble(config, tensors), config
        except UserError as error:
            raise UserError(f"{doing}: {error}") from None
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise UserError(f"{doing}: its {CONFIG_NAME} lacks or spoils a field ({error}). Save it again.") from None

    def check_model(self, model: Model) -> None:
        """Refuse a model that is not the one this adapter was made with.

        Raises:
            UserError: Names the fields that differ.
        """
        self.embedding.check_model(model, "adapter")

    def check(self, model: Model, task: Task) -> None:
        """Refuse another model, or the same task with another split.

        Raises:
            UserError: Says what differs.
        """
        self.check_model(model)
        self.embedding.check_split(task, "Cannot evaluate the adapter on", "adapter")

    def check_template(self, template: Template) -> None:
        """Refuse prompts of another form than those this adapter was fitted on.

        Raises:
            UserError: Names the fields that differ.
        """
        ours, theirs = self.template.to_dict(), template.to_dict()
        if differ := [
            f"{key} {ours[key]!r} against {theirs[key]!r}" for key in ours if ours[key] != theirs[key] and key != "name"
        ]:
            raise UserError(
                f"Cannot use template '{template.name}' with an adapter of task '{self.embedding.task}', which was "
                f"fitted with '{self.template.name}': {'; '.join(differ)}. Leave the template out."
            )


def _metrics(trace: FitTrace | None) -> dict[str, float]:
    """Validation loss of the kept step, in nats of the first answer token."""
    return {} if trace is None else {"valid_loss": trace.valid_loss[trace.valid_steps.index(trace.chosen_step)]}


def _check_tensors(tensors: Mapping[str, torch.Tensor], doing: str) -> None:
    heads = tuple(tensors["embedding"].shape) if "embedding" in tensors else ()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(heads) != 3 or 0 in heads or shapes != {"embedding": heads, "embedding_std": heads, "logits": heads[:2]}:
        raise UserError(
            f"{doing}: {WEIGHTS_NAME} holds {shapes}, not embedding and embedding_std of [layer head d_head] and "
            "logits of [layer head]. Save it again."
        )


def _template(values: Any) -> Template:
    """A template with every field: what is missing was written, and would be another one by default."""
    if isinstance(values, dict) and (missing := set(Template().to_dict()) - set(values)):
        raise UserError(f"its template has no {sorted(missing)[0]!r}. Save it again.")
    return Template.from_dict(values)


def _assemble(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Adapter:
    for kind, names in ((str, TEXTS), (int, COUNTS)):
        if wrong := [name for name in names if not isinstance(config[name], kind)]:
            raise TypeError(f"{wrong[0]} is {config[wrong[0]]!r}")
    if not isinstance(config["revision"], str | None):
        raise TypeError(f"revision is {config['revision']!r}")
    embedding = TaskEmbedding(
        mean=tensors["embedding"],
        std=tensors["embedding_std"],
        task=config["task"],
        split_hash=config["split_hash"],
        split_seed=config["split_seed"],
        template=_template(config["template"]),
        n_prompts=config["n_prompts"],
        n_shots=config["n_shots"],
        seed=config["embedding_seed"],
        n_labels=config["embedding_labels"],
        model=config["model"],
        revision=config["revision"],
        dtype=config["dtype"],
        fingerprint=Fingerprint.from_dict(config["fingerprint"]),
    )
    selection = HeadSelection(
        logits=tensors["logits"],
        trace=None if config["trace"] is None else _trace(**config["trace"]),
        settings=None if config["settings"] is None else FitSettings(**config["settings"]),
        seed=config["seed"],
        n_labels=config["labels"],
    )
    return Adapter(embedding, selection)


TEXTS = ("task", "split_hash", "model", "dtype")
COUNTS = ("split_seed", "n_prompts", "n_shots", "embedding_seed", "embedding_labels", "seed", "labels")


def _trace(*, train_loss: Any, valid_steps: Any, valid_loss: Any, chosen_step: Any) -> FitTrace:
    lists = {"train_loss": train_loss, "valid_steps": valid_steps, "valid_loss": valid_loss}
    for name, values in lists.items():
        kind = int if name == "valid_steps" else int | float
        if not isinstance(values, list) or not all(isinstance(v, kind) and math.isfinite(v) for v in values):
            raise TypeError(f"{name} is no list of numbers")
    if len(valid_steps) != len(valid_loss) or chosen_step not in valid_steps:
        raise TypeError(f"chosen_step is {chosen_step!r}, and {len(valid_loss)} losses belong to {valid_steps}")
    return FitTrace(tuple(map(float, train_loss)), tuple(valid_steps), tuple(map(float, valid_loss)), int(chosen_step))
