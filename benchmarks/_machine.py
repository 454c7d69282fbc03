"""What this machine can do, and how many operations a piece of work needs: the floor that times are set against."""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from site_interp.model import Model
from site_interp.model.linear import quick_linear


@dataclass(frozen=True)
class Timer:
    """Seconds of one call, by wall clock."""

    seconds: float
    value: object


def timed(work: Callable[[], object]) -> Timer:
    """Run once and time it."""
    start = time.perf_counter()
    value = work()
    return Timer(time.perf_counter() - start, value)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


@torch.no_grad()
def matrix_rates(repetitions: int = 15, size: int = 2048) -> tuple[float, float]:
    """Operations per second of a large fp32 product by torch (`a @ b`) and by oneDNN; medians, both alternating."""
    left, layer = torch.randn(size, size), torch.nn.Linear(size, size, bias=False)
    quick, weight = quick_linear(layer) or layer, layer.weight.t()
    ways = (lambda: left @ weight, lambda: quick(left))
    seconds = [[timed(way).seconds for way in ways] for _ in range(repetitions)][2:]
    by_torch, by_onednn = (2 * size**3 / median(column) for column in zip(*seconds, strict=True))
    return by_torch, by_onednn


@dataclass(frozen=True)
class Operations:
    """Multiplications and additions of a model's matrix products, attention included, norms and rotations left out.

    Args:
        block: Weights of all layers, each used once per token.
        unembedding: Weights of the last product.
        attention: Per token and position attended to, over all layers: scores and mix.
    """

    block: int
    unembedding: int
    attention: int

    def prefix(self, n_tokens: int) -> int:
        """All tokens of a prompt but the last, without logits."""
        n_tokens -= 1
        return 2 * self.block * n_tokens + self.attention * n_tokens * (n_tokens + 1) // 2

    def last(self, n_tokens: int) -> int:
        """The last token of a prompt, with its logits."""
        return 2 * (self.block + self.unembedding) + self.attention * n_tokens

    def step(self, n_tokens: int) -> int:
        """The last token forward, and backward to the activations (the weights are frozen): twice the forward."""
        return 2 * self.last(n_tokens)


def operations(model: Model) -> Operations:
    """Counted from the weights of a loaded model."""
    block = sum(
        parameter.numel()
        for name, parameter in model.inner.named_parameters()
        if parameter.dim() == 2 and "embed" not in name and "lm_head" not in name and "wte" not in name
    )
    attention = 4 * model.n_layers * model.n_heads * model.d_head
    return Operations(block, model.d_vocab * model.d_model, attention)


def report(numbers: dict[str, object]) -> None:
    """Print the numbers with what the machine was, as one JSON line."""
    machine = {"threads": torch.get_num_threads(), "cores": os.cpu_count(), "torch": torch.__version__}
    print(json.dumps({**rounded(numbers), **machine}), flush=True)


def rounded(numbers: dict[str, object]) -> dict[str, object]:
    """Floats to four digits."""
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in numbers.items()}
