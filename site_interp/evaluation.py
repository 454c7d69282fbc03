"""The one loop that scores every method: greedy text, first token and log-probability of the answers, per example."""

import html
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from site_interp.adapter import Adapter
from site_interp.baselines import ChangesModel, Fitted, FixedAnswers, Method
from site_interp.comparison import Interval, bootstrap_mean
from site_interp.errors import UserError, did_you_mean
from site_interp.injection import injected_text
from site_interp.metrics import METRICS, Metric, choice_match, prefix_match, strict_match
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY, iterate_prefixes
from site_interp.progress import Advance, advancing
from site_interp.scoring import score_each
from site_interp.tasks import Example, Labelled, Task

MAX_NEW_TOKENS = 20
MAX_ROWS = 64  # prompts generated together; more rows gain nothing on a CPU


@dataclass(frozen=True)
class Evaluation:
    """Scores of one method on one task with one seed.

    Args:
        task: Name of the task.
        method: Name of the method.
        seed: Seed of the method.
        scores: One score per test example and metric; a method that answers without the model has no log-probability,
            and only tasks of multiple choice have a choice match.
        texts: What was generated, in test order.
        n_prompt_tokens: Mean tokens per prompt; 0 where the model is not asked.
        n_labels, n_parameters: What the method used.
        seconds: Time of the evaluation.
    """

    task: str
    method: str
    seed: int
    scores: Mapping[Metric, tuple[float, ...]]
    texts: tuple[str, ...]
    n_prompt_tokens: float
    n_labels: int
    n_parameters: int
    seconds: float

    def interval(self, metric: Metric) -> Interval:
        """Mean and 95 % bootstrap interval over the test examples.

        Raises:
            UserError: A metric that is unknown, or that this method has no scores in.
        """
        if metric not in self.scores:
            raise UserError(
                f"Cannot give the {metric!r} of {self.method}: it has {', '.join(self.scores)}."
                f"{did_you_mean(metric, self.scores)}"
            )
        return bootstrap_mean(self.scores[metric])


@dataclass(frozen=True)
class EvaluationTable:
    """Evaluations of several methods on one task; prints as a table with intervals.

    Args:
        rows: One for each method and seed.
    """

    rows: tuple[Evaluation, ...]

    def cells(self) -> list[list[str]]:
        """The table as text: a heading and a line for each row; shares in percent, log-probabilities in nats."""
        metrics = [metric for metric in METRICS if metric != "choice_match" or metric in self.rows[0].scores]
        lines = [["method", "seed", *metrics, "labels", "n"]]
        for row in self.rows:
            values = [_cell(row.interval(metric), metric) if metric in row.scores else "-" for metric in metrics]
            lines.append([row.method, str(row.seed), *values, str(row.n_labels), str(len(row.texts))])
        return lines

    def __str__(self) -> str:
        lines = self.cells()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
        return "\n".join("  ".join(line).rstrip() for line in padded)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in self.cells()]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _cell(interval: Interval, metric: Metric) -> str:
    scale = 1 if metric == "answer_log_prob" else 100
    return f"{interval.value * scale:.1f} [{interval.low * scale:.1f}, {interval.high * scale:.1f}]"


