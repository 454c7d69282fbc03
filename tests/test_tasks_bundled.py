"""The bundled suite: large enough, free of repeats, and made the same way every time."""

import pytest

from site_interp.tasks import Example, Task, load_suite, load_task
from site_interp.tasks.generators import capitalize, choose_first_of_3, next_item, number_word, roman, sentiment

TASKS = load_suite("demo")

LEAST_INPUTS = {
    "bundled/antonym": 300,
    "bundled/capitalize": 300,
    "bundled/choose_first_of_3": 300,
    "bundled/country-capital": 180,
    "bundled/next_item": 300,
    "bundled/present-past": 250,
    "bundled/sentiment": 400,
    "bundled/singular-plural": 300,
}


def examples(task: Task) -> tuple[Example, ...]:
    return task.train + task.valid + task.test


def answers(name: str) -> dict[str, tuple[str, ...]]:
    return {e.input: e.answers for e in examples(load_task(name))}


def test_the_demo_suite_has_the_tasks_it_names() -> None:
    assert {task.name for task in TASKS} == set(LEAST_INPUTS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_bundled_task_is_large_enough_and_repeats_no_input(task: Task) -> None:
    inputs = [e.input for e in examples(task)]
    assert len(inputs) >= LEAST_INPUTS[task.name]
    assert len(task.test) >= 50
    assert len(set(inputs)) == len(inputs)
    assert len(task.train) == pytest.approx(0.6 * len(inputs), abs=1)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_bundled_texts_are_tidy_and_the_input_is_never_its_own_answer(task: Task) -> None:
    for e in examples(task):
        assert e.input == e.input.strip()
        assert e.input not in e.answers
        assert all(answer and answer == answer.strip() for answer in e.answers)
        assert task.name == "bundled/country-capital" or all(ord(c) < 128 for c in e.input + "".join(e.answers))


def test_only_capitalize_is_case_sensitive() -> None:
    assert [task.name for task in TASKS if task.case_sensitive] == ["bundled/capitalize"]


@pytest.mark.parametrize("generate", [capitalize, choose_first_of_3, next_item, sentiment])
def test_a_generator_makes_the_same_distinct_rows_every_time(generate: object) -> None:
    assert callable(generate)
    rows = generate()
    assert rows == generate()
    assert len({text for text, _ in rows}) == len(rows)


def test_capitalize_changes_the_first_letter_alone() -> None:
    for text, (answer,) in answers("capitalize").items():
        assert text.islower()
        assert answer == text[0].upper() + text[1:]


def test_choose_first_of_3_answers_the_first_of_three_different_words() -> None:
    for text, (answer,) in answers("choose_first_of_3").items():
        words = text.split(", ")
        assert len(set(words)) == 3
        assert answer == words[0]


@pytest.mark.parametrize(
    ("item", "after"),
    [
        ("monday", "tuesday"),
        ("sunday", "monday"),
        ("sat", "sun"),
        ("december", "january"),
        ("7", "8"),
        ("99", "100"),
        ("c", "d"),
        ("seven", "eight"),
        ("nineteen", "twenty"),
        ("twenty-nine", "thirty"),
        ("VIII", "IX"),
        ("XIX", "XX"),
        ("second", "third"),
        ("10th", "11th"),
        ("21st", "22nd"),
    ],
)
def test_next_item_is_the_one_after(item: str, after: str) -> None:
    assert answers("next_item")[item] == (after,)


def test_next_item_leaves_out_what_could_be_a_letter_or_a_numeral() -> None:
    assert not {"I", "V", "X", "L", "z"} & answers("next_item").keys()
    assert [number_word(n) for n in (11, 20, 99)] == ["eleven", "twenty", "ninety-nine"]
    assert [roman(n) for n in (14, 39, 49, 50, 88)] == ["XIV", "XXXIX", "XLIX", "L", "LXXXVIII"]


def test_sentiment_is_half_positive_and_half_negative_and_varied() -> None:
    labels = [answer for _, (answer,) in sentiment()]
    assert labels.count("positive") == labels.count("negative") == len(labels) // 2
    words = {word.strip(".,;:") for text, _ in sentiment() for word in text.lower().split()}
    assert len(words) > 300


def test_no_antonym_pair_stands_the_other_way_round_too() -> None:
    opposites = answers("antonym")
    assert [text for text, found in opposites.items() if any(text in opposites.get(word, ()) for word in found)] == []


def test_words_with_several_right_answers_have_them_all() -> None:
    assert answers("present-past")["dream"] == ("dreamed", "dreamt")
    assert answers("antonym")["right"] == ("wrong", "left")
    assert answers("singular-plural")["cactus"] == ("cacti", "cactuses")
    assert answers("country-capital")["Bolivia"] == ("Sucre", "La Paz")
