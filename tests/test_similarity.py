"""Overlap of head selections against values worked out by hand, and chance by enumeration."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_interp.experiments.overlap import transfer_correlation
from site_interp.similarity import (
    alpha_shape,
    as_matrix,
    chance_overlap,
    cluster,
    cosine,
    holm,
    overlap_p_value,
    pairwise_overlap,
    spearman,
    stability,
    weighted_jaccard,
)

A = np.array([[1.0, 0.8], [0.1, 0.0]])
B = np.array([[0.9, 0.0], [0.2, 0.6]])
C = np.array([[0.0, 0.1], [0.9, 1.0]])


def ranked(alpha: Any) -> list[tuple[int, int]]:
    order = sorted(np.ndindex(alpha.shape), key=lambda at: -alpha[at])
    return [(int(layer), int(head)) for layer, head in order]


@given(st.integers(1, 6), st.integers(1, 6))
def test_chance_is_what_enumeration_of_all_pairs_of_sets_gives(k: int, n: int) -> None:
    if k > n:
        with pytest.raises(ValueError, match=f"Cannot draw {k} heads of {n}"):
            chance_overlap(k, n)
        return
    sets = [set(chosen) for chosen in combinations(range(n), k)]
    shared = [len(a & b) for a in sets for b in sets]
    found = chance_overlap(k, n)
    assert found.shared == pytest.approx(np.mean(shared))
    assert found.jaccard == pytest.approx(np.mean([count / (2 * k - count) for count in shared]))
    for count in range(k + 1):
        assert overlap_p_value(count, k, n) == pytest.approx(np.mean([one >= count for one in shared]))


def test_pairs_have_the_values_worked_out_by_hand() -> None:
    """Top two: A {L0H0, L0H1}, B {L0H0, L1H1}, C {L1H1, L1H0}; of six sets of two heads one shares both, four one."""
    first, second, third = pairwise_overlap(["a", "b", "c"], [A, B, C], [ranked(A), ranked(B), ranked(C)], 2)
    assert [(pair.first, pair.second, pair.shared) for pair in (first, second, third)] == [
        ("a", "b", 1), ("a", "c", 0), ("b", "c", 1),
    ]  # fmt: skip
    assert [pair.jaccard for pair in (first, second, third)] == [pytest.approx(1 / 3), 0.0, pytest.approx(1 / 3)]
    assert [pair.p_value for pair in (first, second, third)] == [pytest.approx(5 / 6), 1.0, pytest.approx(5 / 6)]
    assert [pair.p_corrected for pair in (first, second, third)] == [1.0, 1.0, 1.0]
    assert first.weighted_jaccard == pytest.approx((0.9 + 0.0 + 0.1 + 0.0) / (1.0 + 0.8 + 0.2 + 0.6))
    assert first.cosine == pytest.approx((0.9 + 0.02) / np.sqrt((1 + 0.64 + 0.01) * (0.81 + 0.04 + 0.36)))
    # Ranks of A: 4 3 2 1, of B: 4 1 2 3; differences 0 2 0 -2, so 1 - 6 * 8 / (4 * 15).
    assert first.spearman == pytest.approx(0.2)
    matrix = as_matrix(["a", "b", "c"], [first, second, third], "shared")
    assert matrix.tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_two_alphas_of_zeros_are_alike_and_have_no_angle() -> None:
    zeros = np.zeros((2, 2))
    assert weighted_jaccard(zeros, zeros) == 1.0
    assert weighted_jaccard(zeros, A) == 0.0
    assert cosine(zeros, A) == 0.0
    assert np.isnan(spearman(zeros, A))


def test_similar_tasks_are_merged_first_and_stand_side_by_side() -> None:
    """Distances 0.1 between the first and the third, 0.8 and 0.6 to the second: 0.1, then their mean 0.7."""
    similarity = np.array([[1.0, 0.2, 0.9], [0.2, 1.0, 0.4], [0.9, 0.4, 1.0]])
    found = cluster(similarity)
    assert sorted(found.merges[0][:2].tolist()) == [0, 2]
    assert found.merges[0][2:].tolist() == [pytest.approx(0.1), 2]
    assert sorted(found.merges[1][:2].tolist()) == [1, 3]
    assert found.merges[1][2] == pytest.approx(0.7)
    assert found.order in ((0, 2, 1), (1, 2, 0)), "the third is more like the second than the first is"


@pytest.mark.parametrize(
    ("similarity", "wrong"),
    [
        (np.ones((2, 3)), "must be"),
        (np.ones((1, 1)), "two or more"),
        (np.array([[1, 0.2], [0.3, 1]]), "not the same both ways"),
        (np.array([[1, np.nan], [np.nan, 1]]), "not finite"),
    ],
)
def test_what_is_no_similarity_is_not_clustered(similarity: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        cluster(similarity)


def test_one_task_two_models_or_too_many_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer than two tasks"):
        pairwise_overlap(["a"], [A], [ranked(A)], 1)
    with pytest.raises(ValueError, match="different models"):
        pairwise_overlap(["a", "b"], [A, np.zeros((3, 2))], [ranked(A), ranked(A)], 1)
    with pytest.raises(ValueError, match="Cannot draw 5 heads of 4"):
        pairwise_overlap(["a", "b"], [A, B], [ranked(A), ranked(B)], 5)


def test_the_shape_of_alpha_counts_both_ends() -> None:
    found = alpha_shape(np.array([[0.05, 0.1, 0.95], [0.9, 0.91, 0.5]]))
    assert (found.near_zero, found.near_one) == (pytest.approx(1 / 6), pytest.approx(2 / 6))
    assert found.near_binary == pytest.approx(0.5)
    assert found.by_layer == (pytest.approx(1.1 / 3), pytest.approx(2.31 / 3))
    assert found.mean == pytest.approx(3.41 / 6)


def test_stability_is_the_mean_over_the_pairs_of_seeds() -> None:
    found = stability([A, B, C], [ranked(A), ranked(B), ranked(C)], 2)
    assert found.n_seeds == 3
    assert found.jaccard == pytest.approx((1 / 3 + 0 + 1 / 3) / 3)
    assert found.chance == pytest.approx((1 * 1 + 4 * (1 / 3) + 1 * 0) / 6)
    # Ranks A 4 3 2 1, B 4 1 2 3, C 1 2 3 4: 0.2, -1, and 1 - 6 * (9 + 1 + 1 + 1) / 60.
    assert found.spearman == pytest.approx((0.2 - 1 - 0.2) / 3)
    with pytest.raises(ValueError, match="from one seed"):
        stability([A], [ranked(A)], 2)


def test_overlap_and_transfer_correlate_as_tasks_do_not_as_pairs() -> None:
    chooser = np.random.default_rng(0)
    similarity = chooser.random((6, 6))
    similarity += similarity.T
    same = transfer_correlation(similarity, np.exp(similarity))
    assert (round(same.value, 12), same.n_pairs) == (1.0, 30), "the diagonal does not count"
    # Of the 720 relabellings of six tasks only the one that changes nothing gives 1, so 2,000 draws hold about 3.
    assert 1 / 2001 <= same.p_value < 0.01
    assert transfer_correlation(similarity, -similarity).value == pytest.approx(-1)
    assert transfer_correlation(similarity, -similarity).p_value < 0.01, "two-sided"
    assert transfer_correlation(similarity, chooser.random((6, 6))).p_value > 0.05
    assert transfer_correlation(similarity, similarity, seed=1) == transfer_correlation(similarity, similarity, seed=1)


def test_pairs_without_a_transfer_are_left_out() -> None:
    similarity = np.array([[1.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.0]])
    transfer = similarity.copy()
    transfer[:, 0] = np.nan
    found = transfer_correlation(similarity, transfer)
    assert (round(found.value, 12), found.n_pairs) == (1.0, 4)
    nothing = transfer_correlation(similarity, np.full((3, 3), np.nan))
    assert nothing.n_pairs == 0
    assert np.isnan([nothing.value, nothing.p_value]).all()
    constant = transfer_correlation(np.ones((3, 3)), transfer)
    assert np.isnan([constant.value, constant.p_value]).all()
