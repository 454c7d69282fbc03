"""P-ESP (xRAG-K of arXiv 2510.05363): one soft token for each exemplar, encoded together with the query."""

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import UserError
from site_interp.exemplars.encoded import Encoded, PromptEncoder, linear


class PESP(PromptEncoder):
    """The same linear map of each E_(x, x_k, y_k); soft tokens stand in the order of the exemplars.

    Args:
        d_encoder, d_model: Sizes.
        n_soft: K, exemplars and soft tokens.
        seed: Of the first weights.
    """

    def __init__(self, d_encoder: int, d_model: int, n_soft: int, seed: torch.Generator | None = None) -> None:
        super().__init__(d_encoder, d_model, n_soft)
        self.map = linear(d_encoder, d_model, seed)

    def forward(self, encoded: Encoded) -> Float[Tensor, "batch soft d_model"]:
        """The soft tokens of each query; zeros where an exemplar is missing."""
        self.check(encoded)
        if encoded.together is None or encoded.together.shape[1] != self.n_soft:
            raise UserError(
                f"Cannot encode exemplars for P-ESP: it needs {self.n_soft} texts of query and exemplar for each "
                "query. Use a text encoder, and as many exemplars as soft tokens."
            )
        soft: Tensor = self.map(encoded.together)
        return soft * encoded.present[..., None]
