"""Intervals and paired differences: exact where a hand can work them out, coverage where chance decides."""

import math
import time

import numpy as np
import pytest

from site_interp import comparison
from site_interp.comparison import bootstrap_mean, nested_difference, nested_mean, nested_test, paired_difference

QUANTILE_TOLERANCE = 0.02  # of a percentile of 20,000 draws on the scales used here


def test_the_value_is_the_plain_mean_and_n_the_number_of_examples() -> None:
    interval = bootstrap_mean([1, 0, 0, 1, 1])
    assert (interval.value, interval.n) == (0.6, 5)


def test_two_scores_give_the_interval_worked_out_by_hand() -> None:
    # Means of two draws from {0, 1}: 0, 0.5, 1 with chances 1/4, 1/2, 1/4. The middle 40 % are all 0.5;
    # the middle 80 % begin at the 10th percentile, which is 0, and end at 1.
    narrow, wide = bootstrap_mean([0, 1], level=0.4), bootstrap_mean([0, 1], level=0.8)
    assert (narrow.low, narrow.high) == (0.5, 0.5)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_the_interval_of_a_share_is_that_of_the_binomial_distribution() -> None:
    # 40 right of 100: resampled counts are binomial(100, 0.4), whose 2.5 % and 97.5 % points are 31 and 50.
    interval = bootstrap_mean([1] * 40 + [0] * 60, n_draws=20_000)
    assert interval.low == pytest.approx(0.31, abs=QUANTILE_TOLERANCE / 2)
    assert interval.high == pytest.approx(0.50, abs=QUANTILE_TOLERANCE / 2)


def test_one_example_has_a_value_but_no_interval() -> None:
    interval = bootstrap_mean([0.25])
    assert (interval.value, interval.n) == (0.25, 1)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    assert math.isnan(nested_mean({"a": [[1.0]]}).low)


def test_equal_scores_give_an_interval_of_width_zero() -> None:
    interval = bootstrap_mean([0.5] * 7)
    assert (interval.low, interval.value, interval.high) == (0.5, 0.5, 0.5)
    nested = nested_mean({"a": [[1, 1], [1, 1]], "b": [[1, 1, 1]]})
    assert (nested.low, nested.value, nested.high) == (1.0, 1.0, 1.0)


def test_equal_arguments_give_equal_intervals_and_another_seed_does_not() -> None:
    scores = np.random.default_rng(3).normal(size=50)
    assert bootstrap_mean(scores) == bootstrap_mean(list(scores))
    assert bootstrap_mean(scores) != bootstrap_mean(scores, seed=1)


def test_drawing_in_blocks_changes_nothing_for_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(4).normal(size=30)
    whole = bootstrap_mean(scores)
    monkeypatch.setattr(comparison, "BLOCK_SIZE", 1000)
    assert bootstrap_mean(scores) == whole


def test_a_paired_difference_leaves_out_what_both_methods_find_hard() -> None:
    a, b = [1, 1, 0, 0, 1], [0, 0, -1, -1, 0]
    paired = paired_difference(a, b)
    assert (paired.value, paired.low, paired.high, paired.n) == (1.0, 1.0, 1.0, 5)
    assert paired_difference(b, a).value == -1.0


def test_a_paired_difference_is_the_interval_of_the_differences() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=40), rng.normal(size=40)
    assert paired_difference(a, b) == bootstrap_mean(a - b)


def test_unequal_lengths_do_not_pair() -> None:
    with pytest.raises(ValueError, match="3 examples on one side, 2 on the other"):
        paired_difference([1, 0, 1], [1, 0])


def test_a_nested_mean_weighs_tasks_alike_whatever_their_size() -> None:
    # (mean of 1 and 0.5) = 0.75 for the first task, 0 for the second: 0.375.
    interval = nested_mean({"a": [[1, 1, 1, 1], [1, 0, 1, 0]], "b": [[0, 0]]})
    assert (interval.value, interval.n) == (0.375, 2)


def test_tasks_are_resampled_by_hand_worked_chances() -> None:
    # Tasks without spread inside: the mean of two picks is 0, 0.5 or 1 with chances 1/4, 1/2, 1/4.
    scores = {"a": [[1, 1]], "b": [[0, 0]]}
    narrow, wide = nested_mean(scores, level=0.4), nested_mean(scores, level=0.8)
    assert (narrow.low, narrow.high) == (0.5, 0.5)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_seeds_are_resampled_by_hand_worked_chances() -> None:
    scores = {"a": [[1, 1, 1], [0, 0, 0]]}
    narrow, wide = nested_mean(scores, level=0.4), nested_mean(scores, level=0.8)
    assert (narrow.low, narrow.high) == (0.5, 0.5)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_one_task_and_one_seed_give_the_interval_over_examples() -> None:
    scores = np.random.default_rng(6).normal(size=25)
    nested, plain = nested_mean({"a": [scores]}), bootstrap_mean(scores)
    assert (nested.value, nested.low, nested.high) == (plain.value, plain.low, plain.high)


def test_seeds_that_agree_do_not_make_the_interval_narrower() -> None:
    scores = np.random.default_rng(7).integers(2, size=60)
    once = nested_mean({"a": [scores]}, n_draws=20_000)
    thrice = nested_mean({"a": [scores] * 3}, n_draws=20_000)
    assert thrice.high - thrice.low == pytest.approx(once.high - once.low, abs=QUANTILE_TOLERANCE)


