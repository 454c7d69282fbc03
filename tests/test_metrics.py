"""Text metrics against cases worked out by hand."""

import pytest

from site_interp.metrics import METRICS, choice_match, prefix_match, processed, strict_match


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Paris\nQ: Spain", "paris"),
        ("Paris (France)", "paris"),
        ("a\n(b", "a"),
        ("St. Lucia", "saint lucia"),
        ("st. Lucia", "st. lucia"),
        ("\nParis", ""),
        ("(A)", ""),
        ("", ""),
    ],
)
def test_processed_cuts_at_the_newline_then_at_the_bracket_and_spells_out_saint(text: str, expected: str) -> None:
    assert processed(text, case_sensitive=False) == expected


def test_processed_keeps_case_on_request() -> None:
    assert processed(" St. Paul ", case_sensitive=True) == "Saint Paul"


@pytest.mark.parametrize(
    ("output", "answers", "expected"),
    [
        (" Rome, the capital", ["Rome"], 1.0),
        (" rome", ["Rome"], 1.0),
        (" Rom", ["Rome"], 0.0),
        (" The city of Rome", ["Rome"], 0.0),
        (" Sail", ["S"], 1.0),
        (" big", ["large", "big"], 1.0),
        (" small", ["large", "big"], 0.0),
        (" Saint Kitts", ["St. Kitts"], 1.0),
        (" Paris", ["Paris (France)"], 1.0),
        ("\nRome", ["Rome"], 0.0),
        ("", ["Rome"], 0.0),
    ],
)
def test_prefix_match_is_one_exactly_when_the_output_begins_with_an_answer(
    output: str, answers: list[str], expected: float
) -> None:
    assert prefix_match(output, answers, case_sensitive=False) == expected


def test_an_answer_that_processes_to_nothing_is_never_a_prefix_match() -> None:
    assert prefix_match("(A)", ["(A)"], case_sensitive=False) == 0.0
    assert prefix_match("", ["", " "], case_sensitive=False) == 0.0
    assert prefix_match("(A) yes", ["(A)", ""], case_sensitive=True) == 0.0


def test_an_empty_answer_does_not_hide_a_right_one() -> None:
    assert prefix_match("yes", ["", "yes"], case_sensitive=False) == 1.0
    assert strict_match("yes", ["", "yes"], case_sensitive=False) == 1.0


@pytest.mark.parametrize("match", [prefix_match, strict_match])
def test_case_counts_only_for_case_sensitive_tasks(match) -> None:  # type: ignore[no-untyped-def]
    assert match("rome", ["Rome"], False) == 1.0
    assert match("rome", ["Rome"], True) == 0.0
    assert match("Rome", ["Rome"], True) == 1.0


@pytest.mark.parametrize(
    ("output", "answers", "expected"),
    [
        (" Rome.\nQ: Spain", ["Rome"], 1.0),
        (' "Rome."', ["Rome"], 1.0),
        (" Rome!?", ["Rome"], 1.0),
        (" 'Rome' ", ["Rome."], 1.0),
        (" Rome, Italy", ["Rome"], 0.0),
        (" Romeo", ["Rome"], 0.0),
        (" (A).", ["(A)"], 1.0),
        (" Rome (Italy)", ["Rome"], 0.0),
        (" U.S.", ["U.S."], 1.0),
        (" .5", ["5"], 0.0),
        (" ?", ["?"], 1.0),
        (" ?", ["!"], 0.0),
        ("", [""], 0.0),
        (" big", ["large", "big"], 1.0),
        (" Saint Lucia", ["St. Lucia"], 0.0),
    ],
)
def test_strict_match_is_equality_of_first_lines_without_quotes_and_closing_punctuation(
    output: str, answers: list[str], expected: float
) -> None:
    assert strict_match(output, answers, case_sensitive=False) == expected


def test_metric_names_are_the_four_stored_ones() -> None:
    assert METRICS == ("first_token", "prefix_match", "strict_match", "answer_log_prob", "choice_match")


@pytest.mark.parametrize(
    ("log_probs", "answers", "expected"),
    [
        ({"Yes": -3.0, "No": -1.0}, ["No"], 1.0),
        ({"Yes": -3.0, "No": -1.0}, ["Yes"], 0.0),
        ({"Yes": -1.0, "No": -1.0}, ["No"], 0.0),
        ({"A": -3.0, "B": -1.0, "C": -2.0}, ["C", "B"], 1.0),
        ({"A": -3.0, "B": -3.0, "C": -4.0}, ["A", "B"], 1.0),
        ({"A": -3.0, "B": -1.0}, ["none of them"], 0.0),
        ({}, ["A"], 0.0),
    ],
)
def test_a_choice_is_right_when_a_right_option_is_likelier_than_every_wrong_one(
    log_probs: dict[str, float], answers: list[str], expected: float
) -> None:
    assert choice_match(log_probs, answers) == expected
