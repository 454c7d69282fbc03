"""Head selection: one alpha in [0, 1] per head, kept as logits, with the trace of the fit it came from."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import UserError


@dataclass(frozen=True)
class FitSettings:
    """How alpha is fitted.

    Args:
        n_steps: Steps of Adam.
        batch_size: Training examples of a run in each step, drawn with replacement.
        lr: Adam step size, in logits of alpha.
        validate_every: Steps between validations.
        n_valid: At most so many validation examples.
        checkpoint: `best` keeps the step with the lowest validation loss; `last` the last one, as the released SITE
            code does.
        mixing: `interpolate` writes (1 - alpha) z + alpha t, as SITE; `add` writes z + alpha t.
        init: Logits of alpha at the start; 0 is alpha 0.5.
        per: One alpha for each `head`, or one for each `layer`, shared by its heads.
        loss: Cross-entropy of the `first_token` of the answer, as SITE, or of the whole `answer`, summed over tokens.
    """

    n_steps: int = 400
    batch_size: int = 1
    lr: int | float = 0.2
    validate_every: int = 50
    n_valid: int = 100
    checkpoint: Literal["best", "last"] = "best"
    mixing: Literal["interpolate", "add"] = "interpolate"
    init: int | float = 0.0
    per: Literal["head", "layer"] = "head"
    loss: Literal["first_token", "answer"] = "first_token"

    def __post_init__(self) -> None:
        for name in ("n_steps", "batch_size", "validate_every", "n_valid"):
            count = getattr(self, name)
            if not isinstance(count, int) or count < 1:
                raise UserError(f"Cannot fit with {name} {count!r}. Give a whole number of 1 or more.")
        if not isinstance(self.lr, int | float) or not 0 < self.lr < float("inf"):
            raise UserError(f"Cannot fit with lr {self.lr!r}. Give a finite number above 0.")
        if self.checkpoint not in ("best", "last"):
            raise UserError(f"Cannot keep the checkpoint {self.checkpoint!r}. Give 'best' or 'last'.")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise UserError(
                    f"Cannot fit with {name} {getattr(self, name)!r}. Give {' or '.join(map(repr, known))}."
                )
        if not isinstance(self.init, int | float) or not abs(self.init) < float("inf"):
            raise UserError(f"Cannot fit with init {self.init!r}. Give a finite number, the logit of the first alpha.")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; what came after the first release is left out where it is the default."""
        return {name: value for name, value in vars(self).items() if name not in LATER or value != LATER[name]}


CHOICES = {"mixing": ("interpolate", "add"), "per": ("head", "layer"), "loss": ("first_token", "answer")}
# Hashes of results and adapters that were made before these settings existed stay what they are.
LATER: dict[str, Any] = {"mixing": "interpolate", "init": 0.0, "per": "head", "loss": "first_token"}
PAPER = FitSettings()


@dataclass(frozen=True)
class FitTrace:
    """How a fit went.

    Args:
        train_loss: Cross-entropy of the first answer token at each step, in nats, mean over the step's examples.
        valid_steps: Steps after which validation was run, counted from 1.
        valid_loss: Mean validation cross-entropy there, in nats.
        chosen_step: The step whose selection was kept.
    """

    train_loss: tuple[float, ...]
    valid_steps: tuple[int, ...]
    valid_loss: tuple[float, ...]
    chosen_step: int


@dataclass(frozen=True)
class HeadSelection:
    """Which heads take the task embedding, softly.

    Args:
        logits: alpha = sigmoid(logits). Rank heads by logits: fp32 sigmoid is exactly 1 from 17 on.
        trace: How the fit went; None for a selection that was not fitted.
        settings: What it was fitted with; None for one that was not.
        seed: Seed of the fit.
        n_labels: Distinct labelled examples used, validation included.

    Raises:
        UserError: A logit is nan or infinite.
    """

    logits: Float[Tensor, "layer head"]
    trace: FitTrace | None = None
    settings: FitSettings | None = None
    seed: int = 0
    n_labels: int = 0

    def __repr__(self) -> str:
        shape = "[{} layer, {} head]".format(*self.logits.shape)
        fitted = "" if self.trace is None else f", step {self.trace.chosen_step} kept, seed {self.seed}"
        return f"HeadSelection({shape}, {self.n_open} of {self.logits.numel()} heads with alpha above 0.9{fitted})"

    def __post_init__(self) -> None:
        if head := first_not_finite(self.logits):
            raise UserError(
                f"Cannot make a head selection: a value of its logits is not finite at {head}. Fit it again in float32."
            )

    @property
    def alpha(self) -> Float[Tensor, "layer head"]:
        """Share taken from the task embedding, per head."""
        return torch.sigmoid(self.logits)

    @property
    def adds(self) -> bool:
        """Whether it was fitted to add alpha * t to z, which is kept whole."""
        return self.settings is not None and self.settings.mixing == "add"

    @property
    def n_parameters(self) -> int:
        """Fitted scalars: one for each head, or for each layer."""
        shared = self.settings is not None and self.settings.per == "layer"
        return self.logits.shape[0] if shared else self.logits.numel()

    @property
    def n_open(self) -> int:
        """Heads that take nearly all of the task embedding: alpha above 0.9."""
        return int((self.alpha > 0.9).sum())

    def ranking(self) -> list[tuple[int, int]]:
        """(layer, head) pairs, highest alpha first; equal logits keep layer order."""
        n_heads = self.logits.shape[1]
        order = self.logits.flatten().argsort(descending=True, stable=True).tolist()
        return [divmod(index, n_heads) for index in order]

    def top(self, k: int) -> Float[Tensor, "layer head"]:
        """A hard alpha: 1 on the k heads that rank first, 0 elsewhere.

        Raises:
            UserError: k is below 0 or above the number of heads.
        """
        return self._mask(self.ranking()[: self._count(k)])

    def bottom(self, k: int) -> Float[Tensor, "layer head"]:
        """A hard alpha: 1 on the k heads that rank last, 0 elsewhere.

        Raises:
            UserError: k is below 0 or above the number of heads.
        """
        return self._mask(self.ranking()[self.logits.numel() - self._count(k) :])

    def _count(self, k: int) -> int:
        if not 0 <= k <= self.logits.numel():
            raise UserError(f"Cannot choose {k} heads of {self.logits.numel()}. Give a number from 0 to that.")
        return k

    def _mask(self, heads: list[tuple[int, int]]) -> Float[Tensor, "layer head"]:
        mask = torch.zeros_like(self.logits)
        for layer, head in heads:
            mask[layer, head] = 1.0
        return mask


def first_not_finite(values: Float[Tensor, "layer head ..."]) -> str | None:
    """The first head with a value that is nan or infinite, such as `L3H0`; None where there is none."""
    wrong = ~values.isfinite()
    if not bool(wrong.any()):
        return None
    layer, head = wrong.nonzero()[0][:2].tolist()
    return f"L{layer}H{head}"
