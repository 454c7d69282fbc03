"""What prompts look like, worked out by hand, and what a seeded draw may and may not depend on."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def labelled(task: Any) -> Any:
    from site_interp.tasks import Labelled

    return Labelled(task)


def shown_inputs(prompt: str) -> list[str]:
    """Inputs of a QA prompt's demonstrations, then its query."""
    return [block.split("\nA:")[0].removeprefix("Q: ") for block in prompt.split("\n\n")]


def test_the_qa_template_writes_question_and_answer_lines() -> None:
    from site_interp.prompts import QA
    from site_interp.tasks import Example

    shown = [Example("hot", ("cold", "icy")), Example("2 + 3", ("5",))]
    assert QA.zero_shot("early") == "Q: early\nA:"
    assert QA.few_shot(shown, "early") == "Q: hot\nA: cold\n\nQ: 2 + 3\nA:5\n\nQ: early\nA:"
    assert QA.few_shot([], "early") == "Q: early\nA:"


def test_the_chat_template_writes_turns() -> None:
    from site_interp.prompts import CHAT
    from site_interp.tasks import Example

    assert CHAT.few_shot([Example("hot", ("cold",))], "early") == (
        "<|im_start|>user\nhot<|im_end|>\n<|im_start|>assistant\ncold<|im_end|>\n"
        "<|im_start|>user\nearly<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("answer", "written"),
    [("5", "5"), ("1984", "1984"), ("cold", " cold"), ("3.5", " 3.5"), ("-2", " -2"), ("5 apples", " 5 apples")],
)
def test_only_answers_of_nothing_but_digits_go_without_the_prefix(answer: str, written: str) -> None:
    from site_interp.prompts import QA

    assert QA.answer(answer) == written


def test_a_template_survives_a_file(tmp_path: Path) -> None:
    from site_interp.prompts import Template, load_template

    template = Template("mine", "In: ", "\nOut:", " ", "\n---\n", "\n")
    path = tmp_path / "mine.json"
    path.write_text("\ufeff" + json.dumps(template.to_dict()), encoding="utf-8")
    assert load_template(str(path)) == template
    path.write_text(json.dumps({"answer_cue": " ->"}))
    assert load_template(str(path)) == Template(name="mine", answer_cue=" ->")


def test_the_named_templates_are_found(tmp_path: Path) -> None:
    from site_interp.errors import UserError
    from site_interp.prompts import CHAT, QA, load_template

    assert (load_template("qa"), load_template("chat")) == (QA, CHAT)
    with pytest.raises(UserError, match="neither 'qa' nor 'chat' nor a JSON file"):
        load_template(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{not json", "not valid JSON"),
        ('["qa"]', "list"),
        ('{"answer_que": "x"}', "answer_que"),
        ('{"answer_cue": 3}', "must be text"),
        ('{"answer_cue": ""}', "must not be empty"),
        ('{"answer_cue": "A: "}', "nor end in a space"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    from site_interp.errors import UserError
    from site_interp.prompts import load_template

    path = tmp_path / "wrong.json"
    path.write_text(content)
    with pytest.raises(UserError, match=reason):
        load_template(str(path))


def test_a_template_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    from site_interp.errors import UserError
    from site_interp.prompts import load_template

    path = tmp_path / "latin.json"
    path.write_bytes('{"input_prefix": "Fråga: "}'.encode("latin-1"))
    with pytest.raises(UserError, match="not valid JSON"):
        load_template(str(path))


def test_embedding_prompts_show_distinct_training_examples_with_their_answers(labelled: Any, task: Any) -> None:
    from site_interp.prompts import QA, draw_embedding_prompts

    prompts = draw_embedding_prompts(labelled, QA, n_prompts=40, n_shots=5, seed=0)
    answers = {example.input: example.answer for example in task.train}
    assert len(prompts) == 40
    assert len(set(prompts)) > 30
    used = set()
    for prompt in prompts:
        *shown, query = shown_inputs(prompt)
        assert len({*shown, query}) == 6
        assert prompt == "".join(f"Q: {text}\nA: {answers[text]}\n\n" for text in shown) + f"Q: {query}\nA:"
        used |= set(shown)
    assert labelled.n_used == len(used)


def test_icl_prompts_never_show_the_query_even_where_training_has_it(labelled: Any, task: Any) -> None:
    from site_interp.prompts import QA, draw_icl_prompts

    inputs = [example.input for example in task.train]
    for seed in range(5):
        for text, prompt in zip(inputs, draw_icl_prompts(labelled, QA, inputs, n_shots=20, seed=seed), strict=True):
            *shown, query = shown_inputs(prompt)
            assert query == text
            assert text not in shown
            assert len(set(shown)) == 20


def test_each_query_has_demonstrations_of_its_own(labelled: Any) -> None:
    from site_interp.prompts import QA, draw_icl_prompts

    prompts = draw_icl_prompts(labelled, QA, [f"query {n}" for n in range(8)], n_shots=4, seed=0)
    assert len({tuple(shown_inputs(prompt)[:-1]) for prompt in prompts}) == 8


@given(st.permutations([f"query {n}" for n in range(6)]), st.integers(1, 6), st.integers(0, 3))
def test_an_icl_prompt_does_not_depend_on_what_else_is_asked(order: list[str], n: int, seed: int) -> None:
    from site_interp.prompts import QA, draw_icl_prompts
    from site_interp.tasks import Example, Labelled, Task

    task = Task("file/t", tuple(Example(f"in {n}", (f"out {n}",)) for n in range(9)), (), ())
    alone = {text: draw_icl_prompts(Labelled(task), QA, [text], n_shots=3, seed=seed)[0] for text in order}
    assert draw_icl_prompts(Labelled(task), QA, order[:n], n_shots=3, seed=seed) == tuple(
        alone[text] for text in order[:n]
    )


def test_draws_depend_on_the_seed_and_on_the_task(task: Any) -> None:
    from dataclasses import replace

    from site_interp.prompts import QA, draw_embedding_prompts, draw_icl_prompts
    from site_interp.tasks import Labelled

    def drawn(of: Any, seed: int) -> list[Any]:
        labelled = Labelled(of)
        return [
            draw_embedding_prompts(labelled, QA, n_prompts=2, n_shots=3, seed=seed),
            draw_icl_prompts(labelled, QA, ["aa bb"], n_shots=3, seed=seed),
        ]

    assert drawn(task, 0) == drawn(task, 0)
    for other in (drawn(task, 1), drawn(replace(task, name="file/other"), 0)):
        assert all(ours != theirs for ours, theirs in zip(drawn(task, 0), other, strict=True))


@pytest.mark.parametrize("draw", ["draw_embedding_prompts", "draw_icl_prompts"])
def test_shots_that_the_training_split_cannot_give_are_refused(labelled: Any, draw: str) -> None:
    from site_interp import prompts
    from site_interp.errors import UserError

    def drawn(n_shots: int) -> Any:
        asked: dict[str, Any] = {"n_prompts": 1} if draw == "draw_embedding_prompts" else {"inputs": ["aa"]}
        return getattr(prompts, draw)(labelled, prompts.QA, n_shots=n_shots, seed=0, **asked)

    assert len(shown_inputs(drawn(23)[0])) == 24
    with pytest.raises(UserError, match="needs 25 distinct"):
        drawn(24)
    with pytest.raises(UserError, match="-1 demonstrations"):
        drawn(-1)
