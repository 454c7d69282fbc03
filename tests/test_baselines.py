"""What each method looks at, what it writes about itself, and that it leaves the model alone."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from tiny_models import WORDS
from upper_fixtures import QUICK, model_state, quick_site, word_task

from site_interp.adapter import Adapter
from site_interp.baselines import DEFAULT, ICL, PRESETS, SITE, Echo, Fitted, FixedAnswers, Majority, Method, ZeroShot
from site_interp.errors import UserError
from site_interp.evaluation import evaluate
from site_interp.fit_plan import FitRun
from site_interp.model import Model
from site_interp.prompts import CHAT, QA, Template, draw_embedding_prompts
from site_interp.selection import FitSettings
from site_interp.tasks import Example, Labelled, Task

METHODS: tuple[Method, ...] = (ZeroShot(), ICL(2), quick_site(), Echo(), Majority())


class Watched(Labelled):
    """Remembers by itself whose answers were handed out."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.handed_out: list[Example] = []

    def train(self, indices: Sequence[int]) -> tuple[Example, ...]:
        examples = super().train(indices)
        self.handed_out += examples
        return examples

    def valid(self, indices: Sequence[int]) -> tuple[Example, ...]:
        examples = super().valid(indices)
        self.handed_out += examples
        return examples


@pytest.mark.parametrize("method", [ZeroShot(), Echo()], ids=lambda method: method.name)
def test_zero_shot_and_echo_look_at_no_answer(llama: Model, method: Method) -> None:
    labelled = Watched(word_task())
    fitted = method.fit(llama, labelled, 0)
    asked = [fitted.answer("aa")] if isinstance(fitted, FixedAnswers) else fitted.prompts(["aa"])
    assert list(asked) == ["aa" if method.name == "echo" else "Q: aa\nA:"]
    assert (labelled.handed_out, fitted.n_labels, fitted.n_parameters) == ([], 0, 0)


def shown_in(prompts: Sequence[str]) -> list[list[str]]:
    """The demonstrated inputs of each prompt, read from its text."""
    return [re.findall(r"Q: (.*)\nA: .*\n\n", prompt) for prompt in prompts]


def test_icl_counts_the_distinct_examples_it_showed(llama: Model) -> None:
    task = word_task()
    labelled = Labelled(task)
    fitted = ICL(3).fit(llama, labelled, 7)
    assert fitted.n_labels == 0
    assert isinstance(fitted, Fitted)
    shown = shown_in(fitted.prompts([example.input for example in task.test]))
    assert [len(set(inputs)) for inputs in shown] == [3] * len(task.test)
    assert fitted.n_labels == labelled.n_used == len({text for inputs in shown for text in inputs})


def test_icl_never_shows_the_query_and_draws_anew_for_every_query_and_seed(llama: Model) -> None:
    task = word_task(n_train=6)
    queries = [example.input for example in task.train]
    shown, again, other = (
        shown_in(ICL(4).fit(llama, Labelled(task), seed).prompts(queries)) for seed in (0, 0, 1)  # type: ignore[union-attr]
    )  # fmt: skip
    assert all(query not in inputs and len(inputs) == 4 for query, inputs in zip(queries, shown, strict=True))
    assert shown == again != other
    strangers = ICL(4).fit(llama, Labelled(task), 0)
    assert isinstance(strangers, Fitted)
    assert len({tuple(inputs) for inputs in shown_in(strangers.prompts(["aa", "ab", "ac", "ad"]))}) > 1


def test_icl_without_demonstrations_is_zero_shot(llama: Model) -> None:
    labelled = Labelled(word_task())
    fitted = ICL(0).fit(llama, labelled, 0)
    assert isinstance(fitted, Fitted)
    assert fitted.prompts(["aa"]) == ("Q: aa\nA:",)
    assert labelled.n_used == 0


def test_site_counts_every_distinct_label_it_saw_those_of_validation_included(llama: Model) -> None:
    labelled = Watched(word_task())
    adapter = quick_site().fit(llama, labelled, 0)
    distinct = {example.input for example in labelled.handed_out}
    demonstrated = draw_embedding_prompts(Labelled(word_task()), QA, n_prompts=3, n_shots=2, seed=0)
    assert {text for inputs in shown_in(demonstrated) for text in inputs} < distinct
    assert len(distinct) < 30
    assert adapter.n_labels == len(distinct)
    assert adapter.embedding.n_labels < adapter.selection.n_labels == len(distinct)


