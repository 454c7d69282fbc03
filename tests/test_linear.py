"""Linear layers by oneDNN: the numbers of torch's own, in both directions, and only where nothing else is asked for."""

import pytest
import torch
from torch import nn

ROWS = ((1, 1), (10, 1), (3, 7), (2, 3, 5))


def layer(*, bias: bool = True, frozen: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(33, 70, bias=bias).requires_grad_(not frozen)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", ROWS)
def test_values_and_gradients_are_those_of_the_layer(rows: tuple[int, ...], bias: bool) -> None:
    from site_interp.model.linear import quick_linear

    own = layer(bias=bias)
    quick = quick_linear(own)
    assert quick is not None
    x = torch.randn(*rows, 33)
    with torch.no_grad():
        assert torch.allclose(quick(x), own(x), atol=1e-5)
    weights, found = torch.randn(*rows, 70), []
    for run in (own, quick):
        given = x.clone().requires_grad_()
        y = run(given)
        (y * weights).sum().backward()
        found.append((y, given.grad))
    for ours, expected in zip(*reversed(found), strict=True):
        assert ours.shape == expected.shape
        assert torch.allclose(ours, expected, atol=1e-5)


def test_gradients_come_through_a_layout_that_is_not_contiguous() -> None:
    from site_interp.model.linear import quick_linear

    own = layer()
    quick, x = quick_linear(own), torch.randn(33, 4).t().requires_grad_()
    (gradient,) = torch.autograd.grad(quick(x).t().reshape(-1)[::2].sum(), x)
    (expected,) = torch.autograd.grad(own(x).t().reshape(-1)[::2].sum(), x)
    assert torch.allclose(gradient, expected, atol=1e-5)


def test_weights_that_ask_for_a_gradient_get_it() -> None:
    from site_interp.model.linear import quick_linear

    own = layer(frozen=False)
    quick_linear(own)(torch.randn(2, 33)).sum().backward()
    assert own.weight.grad is not None
    assert own.bias.grad is not None


def test_the_weights_are_shared_and_seen_when_they_change() -> None:
    from site_interp.model.linear import quick_linear

    own, x = layer(), torch.randn(2, 33)
    quick = quick_linear(own)
    own.weight.data.zero_()
    assert torch.allclose(quick(x), own.bias.expand(2, -1), atol=1e-6)


def test_other_precisions_and_other_layers_are_left_alone() -> None:
    from site_interp.model.linear import quick_linear

    class Special(nn.Linear):
        """A layer that may compute something else, as quantised ones do."""

    assert quick_linear(layer().to(torch.bfloat16)) is None
    assert quick_linear(Special(3, 3)) is None
    assert quick_linear(nn.Embedding(3, 3)) is None
    assert quick_linear(nn.Linear(3, 3, device="meta")) is None
