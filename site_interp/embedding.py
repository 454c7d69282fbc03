"""The task embedding: mean head output at the last token of few-shot prompts (SITE, section 3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model import Fingerprint, Model
from site_interp.prefixes import DEFAULT_MEMORY, Prefixes, check_finite, iterate_prefixes
from site_interp.progress import Advance, advancing
from site_interp.prompts import QA, Template, draw_embedding_prompts
from site_interp.provenance import check_model, check_split
from site_interp.selection import first_not_finite
from site_interp.tasks import Labelled, Task


@dataclass(frozen=True)
class TaskEmbedding:
    """What each head puts out, on average, when the task was just demonstrated.

    Args:
        mean: t[l, h], fp32 on the CPU.
        std: Standard deviation over the prompts, per component; 0 for a single prompt.
        task: Name of the task.
        split_hash, split_seed: Which split the demonstrations came from.
        template: How the prompts were written.
        n_prompts, n_shots: M prompts of N demonstrations.
        seed: Seed of the draw.
        n_labels: Distinct labelled examples shown.
        model: Name of the model.
        revision: Revision of the model, if one was asked for.
        dtype: Precision the model ran in.
        fingerprint: What the model looked like.

    Raises:
        UserError: Mean and spread of different shapes, or with a value that is nan or infinite.
    """

    mean: Float[Tensor, "layer head d_head"]
    std: Float[Tensor, "layer head d_head"]
    task: str
    split_hash: str
    split_seed: int
    template: Template
    n_prompts: int
    n_shots: int
    seed: int
    n_labels: int
    model: str
    revision: str | None
    dtype: str
    fingerprint: Fingerprint

    def __repr__(self) -> str:
        shape = "[{} layer, {} head, {} d_head]".format(*self.mean.shape)
        return (
            f"TaskEmbedding({self.task} on {self.model}: {shape}, {self.n_prompts} prompts of {self.n_shots} shots, "
            f"seed {self.seed}, {self.n_labels} labelled examples)"
        )

    def __post_init__(self) -> None:
        doing = f"Cannot make the embedding of task '{self.task}'"
        if self.mean.shape != self.std.shape:
            raise UserError(
                f"{doing}: its mean has shape {tuple(self.mean.shape)} and its spread {tuple(self.std.shape)}. Take "
                "both from the same prompts."
            )
        for name, values in (("embedding", self.mean), ("spread", self.std)):
            if head := first_not_finite(values):
                raise UserError(f"{doing}: a value of its {name} is not finite at {head}. Embed it again in float32.")

    def check_model(self, model: Model, what: str = "embedding") -> None:
        """Refuse a model that is not the one this was made with.

        Raises:
            UserError: Names the fields that differ.
        """
        check_model(self, model, what)

    def check_split(self, task: Task | Labelled, doing: str, what: str = "embedding") -> None:
        """Refuse the same task with another split: what this was made from may stand among its held-out examples.

        Args:
            task: Any other task is fine.
            doing: Start of the sentence.
            what: What was made from the split.

        Raises:
            UserError: Names both split seeds.
        """
        check_split(self, task, doing, what)


@torch.no_grad()
def last_values(prefixes: Prefixes, points: Sequence[str]) -> Float[Tensor, "batch point ..."]:
    """What hook points of one shape hold at the last token of each prompt, fp32 on the CPU; nothing is changed."""
    seen: dict[str, Tensor] = {}

    def keep(point: str) -> Callable[[Tensor], None]:
        def hook(value: Tensor) -> None:
            seen[point] = value[:, -1].float().cpu()

        return hook

    with prefixes.model.hooked([(point, keep(point)) for point in points]):
        prefixes.run_last()
    return torch.stack([seen[point] for point in points], dim=1)


def head_outputs(prefixes: Prefixes) -> Float[Tensor, "batch layer head d_head"]:
    """z of every head at the last token of each prompt."""
    return last_values(prefixes, [prefixes.model.hook_z(layer) for layer in range(prefixes.model.n_layers)])


def embed_prompts(
    model: Model,
    prompts: Sequence[str],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> Float[Tensor, "prompt layer head d_head"]:
    """z of every head at the last token of each prompt, in the order of the prompts.

    Args:
        model: The model to run.
        prompts: Texts that end in the token of interest.
        memory: Budget in bytes.
        progress: Called with the number of prompts done after each batch; by default a bar is shown.

    Raises:
        UserError: A prompt without tokens or longer than the context, or one whose z is not finite.
    """
    points = [model.hook_z(layer) for layer in range(model.n_layers)]
    return read_prompts(model, prompts, points, memory=memory, progress=progress)


def read_prompts(
    model: Model, prompts: Sequence[str], points: Sequence[str], *, memory: int, progress: Advance | None
) -> Float[Tensor, "prompt point ..."]:
    """What hook points of one shape hold at the last token of each prompt; arguments as in `embed_prompts`."""
    found: dict[int, Tensor] = {}
    with advancing(len(prompts), "embedding", progress) as advance:
        for prefixes in iterate_prefixes(model, prompts, memory=memory, max_rows=32):
            values = last_values(prefixes, points)
            check_finite(prefixes, values, "head outputs" if points[0] == model.hook_z(0) else "states")
            found.update(zip(prefixes.rows.tolist(), values, strict=True))
            advance(len(prefixes))
    return torch.stack([found[row] for row in range(len(prompts))])


def embed_task(
    model: Model,
    task: Task | Labelled,
    *,
    n_prompts: int = 50,
    n_shots: int = 10,
    seed: int = 0,
    template: Template = QA,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> TaskEmbedding:
    """The mean and spread of z over M few-shot prompts of N demonstrations.

        t[l, h] = mean over m of z_m[l, h] at the last token

    Args:
        model: The model to run; nothing in it changes.
        task: Where demonstrations come from (its training split); a `Labelled` counts the answers shown.
        n_prompts: M.
        n_shots: N.
        seed: Seed of the draw.
        template: How examples become text.
        memory: Budget in bytes.
        progress: Called with the number of prompts done after each batch; by default a bar is shown.

    Raises:
        UserError: Too few training examples, prompts longer than the context, or head outputs that are not finite.
    """
    labelled = task if isinstance(task, Labelled) else Labelled(task)
    prompts = draw_embedding_prompts(labelled, template, n_prompts=n_prompts, n_shots=n_shots, seed=seed)
    z = embed_prompts(model, prompts, memory=memory, progress=progress)
    return TaskEmbedding(
        mean=z.mean(dim=0),
        std=z.std(dim=0, correction=0),
        task=labelled.task,
        split_hash=labelled.split_hash,
        split_seed=labelled.split_seed,
        template=template,
        n_prompts=n_prompts,
        n_shots=n_shots,
        seed=seed,
        n_labels=labelled.n_used,
        model=model.name,
        revision=model.revision,
        dtype=model.dtype_name,
        fingerprint=model.fingerprint,
    )