def evaluate(
    model: Model,
    task: Task,
    methods: Sequence[Method | Fitted | FixedAnswers],
    *,
    seeds: Sequence[int] = (0,),
    n_test: int | None = 100,
    memory: int = DEFAULT_MEMORY,
) -> EvaluationTable:
    """Fit each method on a task and score it on the same test examples.

    Args:
        model: Left as it is.
        task: Methods see its training and validation splits through `Labelled` only.
        methods: Methods, or what was fitted before (an `Adapter`).
        seeds: Seeds of the methods that take one.
        n_test: Test examples, the first after a shuffle by the task's split seed; None for all.
        memory: Budget in bytes.

    Returns:
        A table that prints with intervals; `.rows` hold the scores per example.

    Raises:
        UserError: A method cannot run on this task, an adapter belongs to another model or split, seeds are negative or
            stand twice, or the model computes values that are not finite.
    """
    check_seeds(seeds)
    Labelled(task)  # refuses what is no task
    known = FixedAnswers | Fitted | Method
    if not isinstance(methods, Sequence) or not methods or not all(isinstance(one, known) for one in methods):
        raise UserError(f"Cannot evaluate {methods!r}: give a list of methods, such as [ZeroShot(), ICL(10), adapter].")
    rows = []
    for method in methods:
        if isinstance(method, FixedAnswers | Fitted):
            seed = method.selection.seed if isinstance(method, Adapter) else 0
            rows.append(evaluate_fitted(model, task, method, seed=seed, n_test=n_test, memory=memory))
            continue
        for seed in seeds if method.seeded else (0,):
            fitted = method.fit(model, Labelled(task), seed)
            rows.append(evaluate_fitted(model, task, fitted, seed=seed, n_test=n_test, memory=memory))
    return EvaluationTable(tuple(rows))


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that are none at all, no whole numbers, negative, or stand twice.

    Raises:
        UserError: Names the seeds.
    """
    if not seeds or len(set(seeds)) < len(seeds) or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise UserError(
            f"Cannot run with the seeds {list(seeds)}: give whole numbers of 0 or more, at least one, each once."
        )


def evaluate_fitted(
    model: Model,
    task: Task,
    fitted: Fitted | FixedAnswers,
    *,
    seed: int = 0,
    n_test: int | None = 100,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> Evaluation:
    """Score a fitted method on the task's test examples.

    Args:
        model: Left as it is.
        task: Its test examples are asked.
        fitted: How to ask, and what to inject.
        seed: Written into the result.
        n_test: Test examples; None for all.
        memory: Budget in bytes.
        progress: Called with the number of examples done after each batch; by default a bar is shown.

    Raises:
        UserError: No test examples, an adapter of another model or split, prompts longer than the context, or logits
            that are not finite.
    """
    if n_test is not None and n_test < 1:
        raise UserError(
            f"Cannot evaluate on {n_test} test examples of '{task.name}'. Give n_test of 1 or more, or None."
        )
    examples = task.test_examples(n_test)
    if not examples:
        raise UserError(f"Cannot evaluate on task '{task.name}': it has no test examples. Add some.")
    start = time.perf_counter()
    if isinstance(fitted, FixedAnswers):
        texts = tuple(fitted.answer(example.input) for example in examples)
        scores = _text_scores(task, examples, texts)
        if task.options:
            scores["choice_match"] = scores["strict_match"]  # an option is named whole, or none is
        scores["first_token"] = tuple(
            _first_token_of_text(model, fitted, e, t) for e, t in zip(examples, texts, strict=True)
        )
        n_prompt_tokens = 0.0
    else:
        fitted.check(model, task)
        prompts = fitted.prompts([example.input for example in examples])
        n_prompt_tokens = sum(len(model.token_ids(prompt)) for prompt in prompts) / len(prompts)
        changing = fitted.changing(model) if isinstance(fitted, ChangesModel) else nullcontext(model)
        with changing as asked, advancing(len(examples), f"{fitted.name} on {task.name}", progress) as advance:
            texts, scores = _run(asked, task, examples, prompts, fitted, memory, advance)
    return Evaluation(
        task=task.name,
        method=fitted.name,
        seed=seed,
        scores=scores,
        texts=texts,
        n_prompt_tokens=n_prompt_tokens,
        n_labels=fitted.n_labels,
        n_parameters=fitted.n_parameters,
        seconds=time.perf_counter() - start,
    )


@torch.no_grad()
def _run(
    model: Model,
    task: Task,
    examples: Sequence[Example],
    prompts: Sequence[str],
    fitted: Fitted,
    memory: int,
    progress: Advance,
) -> tuple[tuple[str, ...], dict[Metric, tuple[float, ...]]]:
    """Generate and score, bucket by bucket."""
    options = [task.options.of(example.input) if task.options else () for example in examples]
    asked = [tuple(dict.fromkeys((*e.answers, *others))) for e, others in zip(examples, options, strict=True)]
    answers = [
        [model.answer_ids(prompt, fitted.template.answer(answer)) for answer in several]
        for prompt, several in zip(prompts, asked, strict=True)
    ]
    intervention = fitted.intervention()
    texts = [""] * len(prompts)
    hits, log_probs, choices = ([0.0] * len(prompts) for _ in range(3))
    for prefixes in iterate_prefixes(model, prompts, memory=memory // 2, max_rows=MAX_ROWS):
        rows = prefixes.rows.tolist()
        stop = fitted.template.stop
        written = injected_text(prefixes, intervention, max_new_tokens=MAX_NEW_TOKENS, stop=stop)
        scored = score_each(prefixes, [answers[row] for row in rows], intervention)
        for row, text, each in zip(rows, written, scored, strict=True):
            right = each[: len(examples[row].answers)]
            texts[row], hits[row] = text, max(hit for hit, _ in right)
            log_probs[row] = max(log_prob for _, log_prob in right)
            likely = {answer: log_prob for answer, (_, log_prob) in zip(asked[row], each, strict=True)}
            choices[row] = choice_match({one: likely[one] for one in options[row]}, examples[row].answers)
        progress(len(rows))
    scores = _text_scores(task, examples, texts)
    scores["first_token"], scores["answer_log_prob"] = tuple(hits), tuple(log_probs)
    if task.options:
        scores["choice_match"] = tuple(choices)
    return tuple(texts), scores


def _text_scores(task: Task, examples: Sequence[Example], texts: Sequence[str]) -> dict[Metric, tuple[float, ...]]:
    pairs = list(zip(texts, examples, strict=True))
    return {
        "prefix_match": tuple(prefix_match(text, e.answers, task.case_sensitive) for text, e in pairs),
        "strict_match": tuple(strict_match(text, e.answers, task.case_sensitive) for text, e in pairs),
    }


def _first_token_of_text(model: Model, fitted: FixedAnswers, example: Example, text: str) -> float:
    """Whether the first token of a fixed answer is that of a right one."""
    if not text.strip():
        return 0.0
    prompt = fitted.template.zero_shot(example.input)
    first, *others = (
        model.answer_ids(prompt, fitted.template.answer(answer))[0] for answer in (text.strip(), *example.answers)
    )
    return float(first in others)
