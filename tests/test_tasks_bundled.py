"""The bundled suite: large enough, free of repeats, balanced, right, and made the same way every time."""

import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable

import pytest

from site_interp.tasks import Example, Task, load_suite, load_task, suite_task_names
from site_interp.tasks.generators import number_word, roman, sentiment

TASKS = load_suite("bundled")
DEMO = {
    "antonym", "capitalize", "choose_first_of_3", "country-capital", "next_item", "present-past", "sentiment",
    "singular-plural",
}  # fmt: skip
LISTS = {
    *(f"choose_{place}_of_{n}" for place in ("first", "middle", "last") for n in (3, 5)),
    *(f"alphabetically_{end}_{n}" for end in ("first", "last") for n in (3, 5)),
    *(f"{kinds}_{n}" for kinds in ("adjective_v_verb", "verb_v_adjective", "animal_v_object") for n in (3, 5)),
    *(f"{kinds}_{n}" for kinds in ("color_v_animal", "fruit_v_animal") for n in (3, 5)),
}
UPPER_SHOWN = {"lowercase", "lowercase_first_letter", "lowercase_last_letter"}
LETTERS = UPPER_SHOWN | {
    "capitalize", "uppercase", "capitalize_first_letter", "capitalize_second_letter", "capitalize_last_letter",
    "next_capital_letter",
}  # fmt: skip
FACTS = {
    "antonym": 300,
    "country-capital": 180,
    "country-currency": 180,
    "english-french": 300,
    "english-german": 300,
    "english-spanish": 300,
    "next_item": 300,
    "present-past": 250,
    "prev_item": 300,
    "sentiment": 400,
    "singular-plural": 300,
    "synonym": 250,
    "word_length": 500,
}
LEAST_INPUTS = FACTS | dict.fromkeys(LISTS, 600) | dict.fromkeys(LETTERS, 300)
NOT_ASCII = {"country-capital", "country-currency", "english-french", "english-german", "english-spanish"}
UPPER = dict(zip("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=True))
LOWER = {upper: lower for lower, upper in UPPER.items()}


def examples(task: Task) -> tuple[Example, ...]:
    return task.train + task.valid + task.test


def short(task: Task) -> str:
    return task.name.removeprefix("bundled/")


def answers(name: str) -> dict[str, tuple[str, ...]]:
    return {e.input: e.answers for e in examples(load_task(name))}


def test_the_bundled_suite_has_the_tasks_named_here_and_the_demo_suite_eight_of_them() -> None:
    assert {short(task) for task in TASKS} == set(LEAST_INPUTS)
    assert len(TASKS) == 42
    assert suite_task_names("demo") == tuple(f"bundled/{name}" for name in sorted(DEMO))


@pytest.mark.parametrize("task", TASKS, ids=short)
def test_a_bundled_task_is_large_enough_and_repeats_no_input_in_or_across_splits(task: Task) -> None:
    inputs = [e.input for e in examples(task)]
    assert len(inputs) >= LEAST_INPUTS[short(task)]
    assert len(task.test) >= 50
    assert len({text.casefold() for text in inputs}) == len(inputs)
    assert len(task.train) == pytest.approx(0.6 * len(inputs), abs=1)


@pytest.mark.parametrize("task", TASKS, ids=short)
def test_bundled_texts_are_tidy(task: Task) -> None:
    for e in examples(task):
        texts = (e.input, *e.answers)
        assert all(text and " ".join(text.split(" ")).split() == text.split(" ") for text in texts)
        assert all(unicodedata.is_normalized("NFC", text) and text.isprintable() for text in texts)
        assert len(set(e.answers)) == len(e.answers)
        assert short(task) in NOT_ASCII or "".join(texts).isascii()


@pytest.mark.parametrize("task", TASKS, ids=short)
def test_repeating_the_input_is_never_right_and_seldom_begins_with_an_answer(task: Task) -> None:
    key = str if task.case_sensitive else str.lower
    begins = [any(key(e.input).startswith(key(answer)) for answer in e.answers) for e in examples(task)]
    assert not any(key(e.input) == key(answer) for e in examples(task) for answer in e.answers)
    share = sum(begins) / len(begins)
    if short(task).startswith("choose_first"):
        assert share == 1.0
    elif short(task) in LISTS and not short(task).startswith("choose"):
        assert share == pytest.approx(1 / int(task.name[-1]), abs=0.01)
    else:
        assert share < 0.12


@pytest.mark.parametrize("task", TASKS, ids=short)
def test_no_answer_is_right_for_many_inputs(task: Task) -> None:
    _, most = Counter(e.answer for e in examples(task)).most_common(1)[0]
    bounds = {"sentiment": 0.5, "word_length": 0.25, "country-currency": 0.15} | dict.fromkeys(LETTERS, 0.2)
    assert most / len(examples(task)) <= bounds.get(short(task), 0.07)


def test_letter_case_counts_in_the_tasks_about_letters_and_in_no_other() -> None:
    assert {short(task) for task in TASKS if task.case_sensitive} == LETTERS


def test_the_suite_is_the_same_in_another_process_with_another_hash_seed() -> None:
    code = (
        "import json; from site_interp.tasks import load_suite; "
        "print(json.dumps({t.name: t.split_hash for t in load_suite('bundled')}))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {task.name: task.split_hash for task in TASKS}


LETTER_RULES: dict[str, Callable[[str], str]] = {
    "capitalize": lambda text: UPPER[text[0]] + text[1:],
    "uppercase": lambda text: "".join(UPPER[letter] for letter in text),
    "lowercase": lambda text: "".join(LOWER[letter] for letter in text),
    "capitalize_first_letter": lambda text: UPPER[text[0]],
    "capitalize_second_letter": lambda text: UPPER[text[1]],
    "capitalize_last_letter": lambda text: UPPER[text[-1]],
    "lowercase_first_letter": lambda text: LOWER[text[0]],
    "lowercase_last_letter": lambda text: LOWER[text[-1]],
    "next_capital_letter": lambda text: list(LOWER)[list(UPPER).index(text[0]) + 1],
    "word_length": lambda text: str(sum(1 for _ in text)),
}


@pytest.mark.parametrize("name", LETTER_RULES)
def test_letter_tasks_follow_their_rule_on_words_of_one_case(name: str) -> None:
    rows = answers(name)
    assert {text: answer for text, (answer,) in rows.items()} == {text: LETTER_RULES[name](text) for text in rows}
    assert all(set(text) <= set(LOWER if name in UPPER_SHOWN else UPPER) for text in rows)


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize(("place", "index"), [("first", 0), ("middle", None), ("last", -1)])
def test_a_choice_is_the_word_at_its_place_among_different_words(n: int, place: str, index: int | None) -> None:
    for text, (answer,) in answers(f"choose_{place}_of_{n}").items():
        words = text.split(", ")
        assert len(set(words)) == len(words) == n
        assert answer == words[n // 2 if index is None else index]


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize(("end", "extreme"), [("first", min), ("last", max)])
def test_alphabetical_answers_are_extreme_and_half_are_decided_after_the_first_letter(
    n: int, end: str, extreme: Callable[[list[str]], str]
) -> None:
    rows = {text: answer for text, (answer,) in answers(f"alphabetically_{end}_{n}").items()}
    for text, answer in rows.items():
        words = text.split(", ")
        assert len(set(words)) == len(words) == n
        assert answer == extreme(words)
    rivals = [sum(word[0] == answer[0] for word in text.split(", ")) > 1 for text, answer in rows.items()]
    assert sum(rivals) / len(rivals) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", sorted(name for name in LISTS if not name.startswith("choose")))
def test_the_answer_stands_equally_often_at_each_position_whatever_it_is(name: str) -> None:
    rows = {text: answer for text, (answer,) in answers(name).items()}
    n = int(name[-1])
    counts = Counter(text.split(", ").index(answer) for text, answer in rows.items())
    assert [counts[position] / len(rows) for position in range(n)] == pytest.approx([1 / n] * n, abs=0.01)


MEMBERS = {
    "adjective": {"happy", "tall", "polite", "wise"},
    "verb": {"bring", "arrive", "eat", "forget"},
    "animal": {"dog", "tiger", "frog", "eagle"},
    "object": {"lamp", "shirt", "pencil", "umbrella"},
    "color": {"red", "blue", "purple", "gray"},
    "fruit": {"apple", "banana", "cherry", "melon"},
}


@pytest.mark.parametrize("name", sorted(name for name in LISTS if "_v_" in name))
def test_the_answer_is_the_only_word_of_its_kind_in_the_list(name: str) -> None:
    kind, other = name[:-2].split("_v_")
    rows = {text: answer for text, (answer,) in answers(name).items()}
    others = {text: [word for word in text.split(", ") if word != answer] for text, answer in rows.items()}
    assert all(len(set(words)) == int(name[-1]) - 1 for words in others.values())
    found = set(rows.values())
    assert MEMBERS[kind] <= found
    assert found.isdisjoint(word for words in others.values() for word in words)
    assert not found & set().union(*(MEMBERS[k] for k in MEMBERS if k != kind))
    assert MEMBERS[other] <= {word for words in others.values() for word in words}


NEIGHBOURS = {
    "monday": "tuesday", "sunday": "monday", "sat": "sun", "december": "january", "7": "8", "99": "100", "c": "d",
    "seven": "eight", "nineteen": "twenty", "twenty-nine": "thirty", "VIII": "IX", "XIX": "XX", "second": "third",
    "10th": "11th", "21st": "22nd",
}  # fmt: skip


@pytest.mark.parametrize(("item", "after"), NEIGHBOURS.items())
def test_next_item_is_the_one_after_and_prev_item_the_one_before(item: str, after: str) -> None:
    assert answers("next_item")[item] == (after,)
    assert answers("prev_item")[after] == (item,)


def test_series_leave_out_what_could_be_a_letter_or_a_numeral() -> None:
    assert not {"I", "V", "X", "L", "z"} & answers("next_item").keys()
    assert not {"I", "V", "X", "L", "a", "1", "one", "first"} & answers("prev_item").keys()
    assert [number_word(n) for n in (11, 20, 99)] == ["eleven", "twenty", "ninety-nine"]
    assert [roman(n) for n in (14, 39, 49, 50, 88)] == ["XIV", "XXXIX", "XLIX", "L", "LXXXVIII"]


def test_sentiment_is_half_positive_and_half_negative_and_varied() -> None:
    labels = [answer for _, (answer,) in sentiment()]
    assert labels.count("positive") == labels.count("negative") == len(labels) // 2
    words = {word.strip(".,;:") for text, _ in sentiment() for word in text.lower().split()}
    assert len(words) > 300


@pytest.mark.parametrize("name", ["antonym", "synonym"])
def test_no_pair_of_words_stands_the_other_way_round_too(name: str) -> None:
    pairs = answers(name)
    assert [text for text, found in pairs.items() if any(text in pairs.get(word, ()) for word in found)] == []


SPOT_CHECKS = {
    "antonym": {"right": ("wrong", "left")},
    "country-capital": {"Bolivia": ("Sucre", "La Paz")},
    "country-currency": {"Japan": ("yen", "Japanese yen"), "Spain": ("euro",), "India": ("Indian rupee", "rupee")},
    "english-french": {"bread": ("pain",), "five": ("cinq",), "tree": ("arbre",), "river": ("rivière", "fleuve")},
    "english-german": {"bread": ("Brot",), "five": ("fünf",), "tree": ("Baum",), "street": ("Straße",)},
    "english-spanish": {"bread": ("pan",), "five": ("cinco",), "tree": ("árbol",), "bird": ("pájaro", "ave")},
    "present-past": {"dream": ("dreamed", "dreamt")},
    "singular-plural": {"cactus": ("cacti", "cactuses")},
    "synonym": {"couch": ("sofa", "settee"), "error": ("mistake",), "rock": ("stone",)},
}


@pytest.mark.parametrize("name", SPOT_CHECKS)
def test_well_known_facts_stand_with_all_their_answers(name: str) -> None:
    rows = answers(name)
    assert {text: rows[text] for text in SPOT_CHECKS[name]} == SPOT_CHECKS[name]
