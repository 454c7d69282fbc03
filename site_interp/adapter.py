"""A task adapter: embedding, selection and template in one value that can be applied, saved and loaded.

On disk it is a folder of `adapter.safetensors` and `adapter_config.json`; never pickle.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from site_interp.embedding import TaskEmbedding
from site_interp.errors import UserError
from site_interp.files import write_atomically
from site_interp.injection import Intervention
from site_interp.model import Fingerprint, Model
from site_interp.prompts import Template
from site_interp.selection import FitSettings, FitTrace, HeadSelection

FORMAT_VERSION = 1
WEIGHTS_NAME = "adapter.safetensors"
CONFIG_NAME = "adapter_config.json"
PACKAGES = ("site-interp", "torch", "transformer-lens", "transformers")  # their versions are kept


@dataclass(frozen=True)
class Adapter:
    """The task, ready to be switched on: what each head should put out, and which heads should.

    It is a fitted method (`name`, `prompts`, `intervention`, `n_parameters`, `n_labels`), so `evaluate` takes it.

    Args:
        embedding: Target of every head, with where it came from.
        selection: alpha of every head, with how it was fitted.

    Raises:
        UserError: Embedding and selection are of different shapes, or hold values that are not finite.
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
        if target.shape != self.embedding.std.shape:
            raise UserError(
                f"Cannot make an adapter of an embedding of shape {tuple(target.shape)} whose spread has shape "
                f"{tuple(self.embedding.std.shape)}. Embed the task again."
            )
        for name, values in (("embedding", target), ("spread", self.embedding.std), ("logits", logits)):
            if not bool(values.isfinite().all()):
                layer, head = (int(index) for index in (~values.isfinite()).nonzero()[0][:2])
                raise UserError(
                    f"Cannot make an adapter for task '{self.embedding.task}': a value of its {name} is not finite at "
                    f"L{layer}H{head}. Fit it again in float32."
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
        return self.selection.logits.numel()

    @property
    def n_labels(self) -> int:
        """Distinct labelled examples used, validation included."""
        return max(self.selection.n_labels, self.embedding.n_labels)

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Zero-shot prompts of inputs."""
        return tuple(self.template.zero_shot(text) for text in inputs)

    def intervention(self) -> Intervention:
        """Target and alpha, one for every row."""
        return Intervention(self.embedding.mean[None], self.selection.alpha[None])

    def save(self, folder: Path) -> None:
        """The same as `save_pretrained`."""
        self.save_pretrained(folder)

    def save_pretrained(self, folder: str | Path, **notes: Any) -> None:
        """Write the adapter to a folder, each file whole or not at all.

        Args:
            folder: Made if needed; an adapter that is there is replaced.
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
        weights = save_tensors(tensors)
        config = {"preset": None, **notes, **self._config(), "weights_sha256": hashlib.sha256(weights).hexdigest()}
        write_atomically(Path(folder) / WEIGHTS_NAME, weights)
        write_atomically(Path(folder) / CONFIG_NAME, json.dumps(config, indent=2, sort_keys=True) + "\n")

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
            "settings": None if settings is None else asdict(settings),
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
        config = _read_config(Path(folder), doing)
        tensors = _read_tensors(Path(folder), config, doing)
        try:
            return _assemble(config, tensors), config
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{doing}: its {CONFIG_NAME} lacks or spoils a field ({error}). Save it again.") from None

    def check_model(self, model: Model) -> None:
        """Refuse a model that is not the one this adapter was made with.

        Raises:
            UserError: Names the fields that differ.
        """
        ours = self.embedding
        narrower = ours.dtype if ours.dtype != "float32" else model.dtype_name
        if differences := ours.fingerprint.differences(model.fingerprint, narrower):
            raise UserError(
                f"This adapter was made with {ours.model}, and the model is {model.name}: {'; '.join(differences)}. "
                "Use it with its own model, or fit a new one."
            )


def _metrics(trace: FitTrace | None) -> dict[str, float]:
    """Validation loss of the kept step, in nats of the first answer token."""
    return {} if trace is None else {"valid_loss": trace.valid_loss[trace.valid_steps.index(trace.chosen_step)]}


def _read_config(folder: Path, doing: str) -> Mapping[str, Any]:
    path = folder / CONFIG_NAME
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{doing}: there is no {CONFIG_NAME} in it. Give the folder that was saved.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{doing}: its {CONFIG_NAME} cannot be read ({error}). Save it again.") from None
    if not isinstance(config, dict) or config.get("format_version") != FORMAT_VERSION:
        found = config.get("format_version") if isinstance(config, dict) else None
        raise UserError(f"{doing}: format version {found} is not {FORMAT_VERSION}. Use the version that wrote it.")
    return config


def _read_tensors(folder: Path, config: Mapping[str, Any], doing: str) -> dict[str, torch.Tensor]:
    try:
        weights = (folder / WEIGHTS_NAME).read_bytes()
        tensors = load_tensors(weights)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{doing}: its {WEIGHTS_NAME} cannot be read ({error}). Save it again.") from None
    if hashlib.sha256(weights).hexdigest() != config.get("weights_sha256"):
        raise UserError(f"{doing}: {WEIGHTS_NAME} is not the one {CONFIG_NAME} was written with. Save it again.")
    heads = tuple(tensors["embedding"].shape) if "embedding" in tensors else ()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(heads) != 3 or shapes != {"embedding": heads, "embedding_std": heads, "logits": heads[:2]}:
        raise UserError(
            f"{doing}: {WEIGHTS_NAME} holds {shapes}, not embedding and embedding_std of [layer head d_head] and "
            "logits of [layer head]. Save it again."
        )
    if other := sorted({str(tensor.dtype) for tensor in tensors.values()} - {"torch.float32"}):
        raise UserError(f"{doing}: {WEIGHTS_NAME} holds {other[0]}, and must be float32. Save it again.")
    return tensors


TEXTS = ("task", "split_hash", "model", "dtype")
COUNTS = ("split_seed", "n_prompts", "n_shots", "embedding_seed", "embedding_labels", "seed", "labels")


def _assemble(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Adapter:
    for kind, names in ((str, TEXTS), (int, COUNTS)):
        if wrong := [name for name in names if not isinstance(config[name], kind)]:
            raise TypeError(f"{wrong[0]} is {config[wrong[0]]!r}")
    embedding = TaskEmbedding(
        mean=tensors["embedding"],
        std=tensors["embedding_std"],
        task=config["task"],
        split_hash=config["split_hash"],
        split_seed=config["split_seed"],
        template=Template.from_dict(config["template"]),
        n_prompts=config["n_prompts"],
        n_shots=config["n_shots"],
        seed=config["embedding_seed"],
        n_labels=config["embedding_labels"],
        model=config["model"],
        revision=config["revision"],
        dtype=config["dtype"],
        fingerprint=Fingerprint.from_dict(config["fingerprint"]),
    )
    trace, settings = config["trace"], config["settings"]
    selection = HeadSelection(
        logits=tensors["logits"],
        trace=None if trace is None else FitTrace(**{key: _tuple(value) for key, value in trace.items()}),
        settings=None if settings is None else FitSettings(**settings),
        seed=config["seed"],
        n_labels=config["labels"],
    )
    return Adapter(embedding, selection)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
