"""The task embedding with a method's own prompts, demonstrations, template and memory."""

from typing import Protocol, runtime_checkable

from site_interp.embedding import TaskEmbedding, embed_task
from site_interp.model import Model
from site_interp.progress import Advance
from site_interp.prompts import Template
from site_interp.tasks import Labelled


@runtime_checkable
class Embeds(Protocol):
    """A method that begins with mean head outputs."""

    @property
    def n_prompts(self) -> int:
        """M."""

    @property
    def n_shots(self) -> int:
        """N."""

    @property
    def template(self) -> Template:
        """How examples become prompts."""

    @property
    def memory(self) -> int:
        """Budget in bytes."""


def embedding_of(
    method: Embeds, model: Model, labelled: Labelled, seed: int, progress: Advance | None = None
) -> TaskEmbedding:
    """`embed_task` with the method's settings.

    Raises:
        UserError: Too few examples.
    """
    return embed_task(
        model,
        labelled,
        n_prompts=method.n_prompts,
        n_shots=method.n_shots,
        seed=seed,
        template=method.template,
        memory=method.memory,
        progress=progress,
    )
