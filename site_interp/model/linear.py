"""Linear layers of a frozen model on a CPU, computed by oneDNN.

torch gives fp32 products to MKL, which with one to forty rows reads the weights at a third of the memory's speed on AMD
processors. oneDNN is 1.1 to 2.7 times as fast there, in both directions and at every size (benchmarks/linear.py).
"""

from typing import Any

import torch
from torch import Tensor, nn

_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def quick_linear(layer: Any) -> nn.Module | None:
    """The same layer computed by oneDNN, sharing its weights; None where that does not apply."""
    applies = _ONEDNN is not None and type(layer) is nn.Linear
    if applies and layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
        return _QuickLinear(layer)
    return None


class _QuickLinear(nn.Module):
    """Runs a linear layer whose weights need no gradient; with weights that do it is the layer itself."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.layer.weight, self.layer.bias
        if not torch.is_grad_enabled():
            return _product(x, weight, bias)
        if weight.requires_grad or not weight.is_contiguous() or (bias is not None and bias.requires_grad):
            return self.layer(x)  # type: ignore[no-any-return]
        return _Frozen.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


class _Frozen(torch.autograd.Function):
    """y = x W^T + b, with the gradient of x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return _product(gradients[0].contiguous(), weight.t(), None), None, None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    assert _ONEDNN is not None
    return _ONEDNN(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]
