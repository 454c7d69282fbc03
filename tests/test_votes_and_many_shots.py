"""Many-shot prompts and the vote of neighbours: what they show, count and answer."""

from dataclasses import replace
from typing import Any

import pytest
from upper_fixtures import word_task

from site_interp.baselines import KNN, TRIGRAMS, Fitted, FixedAnswers, ManyShotICL, Similarity
from site_interp.errors import UserError
from site_interp.evaluation import evaluate
from site_interp.tasks import Example, Labelled, Task


def test_many_shots_show_the_same_demonstrations_to_every_query_and_no_more_tokens_than_allowed(model: Any) -> None:
    task, labelled = word_task(), Labelled(word_task())
    fitted = ManyShotICL(60).fit(model, labelled, 0)
    first, second = fitted.prompts(["aa", "ab ac"])
    shown = first.removesuffix("Q: aa\nA:")
    assert second == f"{shown}Q: ab ac\nA:"
    n_shown = shown.count("A:")
    assert 2 <= n_shown < len(task.train)
    assert 30 < len(model.token_ids(shown)) <= 60
    assert fitted.n_labels == labelled.n_used == n_shown + 1, "the one that did not fit was looked at"
    assert isinstance(fitted, Fitted)


def test_many_shots_differ_by_seed_and_take_all_examples_where_they_fit(llama: Any) -> None:
    task = word_task(n_train=5)
    one, other = (ManyShotICL(60).fit(llama, Labelled(word_task()), seed).shown for seed in (0, 1))
    assert one != other
    fitted = ManyShotICL(5000).fit(llama, Labelled(task), 0)
    assert sorted(e.input for e in fitted.shown) == sorted(e.input for e in task.train)
    assert fitted.n_labels == 5


def test_many_shots_are_scored_like_any_method_and_refused_where_nothing_fits(llama: Any) -> None:
    (row,) = evaluate(llama, word_task(), [ManyShotICL(80)], n_test=4).rows
    assert len(row.scores["answer_log_prob"]) == 4
    assert 40 < row.n_prompt_tokens < 100
    with pytest.raises(UserError, match="in 3 tokens: not one of its 24"):
        ManyShotICL(3).fit(llama, Labelled(word_task()), 0)


def task_of(*pairs: tuple[str, str]) -> Task:
    examples = tuple(Example(text, (answer,)) for text, answer in pairs)
    return Task("file/votes", examples, (), examples[:1])


@pytest.mark.parametrize(("k", "answer"), [(1, "feline"), (2, "feline"), (3, "pet"), (9, "pet")])
def test_neighbours_vote_and_the_nearest_decides_among_equals(llama: Any, k: int, answer: str) -> None:
    task = task_of(("dogs", "pet"), ("catsup", "pet"), ("cats", "feline"), ("cast", "pet"))
    fitted = KNN(k).fit(llama, Labelled(task), 0)
    assert isinstance(fitted, FixedAnswers)
    assert fitted.answer("Cats") == answer
    assert (fitted.n_labels, fitted.n_parameters) == (4, 0)


def test_the_similarity_is_a_setting(llama: Any) -> None:
    length = Similarity("length", lambda texts: lambda text: [-abs(len(text) - len(other)) for other in texts])
    task = task_of(("aaaa", "four"), ("b", "one"), ("cc", "two"))
    method = KNN(1, length)
    fitted = method.fit(llama, Labelled(task), 0)
    assert [fitted.answer(text) for text in ("x", "xy", "wxyz", "")] == ["one", "two", "four", "one"]
    assert method.variant() == "k=1,similarity=length"
    assert KNN().variant() == ""
    assert TRIGRAMS.against(["abc", "xyz"])("abc") == [pytest.approx(1), 0]


def test_a_vote_without_neighbours_is_refused(llama: Any) -> None:
    with pytest.raises(UserError, match="no training examples"):
        KNN().fit(llama, Labelled(replace(task_of(("a", "b")), train=())), 0)
    with pytest.raises(UserError, match="k 0"):
        KNN(0)
