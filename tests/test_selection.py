"""Ranking and masks of a head selection, and the settings of a fit, worked out by hand."""

from typing import Any

import pytest
import torch


def selection(values: list[list[float]]) -> Any:
    from site_interp.selection import HeadSelection

    return HeadSelection(torch.tensor(values))


def test_alpha_is_the_sigmoid_of_the_logits() -> None:
    from math import exp

    alpha = selection([[0.0, 1.0], [-2.0, 3.0]]).alpha
    assert alpha.flatten().tolist() == pytest.approx([0.5, 1 / (1 + exp(-1)), 1 / (1 + exp(2)), 1 / (1 + exp(-3))])


def test_heads_are_ranked_by_logits_even_where_alpha_is_exactly_one() -> None:
    saturated = selection([[20.0, 30.0], [25.0, -1.0]])
    assert saturated.alpha[0].tolist() == [1.0, 1.0]
    assert saturated.ranking() == [(0, 1), (1, 0), (0, 0), (1, 1)]


def test_equal_logits_keep_the_order_of_layers() -> None:
    assert selection([[1.0, 1.0, 2.0], [1.0, 2.0, 1.0]]).ranking() == [(0, 2), (1, 1), (0, 0), (0, 1), (1, 0), (1, 2)]


def test_top_and_bottom_are_hard_masks_from_the_ends_of_the_ranking() -> None:
    chosen = selection([[0.1, 3.0, -1.0], [2.0, -5.0, 0.2]])
    assert chosen.top(2).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert chosen.bottom(2).tolist() == [[0, 0, 1], [0, 1, 0]]
    for k in range(7):
        assert torch.equal(chosen.top(k) + chosen.bottom(6 - k), torch.ones(2, 3))


@pytest.mark.parametrize("k", [-1, 7])
@pytest.mark.parametrize("end", ["top", "bottom"])
def test_more_heads_than_there_are_cannot_be_chosen(end: str, k: int) -> None:
    from site_interp.errors import UserError

    with pytest.raises(UserError, match=f"Cannot choose {k} heads of 6"):
        getattr(selection([[0.1, 3.0, -1.0], [2.0, -5.0, 0.2]]), end)(k)


def test_logits_that_are_not_finite_make_no_selection() -> None:
    from site_interp.errors import UserError

    with pytest.raises(UserError, match="not finite at L1H0"):
        selection([[0.0, 1.0], [float("nan"), float("inf")]])


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_steps": 0},
        {"batch_size": 0},
        {"validate_every": 0},
        {"n_valid": 0},
        {"lr": 0.0},
        {"lr": -0.1},
        {"lr": float("inf")},
        {"lr": float("nan")},
    ],
)
def test_settings_that_cannot_be_fitted_with_are_refused(wrong: dict[str, Any]) -> None:
    from site_interp.errors import UserError
    from site_interp.selection import FitSettings

    with pytest.raises(UserError, match="Cannot fit with"):
        FitSettings(**wrong)


def test_the_papers_preset_is_four_hundred_steps_of_one_example() -> None:
    from site_interp.selection import PAPER

    assert (PAPER.n_steps, PAPER.batch_size, PAPER.lr, PAPER.validate_every, PAPER.n_valid) == (400, 1, 0.2, 50, 100)
    assert PAPER.checkpoint == "best"
