"""Scores equal those of an oracle that runs whole forwards prompt by prompt, and nothing incidental changes them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from reference import Oracle, reference_ids, reference_logits
from tiny_models import WORDS
from upper_fixtures import fitted_adapter, quick_site, word_task

from site_interp import evaluation, scoring
from site_interp.adapter import Adapter
from site_interp.baselines import ICL, Echo, Fitted, FixedAnswers, Majority, ZeroShot
from site_interp.comparison import bootstrap_mean
from site_interp.embedding import embed_task
from site_interp.errors import NotFiniteError, UserError
from site_interp.evaluation import Evaluation, EvaluationTable, evaluate, evaluate_fitted
from site_interp.metrics import METRICS
from site_interp.model import Model
from site_interp.prefixes import encode_prompts
from site_interp.prompts import QA
from site_interp.scoring import score_answers
from site_interp.selection import HeadSelection
from site_interp.tasks import Example, Labelled, Task
from site_interp.tasks.options import Options

CLOSE = 1e-4  # nats: fp32 rounding over a few tokens of a tiny model
N_TOKENS = 20
EOS, NEWLINE = 2, 5  # ids in the tiny vocabulary


def some_adapter(model: Model, task: Task, spread: float = 3.0) -> Adapter:
    """An adapter that moves the model a lot, without a fit."""
    generator = torch.Generator().manual_seed(1)
    logits = spread * torch.randn(model.n_layers, model.n_heads, generator=generator)
    return Adapter(embed_task(model, task, n_prompts=3, n_shots=2), HeadSelection(logits))


def oracle_text(oracle: Oracle, prompt: str, injected: Sequence[torch.Tensor]) -> str:
    """Greedy text up to the end-of-sequence token; never stopped early."""
    ids = reference_ids(oracle, prompt, N_TOKENS, *injected)
    kept = ids[: ids.index(EOS)] if EOS in ids else ids
    text: str = oracle.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def oracle_answer(oracle: Oracle, prompt: str, answer: str, injected: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Whether the first token of one answer beats every other token, and the log-probability of the whole answer."""
    n_prompt, ids = len(oracle.ids(prompt)), oracle.ids(f"{prompt} {answer}")
    logits = reference_logits(oracle, ids, n_prompt - 1, *injected)
    first = logits[n_prompt - 1]
    others = torch.cat([first[: ids[n_prompt]], first[ids[n_prompt] + 1 :]])
    log_prob = 0.0
    for place in range(n_prompt, len(ids)):
        log_prob += float(logits[place - 1].log_softmax(dim=0)[ids[place]])
    return float(bool((first[ids[n_prompt]] > others).all())), log_prob


def answered_task(oracle: Oracle, task: Task, adapter: Adapter | None) -> Task:
    """The task with test answers made from what the oracle writes, so that right and wrong ones of every kind occur."""
    injected = () if adapter is None else (adapter.embedding.mean, adapter.selection.alpha)
    examples = []
    for place, example in enumerate(task.test):
        line = oracle_text(oracle, QA.zero_shot(example.input), injected).split("\n")[0].strip() or "aa"
        first, wrong = " ".join(line.split()[:2]), ("aa ab ac", "eb ec")
        kinds = [(line,), (*wrong, first), wrong, (first.split()[0] + " aa ab", "ej")]
        examples.append(replace(example, answers=kinds[place % 4]))
    return replace(task, test=tuple(examples))


def check_against_oracle(
    oracle: Oracle, task: Task, found: Evaluation, prompts: Sequence[str], injected: Sequence[torch.Tensor]
) -> None:
    for place, (example, prompt) in enumerate(zip(task.test_examples(), prompts, strict=True)):
        line = oracle_text(oracle, prompt, injected).split("\n")[0].strip()
        assert found.texts[place].split("\n")[0].strip() == line
        answers = [oracle_answer(oracle, prompt, answer, injected) for answer in example.answers]
        assert found.scores["first_token"][place] == max(hit for hit, _ in answers)
        assert found.scores["answer_log_prob"][place] == pytest.approx(max(p for _, p in answers), abs=CLOSE)
        assert found.scores["prefix_match"][place] == float(any(line.startswith(answer) for answer in example.answers))
        assert found.scores["strict_match"][place] == float(line in example.answers)


