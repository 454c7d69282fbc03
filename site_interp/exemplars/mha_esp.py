"""MHA-ESP (Jain et al., arXiv 2510.05363): attention of the query over its exemplars, one soft token for each head."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from site_interp.exemplars.encoded import INIT, Encoded, PromptEncoder


class MHAESP(PromptEncoder):
    """Every head attends from the query to the exemplars and puts out one soft token (section 3.2).

        q = W_Q[h] E_x + b,   k = W_K[h] E_(x_k, y_k) + b,   v = W_V[h] E_(x_k, y_k) + b
        z[h] = softmax(q k / sqrt(d_model)) v

    Heads are as wide as the model; there is no output projection. The order of exemplars does not matter.

    Args:
        d_encoder: Size of the encoder's vectors.
        d_model: Size of the model's embeddings.
        n_soft: H, heads and soft tokens.
        seed: Of the first weights.
    """

    def __init__(self, d_encoder: int, d_model: int, n_soft: int, seed: torch.Generator | None = None) -> None:
        super().__init__(d_encoder, d_model, n_soft)
        shape = (3, n_soft, d_model, d_encoder)
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(shape), std=INIT, generator=seed))
        self.bias = nn.Parameter(torch.zeros(shape[:3]))

    def projected(
        self, exemplars: Float[Tensor, "... d_encoder"]
    ) -> tuple[Float[Tensor, "... soft d_model"], Float[Tensor, "... soft d_model"]]:
        """Keys and values of exemplars; they do not depend on the query, so those of a bank are computed once."""
        keys, values = (
            torch.einsum("...e,hde->...hd", exemplars, self.weight[part]) + self.bias[part] for part in (1, 2)
        )
        return keys, values

    def attend(
        self,
        encoded: Encoded,
        keys: Float[Tensor, "batch exemplar soft d_model"],
        values: Float[Tensor, "batch exemplar soft d_model"],
    ) -> tuple[Float[Tensor, "batch soft d_model"], Float[Tensor, "batch soft exemplar"]]:
        """Soft tokens, and how much of each exemplar is in them."""
        query = torch.einsum("be,hde->bhd", encoded.query, self.weight[0]) + self.bias[0]
        logits = torch.einsum("bhd,bkhd->bhk", query, keys) / math.sqrt(self.d_model)
        attention = logits.masked_fill(~encoded.present[:, None], -math.inf).softmax(dim=-1)
        return torch.einsum("bhk,bkhd->bhd", attention, values), attention

    def forward(self, encoded: Encoded) -> Float[Tensor, "batch soft d_model"]:
        """The soft tokens of each query."""
        self.check(encoded)
        return self.attend(encoded, *self.projected(encoded.exemplars))[0]
