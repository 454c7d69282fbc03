"""What every prompt encoder is given, and what it gives back."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from site_interp.errors import UserError

INIT = 0.02  # standard deviation of the first weights; biases begin at 0 (LoPA's trainer)


@dataclass(frozen=True)
class Encoded:
    """A batch of queries with their exemplars, as vectors of the sentence encoder.

    Args:
        query: E_x.
        exemplars: E of each exemplar with its label; in the order of retrieval.
        together: E of query and exemplar in one text, for P-ESP; None where nobody asks for it.
        whole: E of the query and all exemplars in one text, for U-ESP; None where nobody asks for it.
        present: Which exemplars there are; a query may have fewer than others.
        similarity: Of query and exemplar, as the retrieval gave it.
    """

    query: Float[Tensor, "batch d_encoder"]
    exemplars: Float[Tensor, "batch exemplar d_encoder"]
    present: Bool[Tensor, "batch exemplar"]
    similarity: Float[Tensor, "batch exemplar"]
    together: Float[Tensor, "batch exemplar d_encoder"] | None = None
    whole: Float[Tensor, "batch d_encoder"] | None = None

    def permuted(self, order: list[int]) -> "Encoded":
        """The same exemplars in another order, what is encoded with them in that order left as it is."""
        return Encoded(
            self.query,
            self.exemplars[:, order],
            self.present[:, order],
            self.similarity[:, order],
            None if self.together is None else self.together[:, order],
            self.whole,
        )


class PromptEncoder(nn.Module):
    """A trained map from encoded exemplars to soft tokens."""

    def __init__(self, d_encoder: int, d_model: int, n_soft: int) -> None:
        super().__init__()
        for name, size in (("d_encoder", d_encoder), ("d_model", d_model), ("n_soft", n_soft)):
            if not isinstance(size, int) or size < 1:
                raise UserError(f"Cannot make a prompt encoder with {name} {size!r}. Give a whole number of 1 or more.")
        self.d_encoder, self.d_model, self.n_soft = d_encoder, d_model, n_soft

    @property
    def n_parameters(self) -> int:
        """Trained scalars."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, encoded: Encoded) -> Float[Tensor, "batch soft d_model"]:
        """The soft tokens of each query."""
        raise NotImplementedError

    def check(self, encoded: Encoded) -> None:
        """Refuse vectors of another encoder.

        Raises:
            UserError: Names both sizes.
        """
        if encoded.query.shape[-1] != self.d_encoder:
            raise UserError(
                f"Cannot encode a query of {encoded.query.shape[-1]} numbers with a prompt encoder made for "
                f"{self.d_encoder}. Use the encoder that it was trained with."
            )


def linear(d_in: int, d_out: int, seed: torch.Generator | None = None) -> nn.Linear:
    """A linear layer with bias, from N(0, INIT) and 0."""
    made = nn.Linear(d_in, d_out)
    nn.init.normal_(made.weight, std=INIT, generator=seed)
    nn.init.zeros_(made.bias)
    return made
