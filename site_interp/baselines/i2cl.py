"""I2CL: implicit in-context learning (Li et al., ICLR 2025, arXiv 2405.14660); outputs mixed at every token."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.baselines.answers import Pair, answer_losses, check_loss, pair_of, parts_of
from site_interp.baselines.fitted_files import read_fitted, write_fitted
from site_interp.baselines.method import Needs, check_counts, settings_of, variant_of
from site_interp.embedding import read_prompts
from site_interp.errors import UserError
from site_interp.model import Hook, Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance
from site_interp.prompts import QA, Template
from site_interp.provenance import Provenance, check_model, check_split
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled, Task, sub_seed


@dataclass(frozen=True)
class I2CL:
    """Each layer's attention and MLP outputs are mixed with their means over single demonstrations, at all tokens.

        a[l] <- lambda_a[l] va[l] + beta_a[l] a[l],   m[l] <- lambda_m[l] vm[l] + beta_m[l] m[l]          (section 3.2)

    va and vm are what attention and MLP of a layer put out at the last token of one demonstration, averaged over the
    demonstrations. The four numbers of each layer are fitted on the same demonstrations, as zero-shot prompts with
    their answers, with noise on the mixed outputs (section 3.3). Defaults are those of the authors' code. There is no
    validation: the demonstrations are all the labels it uses.

    Args:
        n_examples: Demonstrations.
        n_epochs, batch_size, lr, weight_decay: Of AdamW.
        noise: Standard deviation of what is added while fitting.
        init: lambda and beta at the start.
        template: How examples become prompts.
        memory: Budget in bytes; changes no number beyond rounding.
    """

    name: ClassVar[str] = "i2cl"
    revision: ClassVar[int] = 1
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "train"
    together: ClassVar[int] = 4  # every token of every prompt runs: more rows gain little
    n_examples: int = 10
    n_epochs: int = 100
    batch_size: int = 2
    lr: int | float = 0.01
    weight_decay: int | float = 1e-3
    noise: int | float = 1e-3
    init: tuple[float, float] = (0.1, 1.0)
    template: Template = QA
    memory: int = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        check_counts(self, "n_examples", "n_epochs", "batch_size")
        FitSettings(lr=self.lr)

    def settings(self) -> Mapping[str, Any]:
        """Everything but the memory budget."""
        return {**settings_of(self), "init": list(self.init)}

    def variant(self) -> str:
        """Settings that are not the default, by name."""
        return variant_of(settings_of(self, plain=True), settings_of(I2CL(), plain=True))

    @property
    def n_fit_steps(self) -> int:
        """Steps of one fit."""
        return self.n_epochs * -(-self.n_examples // self.batch_size)

    def n_read(self, task: str) -> int:
        """Demonstrations."""
        return self.n_examples

    def prepare(self, model: Model, labelled: Labelled, seed: int, progress: Advance | None = None) -> "Demonstrations":
        """Draw the demonstrations and read what they put out.

        Raises:
            UserError: Fewer training examples than demonstrations.
        """
        if labelled.n_train < self.n_examples:
            raise UserError(
                f"Cannot fit i2cl on {self.n_examples} demonstrations of task '{labelled.task}': it has "
                f"{labelled.n_train} training examples. Lower n_examples."
            )
        chooser = random.Random(sub_seed(seed, "i2cl demonstrations", labelled.task))
        examples = labelled.train(chooser.sample(range(labelled.n_train), self.n_examples))
        shown = [self.template.zero_shot(e.input) + self.template.answer(e.answer) for e in examples]
        read = read_prompts(model, shown, points_of(model), memory=self.memory, progress=progress)
        pairs = [pair_of(model, self.template, example) for example in examples]
        steps = []
        for _ in range(self.n_epochs):
            order = chooser.sample(range(len(pairs)), len(pairs))
            steps += [order[first : first + self.batch_size] for first in range(0, len(order), self.batch_size)]
        return Demonstrations(labelled, seed, read.mean(dim=0), tuple(pairs), tuple(map(tuple, steps)))

    def fit_prepared(
        self, model: Model, prepared: Sequence["Demonstrations"], progress: Advance = lambda _: None
    ) -> list["I2CLFitted"]:
        """How the outputs of each are mixed in."""
        vectors = torch.stack([one.vectors for one in prepared])
        shares = torch.tensor(self.init, device=model.device).repeat(*vectors.shape[:2], 1).requires_grad_()
        optimizer = torch.optim.AdamW([shares], lr=self.lr, weight_decay=self.weight_decay)
        noises = [Noise(self.noise, _generator(model, one)) for one in prepared]
        losses: list[list[float]] = [[] for _ in prepared]
        with model.frozen(), torch.enable_grad():
            for step in range(self.n_fit_steps):
                rows = [(run, one.pairs[place]) for run, one in enumerate(prepared) for place in one.steps[step]]
                n_tokens = [sum(len(answer) for of, (_, answer) in rows if of == run) for run in range(len(prepared))]
                optimizer.zero_grad()
                totals = [0.0] * len(prepared)
                for part in parts_of(model, [pair for _, pair in rows], self.memory):
                    of_run = [rows[place][0] for place in part]
                    pairs = [rows[place][1] for place in part]
                    with model.hooked(mixing_hooks(model, vectors, shares, Rows(of_run, pairs, noises))):
                        found = answer_losses(model, pairs)
                    shared = [1 / n_tokens[run] for run, (_, answer) in zip(of_run, pairs, strict=True) for _ in answer]
                    weighted = found * torch.tensor(shared, device=found.device)
                    weighted.sum().backward()
                    each = weighted.detach().split([len(answer) for _, answer in pairs])
                    for run, values in zip(of_run, each, strict=True):
                        totals[run] += float(values.sum())
                for run, total in enumerate(totals):
                    check_loss(model, total, "training loss")
                    losses[run].append(total)
                optimizer.step()
                progress(len(prepared))
        return [
            I2CLFitted(
                Provenance.of(model, one.labelled, self.template, one.seed),
                one.vectors,
                shares[run].detach().cpu().clone(),
                {"train_loss": losses[run]},
            )
            for run, one in enumerate(prepared)
        ]

    def fit(self, model: Model, labelled: Labelled, seed: int) -> "I2CLFitted":
        """Read the demonstrations' outputs and fit how they are mixed in.

        Raises:
            UserError: Fewer training examples than demonstrations.
        """
        return self.fit_prepared(model, [self.prepare(model, labelled, seed, lambda _: None)])[0]


@dataclass(frozen=True)
class Demonstrations:
    """What a fit of I2CL starts from.

    Args:
        labelled, seed: Whose they are, and the seed that drew them.
        vectors: va and vm, layer after layer: attention, then MLP.
        pairs: Each as a zero-shot prompt and its answer.
        steps: Places of the pairs of each step.
    """

    labelled: Labelled
    seed: int
    vectors: Float[Tensor, "point d_model"]
    pairs: tuple[Pair, ...]
    steps: tuple[tuple[int, ...], ...]


def _generator(model: Model, one: Demonstrations) -> torch.Generator:
    seed = sub_seed(one.seed, "i2cl noise", one.labelled.task) % 2**63
    return torch.Generator(device=model.device).manual_seed(seed)


@dataclass(frozen=True)
class I2CLFitted:
    """Zero-shot prompts to a model whose attention and MLP outputs are mixed with those of demonstrations.

    Args:
        origin: Model, task, split, template, seed and labels of the fit.
        vectors: va and vm, layer after layer: attention, then MLP.
        shares: lambda and beta of each of them.
        notes: Losses of the steps.
    """

    origin: Provenance
    vectors: Float[Tensor, "point d_model"] = field(repr=False)
    shares: Float[Tensor, "point 2"] = field(repr=False)
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    name: ClassVar[str] = "i2cl"

    @property
    def template(self) -> Template:
        """How inputs become prompts."""
        return self.origin.template

    @property
    def n_labels(self) -> int:
        """Distinct labelled examples used."""
        return self.origin.n_labels

    @property
    def n_parameters(self) -> int:
        """Trained scalars: four for each layer."""
        return self.shares.numel()

    def prompts(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Zero-shot prompts of inputs."""
        return tuple(self.template.zero_shot(text) for text in inputs)

    def intervention(self) -> None:
        """Nothing is written at one position; all are mixed."""

    def check(self, model: Model, task: Task) -> None:
        """Refuse another model, or the same task with another split.

        Raises:
            UserError: Says what differs.
        """
        check_model(self.origin, model, "i2cl adapter")
        check_split(self.origin, task, "Cannot evaluate the adapter on", "adapter")

    @contextmanager
    def changing(self, model: Model) -> Iterator[Model]:
        """The model with mixed outputs inside the block, at every token of every forward."""
        with model.hooked(mixing_hooks(model, self.vectors[None], self.shares[None].to(model.device))):
            yield model

    def save(self, folder: Path) -> None:
        """The same as `save_pretrained`."""
        self.save_pretrained(folder)

    def save_pretrained(self, folder: str | Path, **notes: Any) -> None:
        """Write it to a folder of a safetensors and a JSON file, whole or not at all.

        Raises:
            UserError: The folder cannot be written.
        """
        tensors = {"vectors": self.vectors, "shares": self.shares}
        write_fitted(folder, self.name, self.origin, tensors, {**notes, "notes": dict(self.notes)})

    @classmethod
    def from_pretrained(cls, folder: str | Path, model: Model | None = None) -> "I2CLFitted":
        """Read it back.

        Args:
            folder: Where `save_pretrained` wrote it.
            model: If given, it must have been made with this model.

        Raises:
            UserError: Missing, damaged or mismatched files, or an adapter of another model.
        """

        def build(config: Mapping[str, Any], tensors: Mapping[str, Tensor], origin: Provenance) -> "I2CLFitted":
            vectors, shares = tensors["vectors"], tensors["shares"]
            if vectors.ndim != 2 or shares.shape != (len(vectors), 2):
                raise UserError(
                    f"It holds vectors of {tuple(vectors.shape)} and shares of {tuple(shares.shape)}, which do not fit "
                    "each other. Save it again."
                )
            return cls(origin, vectors, shares, config["notes"])

        return read_fitted(folder, model, build)