def test_zero_shot_scores_are_those_of_the_oracle(model: Model, oracle: Oracle) -> None:
    task = answered_task(oracle, word_task(), None)
    (found,) = evaluate(model, task, [ZeroShot()]).rows
    prompts = [f"Q: {example.input}\nA:" for example in task.test_examples()]
    check_against_oracle(oracle, task, found, prompts, ())
    assert found.scores.keys() == set(METRICS[:4])
    for metric in METRICS[:3]:
        assert 0 < sum(found.scores[metric]) < 8, f"{metric} is the same everywhere: the test sees nothing"
    assert found.n_prompt_tokens == sum(len(oracle.ids(prompt)) for prompt in prompts) / 8


def test_injected_scores_are_those_of_the_oracle(model: Model, oracle: Oracle) -> None:
    adapter = some_adapter(model, word_task())
    task = answered_task(oracle, word_task(), adapter)
    adapter = replace(adapter, embedding=replace(adapter.embedding, split_hash=task.split_hash))
    found, plain = evaluate(model, task, [adapter, ZeroShot()]).rows
    prompts = [f"Q: {example.input}\nA:" for example in task.test_examples()]
    check_against_oracle(oracle, task, found, prompts, (adapter.embedding.mean, adapter.selection.alpha))
    for metric in METRICS[:3]:
        assert 0 < sum(found.scores[metric]) < 8, f"{metric} is the same everywhere: the test sees nothing"
    assert plain.scores != found.scores


def test_icl_scores_are_those_of_the_oracle(model: Model, oracle: Oracle) -> None:
    task = word_task(n_test=4)
    labelled = Labelled(task)
    fitted = ICL(3).fit(model, labelled, 2)
    assert isinstance(fitted, Fitted)
    found = evaluate_fitted(model, task, fitted, seed=2)
    prompts = fitted.prompts([example.input for example in task.test_examples()])
    assert all(prompt.count("Q:") == 4 for prompt in prompts)
    check_against_oracle(oracle, task, found, prompts, ())
    assert (found.method, found.seed, found.n_labels, found.n_parameters) == ("icl", 2, labelled.n_used, 0)


def test_options_are_chosen_as_the_oracle_rates_them(model: Model, oracle: Oracle) -> None:
    options = ("aa", "ab ac", "ej", "eb ec ed")
    task = replace(word_task(), options=Options(options))
    adapter = some_adapter(model, task)
    injected = (adapter.embedding.mean, adapter.selection.alpha)
    best = []
    for example in task.test:
        rated = {one: oracle_answer(oracle, QA.zero_shot(example.input), one, injected)[1] for one in options}
        best.append(max(rated, key=lambda one: rated[one]))
    rights = [one if place % 2 else next(o for o in options if o != one) for place, one in enumerate(best)]
    test = tuple(replace(e, answers=(right, "not an option")) for e, right in zip(task.test, rights, strict=True))
    task = replace(task, test=test)
    adapter = replace(adapter, embedding=replace(adapter.embedding, split_hash=task.split_hash))
    found, fixed = evaluate(model, task, [adapter, Majority()]).rows
    assert list(found.scores) == ["prefix_match", "strict_match", "first_token", "answer_log_prob", "choice_match"]
    by_input = {e.input: float(place % 2) for place, e in enumerate(task.test)}
    assert list(found.scores["choice_match"]) == [by_input[e.input] for e in task.test_examples()]
    for place, example in enumerate(task.test_examples()):
        rated_answers = [oracle_answer(oracle, QA.zero_shot(example.input), a, injected) for a in example.answers]
        assert found.scores["answer_log_prob"][place] == pytest.approx(max(p for _, p in rated_answers), abs=CLOSE)
    assert fixed.scores["choice_match"] == fixed.scores["strict_match"]
    assert task.chance() == 0.25
    assert "choice_match" in EvaluationTable((found, fixed)).cells()[0]


