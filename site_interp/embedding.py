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
        narrower = self.dtype if self.dtype != "float32" else model.dtype_name
        if differences := self.fingerprint.differences(model.fingerprint, narrower):
            raise UserError(
                f"This {what} was made with {self.model}, and the model is {model.name}: {'; '.join(differences)}. "
                "Use it with its own model, or make a new one."
            )

    def check_split(self, task: Task | Labelled, doing: str, what: str = "embedding") -> None:
        """Refuse the same task with another split: what this was made from may stand among its held-out examples.

        Args:
            task: Any other task is fine.
            doing: Start of the sentence.
            what: What was made from the split.

        Raises:
            UserError: Names both split seeds.
        """
        name = task.name if isinstance(task, Task) else task.task
        if self.task == name and self.split_hash != task.split_hash:
            raise UserError(
                f"{doing} task '{name}': its {what} is of another split (split_seed {self.split_seed}, now "
                f"{task.split_seed}), so it may have seen the examples that are held out here. Load the task with the "
                f"same split_seed and data, or make the {what} anew."
            )


@torch.no_grad()
def head_outputs(prefixes: Prefixes) -> Float[Tensor, "batch layer head d_head"]:
    """z of every head at the last token of each prompt, fp32 on the CPU; the model is left as it is."""
    model = prefixes.model
    seen: dict[int, Tensor] = {}

    def keep(layer: int) -> Callable[[Tensor], None]:
        def hook(z: Tensor) -> None:
            seen[layer] = z[:, -1].float().cpu()

        return hook

    with model.hooked([(model.hook_z(layer), keep(layer)) for layer in range(model.n_layers)]):
        prefixes.run_last()
    return torch.stack([seen[layer] for layer in range(model.n_layers)], dim=1)


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
    z = torch.empty(len(prompts), model.n_layers, model.n_heads, model.d_head, device="cpu")
    with advancing(len(prompts), "embedding", progress) as advance:
        for prefixes in iterate_prefixes(model, prompts, memory=memory, max_rows=32):
            found = head_outputs(prefixes)
            check_finite(prefixes, found, "head outputs")
            z[prefixes.rows.cpu()] = found
            advance(len(prefixes))
    return z


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
