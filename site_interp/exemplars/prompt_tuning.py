"""Prompt tuning (Lester et al., EMNLP 2021, arXiv 2104.08691): the same soft tokens for every query."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from site_interp.exemplars.encoded import INIT, Encoded, PromptEncoder


class PromptTuning(PromptEncoder):
    """Trained soft tokens; neither query nor exemplars are looked at.

    Args:
        d_encoder: Not used; there so that every prompt encoder is made alike.
        d_model: Size of the model's embeddings.
        n_soft: m, soft tokens.
        seed: Of the first values.
    """

    def __init__(self, d_encoder: int, d_model: int, n_soft: int, seed: torch.Generator | None = None) -> None:
        super().__init__(d_encoder, d_model, n_soft)
        self.soft = nn.Parameter(nn.init.normal_(torch.empty(n_soft, d_model), std=INIT, generator=seed))

    def forward(self, encoded: Encoded) -> Float[Tensor, "batch soft d_model"]:
        """The soft tokens of each query, all alike."""
        return self.soft.expand(len(encoded.query), -1, -1)