def test_a_task_picked_twice_has_its_examples_drawn_anew() -> None:
    # Two equal tasks of n examples: with fresh examples per pick the mean has half the variance of one task's.
    scores = np.random.default_rng(8).normal(size=50)
    one = nested_mean({"a": [scores]}, n_draws=20_000)
    two = nested_mean({"a": [scores], "b": [scores]}, n_draws=20_000)
    assert (two.high - two.low) / (one.high - one.low) == pytest.approx(math.sqrt(0.5), abs=QUANTILE_TOLERANCE)


def test_the_nested_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(9)
    n_trials, covered = 300, 0
    for _ in range(n_trials):
        truth = rng.normal(0.5, 0.15, size=10)
        scores = {
            str(task): (
                truth[task]
                + rng.normal(0, 0.05, size=(3, 1))  # seeds of a method
                + rng.normal(0, 0.4, size=(1, 40))  # examples, alike for all seeds
                + rng.normal(0, 0.1, size=(3, 40))
            )
            for task in range(10)
        }
        interval = nested_mean(scores, n_draws=400)
        covered += interval.low <= 0.5 <= interval.high
    # 0.95 is meant; percentile intervals of ten units cover about 0.91, and 300 trials leave 0.02 either way.
    assert 0.87 <= covered / n_trials <= 0.98


def test_the_interval_over_examples_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(10)
    intervals = [bootstrap_mean(rng.random(100) < 0.3, n_draws=400) for _ in range(400)]
    covered = sum(interval.low <= 0.3 <= interval.high for interval in intervals)
    assert 0.91 <= covered / 400 <= 0.98


def test_a_nested_difference_pairs_tasks_seeds_and_examples() -> None:
    rng = np.random.default_rng(11)
    b = {"x": rng.normal(size=(3, 20)), "y": rng.normal(size=(3, 30))}
    a = {task: rows + 0.25 for task, rows in b.items()}
    difference = nested_difference(a, b)
    assert (difference.value, difference.low, difference.high) == pytest.approx((0.25, 0.25, 0.25))
    assert nested_difference(b, a).value == pytest.approx(-0.25)


def test_a_method_with_a_single_seed_is_set_against_every_seed() -> None:
    a = {"x": [[1, 1], [0, 1], [1, 0]]}
    once = nested_difference(a, {"x": [[0, 1]]})
    assert once == nested_difference(a, {"x": [[0, 1]] * 3})
    assert once.value == pytest.approx(1 / 6)
    assert nested_difference({"x": [[0, 1]]}, a).value == pytest.approx(-1 / 6)


def test_methods_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="scores for y"):
        nested_difference({"x": [[1, 0]], "y": [[1, 0]]}, {"x": [[1, 0]]})
    with pytest.raises(ValueError, match="task 'x': 3 seeds on one side, 2 on the other"):
        nested_difference({"x": [[1, 0]] * 3}, {"x": [[1, 0]] * 2})
    with pytest.raises(ValueError, match="task 'x': 2 examples on one side, 1 on the other"):
        nested_difference({"x": [[1, 0]]}, {"x": [[1]]})


@pytest.mark.parametrize("rows", [[], [[]], [[1, 0], [1]]])
def test_missing_and_ragged_scores_are_refused(rows: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="Cannot average the task 'x'"):
        nested_mean({"x": rows})


def test_scores_that_are_not_finite_and_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="nan or infinite"):
        bootstrap_mean([1.0, math.nan])
    with pytest.raises(ValueError, match="nan or infinite"):
        paired_difference([-math.inf, 0.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="n_draws=0"):
        bootstrap_mean([1.0, 0.0], n_draws=0)
    with pytest.raises(ValueError, match="level=95"):
        nested_mean({"x": [[1.0, 0.0]]}, level=95.0)
    with pytest.raises(ValueError, match="there is none"):
        nested_mean({})


def test_ten_tasks_three_seeds_and_a_hundred_examples_take_under_two_seconds() -> None:
    rng = np.random.default_rng(12)
    scores = {str(task): rng.integers(2, size=(3, 100)) for task in range(10)}
    start = time.perf_counter()
    nested_mean(scores)
    assert time.perf_counter() - start < 2.0


def test_the_p_value_of_a_difference_is_two_sided_and_large_where_there_is_none() -> None:
    rng = np.random.default_rng(0)
    base = rng.random((3, 60))
    shift = rng.normal(0.1, 0.1, 60)
    a, b = {"t": (base + shift).tolist()}, {"t": base.tolist()}
    interval, p_value = nested_test(a, b)
    assert interval == nested_difference(a, b)
    assert p_value == pytest.approx(2 / 2001)
    assert nested_test(b, a)[1] == pytest.approx(p_value), "either side"
    assert nested_test(b, b)[1] == 1.0
    assert np.isnan(nested_test({"t": [[1.0]]}, {"t": [[0.0]]})[1])


def test_p_values_of_equal_methods_are_spread_evenly() -> None:
    rng = np.random.default_rng(1)
    pairs = [({"t": [rng.normal(size=50).tolist()]}, {"t": [rng.normal(size=50).tolist()]}) for _ in range(200)]
    found = [nested_test(*pair, n_draws=400, seed=place)[1] for place, pair in enumerate(pairs)]
    assert 0.02 <= np.mean(np.array(found) < 0.05) <= 0.09
    assert 0.4 <= np.median(found) <= 0.6