def test_a_tie_is_no_hit_and_one_more_is(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    (prefixes,) = encode_prompts(llama, ["Q: aa\nA:", "Q: ab\nA:", "Q: ac\nA:"])
    logits = torch.zeros(3, 1, 64)
    logits[0, 0, [10, 20]] = 5.0
    logits[1, 0, 10] = 5.0
    monkeypatch.setattr(scoring, "answer_logits", lambda *_: logits)
    hits = [hit for hit, _ in score_answers(prefixes, [[[10]], [[10]], [[10]]], None)]
    assert hits == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_logits_that_are_no_numbers_are_an_error_that_names_the_prompt(
    llama: Model, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (prefixes,) = encode_prompts(llama, ["Q: aa\nA:", "Q: bb\nA:"])
    logits = torch.zeros(2, 1, 64)
    logits[1, 0, 10] = float(value)
    monkeypatch.setattr(scoring, "answer_logits", lambda *_: logits)
    with pytest.raises(NotFiniteError, match=r"logits of prompt 1, 'Q: bb\\nA:': they are not finite in float32"):
        score_answers(prefixes, [[[10]], [[10]]], None)


def patched_forward(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    real = Model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        logits, cache = real(*args, **kwargs)
        return change(logits), cache

    monkeypatch.setattr(Model, "forward", forward)


def test_constant_logits_are_never_right(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = some_adapter(llama, word_task())
    patched_forward(monkeypatch, torch.zeros_like)
    for row in evaluate(llama, word_task(), [ZeroShot(), ICL(2), adapter]).rows:
        assert [sum(row.scores[metric]) for metric in METRICS[:3]] == [0.0, 0.0, 0.0]
        assert row.scores["answer_log_prob"] == pytest.approx([-2 * math.log(64)] * 8)


def test_the_best_of_several_answers_counts_whatever_their_number_and_order(llama: Model) -> None:
    (prefixes,) = encode_prompts(llama, ["Q: aa\nA:", "Q: ab\nA:"])
    ids = [[8], [9, 10, 11], [12, 13], [14]]
    singly = [score_answers(prefixes, [[answer], [answer]], None) for answer in ids]
    best = [(max(found[row][0] for found in singly), max(found[row][1] for found in singly)) for row in (0, 1)]
    for order in (ids, ids[::-1], ids * 20):  # more pairs than are scored together
        found = score_answers(prefixes, [order, order], None)
        assert [hit for hit, _ in found] == [hit for hit, _ in best]
        assert [value for _, value in found] == pytest.approx([value for _, value in best], abs=CLOSE)


def test_stopping_early_changes_no_score(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def more_newlines(logits: torch.Tensor) -> torch.Tensor:
        return logits + 4.0 * (torch.arange(64) == NEWLINE)

    patched_forward(monkeypatch, more_newlines)
    task = word_task(n_test=12)
    adapter = some_adapter(llama, task)
    methods = [ZeroShot(), ICL(2), adapter]
    stopped = evaluate(llama, task, methods).rows
    answers = [text.split("\n")[0].strip() or "aa" for text in stopped[0].texts]
    order = {example.input: answer for example, answer in zip(task.test_examples(), answers, strict=True)}
    task = replace(task, test=tuple(replace(e, answers=(order[e.input], "ej ej")) for e in task.test))
    methods[2] = replace(adapter, embedding=replace(adapter.embedding, split_hash=task.split_hash))
    stopped = evaluate(llama, task, methods).rows
    real = evaluation.injected_text
    monkeypatch.setattr(evaluation, "injected_text", lambda *args, **kwargs: real(*args, **kwargs | {"stop": "never"}))
    written = evaluate(llama, task, methods).rows
    for short, long in zip(stopped, written, strict=True):
        assert any(a != b for a, b in zip(short.texts, long.texts, strict=True)), "no row ended early"
        assert short.scores == long.scores
    assert sum(stopped[0].scores["strict_match"]) > 0


def test_scores_do_not_depend_on_the_other_rows_nor_on_the_memory(model: Model) -> None:
    task = word_task(n_test=7)
    methods = [ICL(2), some_adapter(model, task)]
    whole = evaluate(model, task, methods, n_test=None).rows
    for others in (
        evaluate(model, task, methods, n_test=n, memory=memory).rows for n, memory in ((3, 1), (4, 1 << 30))
    ):
        for few, all_rows in zip(others, whole, strict=True):
            n = len(few.texts)
            assert few.texts == all_rows.texts[:n]
            for metric in METRICS[:4]:
                assert few.scores[metric] == pytest.approx(all_rows.scores[metric][:n], abs=CLOSE)


def test_n_test_takes_the_first_after_a_shuffle_by_the_split_seed(llama: Model) -> None:
    task = word_task(n_test=9)
    echo = Echo().fit(llama, Labelled(task), 0)
    inputs = [example.input for example in task.test]
    whole, few, many = (evaluate_fitted(llama, task, echo, n_test=n).texts for n in (None, 4, 1000))
    other = evaluate_fitted(llama, replace(task, split_seed=1), echo, n_test=None).texts
    assert set(whole) == set(other) == set(inputs)
    assert whole[:4] == few
    assert whole == many
    assert whole != other


def test_progress_adds_up_to_the_test_examples(llama: Model) -> None:
    done: list[int] = []
    task = word_task(n_test=9)
    fitted = ZeroShot().fit(llama, Labelled(task), 0)
    evaluate_fitted(llama, task, fitted, n_test=7, memory=1, progress=done.append)
    assert sum(done) == 7
    assert len(done) > 1


def test_an_adapter_is_refused_on_another_split_of_its_task(llama: Model) -> None:
    adapter = some_adapter(llama, word_task())
    other = word_task(split_seed=1)
    with pytest.raises(UserError, match=r"another split \(split_seed 0, now 1\)"):
        evaluate(llama, other, [adapter])


def test_an_adapter_is_refused_when_examples_of_its_task_changed_sides(llama: Model) -> None:
    task = word_task()
    adapter = some_adapter(llama, task)
    with pytest.raises(UserError, match="it may have seen the examples that are held out here"):
        evaluate(llama, replace(task, train=task.test, test=task.train), [adapter])


def test_an_adapter_may_be_tried_on_another_task(llama: Model) -> None:
    adapter = some_adapter(llama, word_task())
    (row,) = evaluate(llama, word_task("file/other"), [adapter]).rows
    assert (row.task, row.method) == ("file/other", "site")


def test_an_adapter_of_another_model_is_refused(llama: Model) -> None:
    adapter = some_adapter(llama, word_task())
    fingerprint = replace(adapter.embedding.fingerprint, tokenizer="other")
    foreign = replace(adapter, embedding=replace(adapter.embedding, fingerprint=fingerprint))
    with pytest.raises(UserError, match="another tokenizer"):
        evaluate(llama, word_task(), [foreign])


@pytest.mark.parametrize(
    ("task", "n_test", "said"),
    [
        (word_task(n_test=0), 100, "no test examples"),
        (word_task(), 0, "on 0 test examples"),
        (word_task(), -1, "on -1 test examples"),
    ],
)
def test_an_evaluation_of_nothing_is_refused(llama: Model, task: Task, n_test: int, said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluate(llama, task, [ZeroShot()], n_test=n_test)


def test_methods_run_once_for_each_seed_that_concerns_them(llama: Model) -> None:
    task = word_task()
    adapter = fitted_adapter(llama, task, seed=8)
    rows = evaluate(llama, task, [ZeroShot(), Echo(), ICL(2), quick_site(), adapter], seeds=(3, 4)).rows
    assert [(row.method, row.seed) for row in rows] == [
        ("zero_shot", 0), ("echo", 0), ("icl", 3), ("icl", 4), ("site", 3), ("site", 4), ("site", 8)
    ]  # fmt: skip
    assert rows[2].texts != rows[3].texts


def test_the_floors_are_scored_without_the_model(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    train = tuple(Example(word, ("aa bb",)) for word in WORDS[:3])
    answers = [("ba bb", "aa"), ("aa cc",), ("aa bb",), ("dd",)]
    inputs = ["aa cc", "bb aa", "dd ee", "dd"]
    task = Task("file/f", train, (), tuple(map(Example, inputs, answers)))
    monkeypatch.setattr(Model, "forward", lambda *_, **__: pytest.fail("a floor asked the model"))
    echo, majority = evaluate(llama, task, [Echo(), Majority()]).rows
    at = [inputs.index(example.input) for example in task.test_examples()]

    def in_order(scores: Sequence[float]) -> tuple[float, ...]:
        return tuple(scores[place] for place in at)

    assert echo.scores == {
        "prefix_match": in_order([1, 0, 0, 1]),
        "strict_match": in_order([0, 0, 0, 1]),
        "first_token": in_order([1, 0, 0, 1]),
    }
    assert majority.scores == {
        "prefix_match": in_order([1, 0, 1, 0]),
        "strict_match": in_order([0, 0, 1, 0]),
        "first_token": in_order([1, 1, 1, 0]),
    }
    assert echo.texts == tuple(inputs[place] for place in at)
    assert (echo.n_labels, majority.n_labels, majority.n_parameters, majority.n_prompt_tokens) == (0, 3, 0, 0)


def test_an_empty_fixed_answer_is_wrong(llama: Model) -> None:
    nothing = FixedAnswers("echo", replace(QA, answer_prefix=""), lambda _: " ")
    found = evaluate_fitted(llama, word_task(), nothing)
    assert {sum(scores) for scores in found.scores.values()} == {0.0}


def test_case_counts_where_the_task_says_so(llama: Model) -> None:
    def task(case_sensitive: bool) -> Task:
        return Task("file/c", (), (), (Example("Aa", ("aa",)),), case_sensitive)

    echo = Echo().fit(llama, Labelled(task(False)), 0)
    found = [evaluate_fitted(llama, task(case_sensitive), echo).scores for case_sensitive in (False, True)]
    assert [scores["prefix_match"] for scores in found] == [(1.0,), (0.0,)]
    assert [scores["strict_match"] for scores in found] == [(1.0,), (0.0,)]


def hand_made(method: str, **scores: tuple[float, ...]) -> Evaluation:
    return Evaluation("file/t", method, 4, scores, ("a", "b"), 3.0, 17, 12, 0.1)  # type: ignore[arg-type]


def test_a_table_prints_percent_and_nats_with_intervals_in_columns() -> None:
    logs = bootstrap_mean((-1.0, -2.0))
    shares = {"first_token": (1.0, 1.0), "prefix_match": (1.0, 0.0), "strict_match": (0.0, 0.0)}
    rows = (hand_made("echo", **shares), hand_made("site", **shares, answer_log_prob=(-1.0, -2.0)))
    table = EvaluationTable(rows)
    heading, echo, site = table.cells()
    assert heading == ["method", "seed", *METRICS[:4], "labels", "n"]
    assert echo == ["echo", "4", "100.0 [100.0, 100.0]", "50.0 [0.0, 100.0]", "0.0 [0.0, 0.0]", "-", "17", "2"]
    assert site[5] == f"-1.5 [{logs.low:.1f}, {logs.high:.1f}]"
    lines = str(table).splitlines()
    assert repr(table) == str(table)
    assert {line.index(cell) for line, cell in zip(lines, ("prefix_match", echo[3], site[3]), strict=True)} == {
        lines[0].index("prefix_match")
    }


def test_a_table_in_a_notebook_escapes_what_comes_from_outside() -> None:
    shown = EvaluationTable((hand_made("<b>&", first_token=(1.0, 0.0)),))._repr_html_()
    assert "<b>" not in shown
    assert "<td>&lt;b&gt;&amp;</td>" in shown
    assert shown.count("<tr>") == 2