def test_the_query_of_an_embedding_prompt_costs_no_label(llama: Model) -> None:
    labelled = Labelled(word_task())
    embedding = quick_site(n_prompts=1, n_shots=2).embed(llama, labelled, 0)
    assert labelled.n_used == embedding.n_labels == 2


def test_majority_counts_all_training_answers_and_no_other(llama: Model) -> None:
    labelled = Watched(word_task(n_train=11))
    fitted = Majority().fit(llama, labelled, 0)
    assert len(labelled.handed_out) == fitted.n_labels == labelled.n_used == 11


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([("ab",), ("aa",), ("aa",)], "aa"),
        ([("ab",), ("aa",), ("aa",), ("ab",), ("ac",)], "ab"),
        ([("ab", "aa"), ("aa",), ("ac", "aa"), ("ac",)], "ac"),
    ],
    ids=["most frequent", "first in order among equals", "first answers count"],
)
def test_majority_gives_the_most_frequent_first_answer_whatever_the_input(
    llama: Model, answers: list[tuple[str, ...]], expected: str
) -> None:
    train = tuple(Example(WORDS[place], given) for place, given in enumerate(answers))
    fitted = Majority().fit(llama, Labelled(Task("file/m", train, (), ())), 0)
    assert isinstance(fitted, FixedAnswers)
    assert [fitted.answer("aa"), fitted.answer("anything")] == [expected, expected]


