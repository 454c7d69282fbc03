"""U-ESP (xRAG of arXiv 2510.05363): the query and all exemplars in one text, one soft token."""

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import UserError
from site_interp.exemplars.encoded import Encoded, PromptEncoder, linear


class UESP(PromptEncoder):
    """A linear map of E_(x, x_1, y_1, ..., x_K, y_K), which depends on the order of the exemplars.

    Args:
        d_encoder, d_model: Sizes.
        n_soft: Soft tokens, each with a map of its own; 1 in the paper.
        seed: Of the first weights.
    """

    def __init__(self, d_encoder: int, d_model: int, n_soft: int = 1, seed: torch.Generator | None = None) -> None:
        super().__init__(d_encoder, d_model, n_soft)
        self.map = linear(d_encoder, n_soft * d_model, seed)

    def forward(self, encoded: Encoded) -> Float[Tensor, "batch soft d_model"]:
        """The soft tokens of each query."""
        self.check(encoded)
        if encoded.whole is None:
            raise UserError("Cannot encode exemplars for U-ESP: it needs them in one text. Use a text encoder.")
        soft: Tensor = self.map(encoded.whole)
        return soft.view(len(soft), self.n_soft, self.d_model)
