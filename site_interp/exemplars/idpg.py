"""IDPG (Wu et al., NAACL 2022, arXiv 2204.04497): soft tokens from the query alone, as arXiv 2510.05363 compares it."""

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.exemplars.encoded import Encoded, PromptEncoder, linear


class IDPG(PromptEncoder):
    """A linear map of E_x; exemplars are not looked at.

    Args:
        d_encoder, d_model: Sizes.
        n_soft: Soft tokens, each with a map of its own.
        seed: Of the first weights.
    """

    def __init__(self, d_encoder: int, d_model: int, n_soft: int, seed: torch.Generator | None = None) -> None:
        super().__init__(d_encoder, d_model, n_soft)
        self.map = linear(d_encoder, n_soft * d_model, seed)

    def forward(self, encoded: Encoded) -> Float[Tensor, "batch soft d_model"]:
        """The soft tokens of each query."""
        self.check(encoded)
        soft: Tensor = self.map(encoded.query)
        return soft.view(len(soft), self.n_soft, self.d_model)