def test_a_fit_of_site_is_its_two_halves_and_follows_its_seed(llama: Model) -> None:
    method, task = quick_site(), word_task()
    whole = method.fit(llama, Labelled(task), 3)
    labelled = Labelled(task)
    embedding = method.embed(llama, labelled, 3)
    (halves,) = method.fit_prepared(llama, [FitRun(embedding, labelled, 3)])
    other = method.fit(llama, Labelled(task), 4)

    def tensors(adapter: Adapter) -> list[torch.Tensor]:
        return [adapter.embedding.mean, adapter.embedding.std, adapter.selection.logits]

    assert all(torch.equal(a, b) for a, b in zip(tensors(whole), tensors(halves), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(tensors(whole), tensors(other), strict=True))
    assert (whole.n_labels, whole.selection.seed, whole.embedding.seed) == (halves.n_labels, 3, 3)


def test_site_selects_for_several_runs_in_their_order(llama: Model) -> None:
    method, runs = quick_site(), []
    for name, seed in (("file/one", 0), ("file/two", 0), ("file/one", 1)):
        labelled = Labelled(word_task(name))
        runs.append(FitRun(method.embed(llama, labelled, seed), labelled, seed))
    steps: list[int] = []
    adapters = method.fit_prepared(llama, runs, steps.append)
    found = [(adapter.embedding.task, adapter.selection.seed) for adapter in adapters]
    assert found == [("file/one", 0), ("file/two", 0), ("file/one", 1)]
    assert sum(steps) == 3 * QUICK.n_steps
    for run, adapter in zip(runs, adapters, strict=True):
        assert torch.equal(adapter.embedding.mean, run.embedding.mean)


def test_the_presets_are_the_published_settings_and_the_default() -> None:
    assert PRESETS["paper"] == FitSettings(400, 1, 0.2, 50, 100, "best")
    assert PRESETS["default"] == DEFAULT == SITE().fitting
    assert (SITE().n_prompts, SITE().n_shots, ICL().n_shots) == (50, 10, 10)


def test_the_defaults_have_no_variant() -> None:
    assert [method().variant() for method in (ZeroShot, ICL, SITE, Echo, Majority)] == [""] * 5


@pytest.mark.parametrize(
    ("method", "variant"),
    [
        (ZeroShot(CHAT), "template=chat"),
        (Echo(CHAT), "template=chat"),
        (Majority(CHAT), "template=chat"),
        (ICL(5), "n_shots=5"),
        (ICL(5, CHAT), "n_shots=5,template=chat"),
        (SITE(n_prompts=5, template=CHAT), "n_prompts=5,template=chat"),
        (SITE(fitting=replace(DEFAULT, lr=0.1, checkpoint="last")), "checkpoint=last,lr=0.1"),
        (SITE(memory=1), ""),
    ],
    ids=str,
)
def test_a_variant_names_what_is_not_the_default_sorted(method: Method, variant: str) -> None:
    assert method.variant() == variant


def changed(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case Template():
            return replace(value, answer_cue="\nB:")
        case FitSettings():
            return replace(value, n_valid=7)
        case str():
            return "last"
        case _:
            return value + 1


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_settings_hold_every_field_that_changes_numbers_as_json(method: Any) -> None:
    if method.name == "site":  # two of its settings matter under others only
        method = replace(method, heads="top", target="mean")
    plain = json.loads(json.dumps(dict(method.settings())))
    words = {"heads": "hard", "target": "random", "share": 0.5, "donors": (word_task("file/donor"),)}
    for field in fields(method):
        before = getattr(method, field.name)
        other = replace(method, **{field.name: words[field.name] if field.name in words else changed(before)})
        assert (json.loads(json.dumps(dict(other.settings()))) != plain) == (field.name != "memory"), field.name


@pytest.mark.parametrize("name", [field.name for field in fields(FitSettings)])
def test_settings_of_site_hold_every_setting_of_the_fit(name: str) -> None:
    others = {"mixing": "add", "per": "layer", "loss": "answer"}
    other = replace(QUICK, **{name: others.get(name) or changed(getattr(QUICK, name))})
    assert quick_site(fitting=other).settings() != quick_site().settings()
    assert quick_site(fitting=other).variant() != quick_site().variant()


def test_a_template_of_the_same_name_but_another_text_is_another_setting() -> None:
    assert ZeroShot(replace(QA, input_prefix="I: ")).settings() != ZeroShot().settings()


def test_every_method_leaves_the_model_as_it_was(model: Model) -> None:
    task = word_task(n_test=3)
    before = model_state(model)
    evaluate(model, task, METHODS)
    assert model_state(model) == before


def test_gradient_flags_of_the_model_are_given_back(llama: Model) -> None:
    parameters = list(llama.inner.parameters())
    flags = [parameter.requires_grad for parameter in parameters]
    try:
        for place, parameter in enumerate(parameters):
            parameter.requires_grad_(place % 2 == 0)
        before = model_state(llama)
        quick_site().fit(llama, Labelled(word_task()), 0)
        assert model_state(llama) == before
        assert {wanted for wanted, _ in before["gradients"].values()} == {True, False}
    finally:
        for parameter, flag in zip(parameters, flags, strict=True):
            parameter.requires_grad_(flag)


class BrokenError(Exception):
    """Raised in the middle of the work."""


@pytest.mark.parametrize("method", [ZeroShot(), ICL(2), quick_site()], ids=lambda method: method.name)
@pytest.mark.parametrize("n_forwards", [1, 2, 8])
def test_a_method_that_breaks_off_leaves_the_model_as_it_was(
    llama: Model, monkeypatch: pytest.MonkeyPatch, method: Method, n_forwards: int
) -> None:
    before, calls, real = model_state(llama), [0], Model.forward

    def breaking(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        calls[0] += 1
        if calls[0] == n_forwards:
            raise BrokenError
        return result

    monkeypatch.setattr(Model, "forward", breaking)
    with pytest.raises(BrokenError):
        evaluate(llama, word_task(), [method])
    monkeypatch.undo()
    assert model_state(llama) == before


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda model, labelled: ICL(40).fit(model, labelled, 0).prompts(["aa"]),
            "needs 40 distinct training examples",
        ),
        (lambda model, labelled: quick_site(n_shots=24).fit(model, labelled, 0), "needs 25 distinct training examples"),
    ],
    ids=["icl", "site"],
)
def test_too_few_examples_are_refused_with_the_number_needed(
    llama: Model, make: Callable[[Model, Labelled], object], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        make(llama, Labelled(word_task()))