def points_of(model: Model) -> list[str]:
    """What attention and MLP put out, layer after layer."""
    return [name(layer) for layer in range(model.n_layers) for name in (model.hook_attn_out, model.hook_mlp_out)]


@dataclass(frozen=True)
class Noise:
    """What is added to mixed outputs while fitting.

    Args:
        scale: Its standard deviation.
        draw: Where it comes from.
    """

    scale: float
    draw: torch.Generator


@dataclass(frozen=True)
class Rows:
    """The rows of a batch in which several fits go through the model.

    Args:
        of_run: Which fit each belongs to.
        pairs: Their ids, padded on the left in the batch.
        noises: The noise of each fit.
    """

    of_run: Sequence[int]
    pairs: Sequence[Pair]
    noises: Sequence[Noise]

    def noise(self, value: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What is added to a value: every fit's rows get what they would get alone, where they end alike."""
        added = torch.zeros_like(value)
        for run, noise in enumerate(self.noises):
            rows = [row for row, of in enumerate(self.of_run) if of == run]
            if rows and noise.scale:
                longest = max(sum(map(len, self.pairs[row])) for row in rows)
                shape = (len(rows), longest, value.shape[-1])
                drawn = torch.randn(shape, generator=noise.draw, device=value.device, dtype=value.dtype)
                added[rows, -longest:] = noise.scale * drawn
        return added


def mixing_hooks(
    model: Model,
    vectors: Float[Tensor, "run point d_model"],
    shares: Float[Tensor, "run point 2"],
    rows: Rows | None = None,
) -> list[tuple[str, Hook]]:
    """lambda * vector + beta * value at every point; gradients reach the shares.

    Args:
        model: Where.
        vectors, shares: Of each run.
        rows: Which run each row of a batch belongs to, and its noise; by default the first, without noise.
    """
    placed = vectors.to(model.device, model.dtype)
    of_run = torch.tensor(rows.of_run if rows else [0], device=model.device)

    def mix(index: int, value: Tensor) -> Tensor:
        strength, own = shares[of_run, index].to(value.dtype).unbind(-1)
        mixed: Tensor = strength[:, None, None] * placed[of_run, index][:, None] + own[:, None, None] * value
        return mixed if rows is None else mixed + rows.noise(value)

    return [(point, partial(mix, index)) for index, point in enumerate(points_of(model))]
