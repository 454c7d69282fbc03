"""The one loop that scores every method: greedy text, first token and log-probability of the answers, per example."""

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.adapter import Adapter
from site_interp.baselines import Fitted, FixedAnswers, Method
from site_interp.comparison import Interval, bootstrap_mean
from site_interp.errors import UserError
from site_interp.injection import Intervention, injected_text, injecting, last_columns
from site_interp.metrics import METRICS, Metric, prefix_match, strict_match
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY, Prefixes, iterate_prefixes
from site_interp.progress import Advance, advancing
from site_interp.tasks import Example, Labelled, Task

MAX_NEW_TOKENS = 20
MAX_ROWS = 64  # prompts generated together; more rows gain nothing on a CPU
SCORED_ROWS = 32  # (prompt, answer) pairs scored together, as each holds logits at every answer position


@dataclass(frozen=True)
class Evaluation:
    """Scores of one method on one task with one seed.

    Args:
        task: Name of the task.
        method: Name of the method.
        seed: Seed of the method.
        scores: One score per test example and metric; a method that answers without the model has no log-probability.
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
        """Mean and 95 % bootstrap interval over the test examples."""
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
        lines = [["method", "seed", *METRICS, "labels", "n"]]
        for row in self.rows:
            values = [_cell(row.interval(metric), metric) if metric in row.scores else "-" for metric in METRICS]
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
        UserError: A method cannot run on this task, or an adapter belongs to another model or split.
    """
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
        UserError: No test examples, an adapter of another model or split, or prompts longer than the context.
    """
    examples = task.test_examples(n_test)
    if not examples:
        raise UserError(f"Cannot evaluate on task '{task.name}': it has no test examples, or n_test is 0.")
    start = time.perf_counter()
    if isinstance(fitted, FixedAnswers):
        texts = tuple(fitted.answer(example.input) for example in examples)
        scores = _text_scores(task, examples, texts)
        scores["first_token"] = tuple(
            _first_token_of_text(model, fitted, e, t) for e, t in zip(examples, texts, strict=True)
        )
        n_prompt_tokens = 0.0
    else:
        if isinstance(fitted, Adapter):
            _check_adapter(model, task, fitted)
        prompts = fitted.prompts([example.input for example in examples])
        n_prompt_tokens = sum(len(model.token_ids(prompt)) for prompt in prompts) / len(prompts)
        with advancing(len(examples), f"{fitted.name} on {task.name}", progress) as advance:
            texts, scores = _run(model, task, examples, prompts, fitted, memory, advance)
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


def _check_adapter(model: Model, task: Task, adapter: Adapter) -> None:
    adapter.check_model(model)
    made = adapter.embedding
    if made.task == task.name and made.split_hash != task.split_hash:
        raise UserError(
            f"Cannot evaluate the adapter on task '{task.name}': it was fitted on another split (split_seed "
            f"{made.split_seed}, now {task.split_seed}), so its training examples may be among the test examples. "
            "Load the task with the adapter's split_seed and data."
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
    answers = [
        [model.answer_ids(prompt, fitted.template.answer(answer)) for answer in example.answers]
        for prompt, example in zip(prompts, examples, strict=True)
    ]
    intervention = fitted.intervention()
    texts = [""] * len(prompts)
    hits, log_probs = [0.0] * len(prompts), [0.0] * len(prompts)
    for prefixes in iterate_prefixes(model, prompts, memory=memory // 2, max_rows=MAX_ROWS):
        rows = prefixes.rows.tolist()
        stop = fitted.template.stop
        written = injected_text(prefixes, intervention, max_new_tokens=MAX_NEW_TOKENS, stop=stop)
        scored = score_answers(prefixes, [answers[row] for row in rows], intervention)
        for row, text, (hit, log_prob) in zip(rows, written, scored, strict=True):
            texts[row], hits[row], log_probs[row] = text, hit, log_prob
        progress(len(rows))
    scores = _text_scores(task, examples, texts)
    scores["first_token"], scores["answer_log_prob"] = tuple(hits), tuple(log_probs)
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


@torch.no_grad()
def score_answers(
    prefixes: Prefixes, answers: Sequence[Sequence[Sequence[int]]], intervention: Intervention | None
) -> list[tuple[float, float]]:
    """First-token hit and log-probability of the best answer of each prompt.

    A hit needs the answer's first token to score strictly above every other token, so that ties and constant logits are
    never right.

    Args:
        prefixes: The prompts.
        answers: For each prompt, the token ids of every right answer.
        intervention: What is injected at the last prompt token, or None.

    Returns:
        For each prompt (hit, log-probability): 1.0 or 0.0, and nats of the whole answer; the best over the answers.
    """
    pairs = [(row, list(ids)) for row, several in enumerate(answers) for ids in several]
    best = [(0.0, float("-inf"))] * len(answers)
    for start in range(0, len(pairs), SCORED_ROWS):
        part = pairs[start : start + SCORED_ROWS]
        rows = torch.tensor([row for row, _ in part], device=prefixes.ids.device)
        shared = intervention if intervention is None else intervention.rows(rows)
        logits = _answer_logits(prefixes.select(rows), [ids for _, ids in part], shared)
        for (row, ids), row_logits in zip(part, logits, strict=True):
            target = torch.tensor(ids, device=row_logits.device)
            log_prob = row_logits[: len(ids)].log_softmax(-1).gather(-1, target[:, None]).sum()
            hit = float((row_logits[0] >= row_logits[0, ids[0]]).sum() == 1)
            best[row] = (max(best[row][0], hit), max(best[row][1], float(log_prob)))
    return best


def _answer_logits(
    prefixes: Prefixes, answers: Sequence[Sequence[int]], intervention: Intervention | None
) -> Float[Tensor, "batch answer d_vocab"]:
    """Logits at the last prompt token and at every answer token but the last, in one forward."""
    more = torch.zeros(len(answers), max(map(len, answers)) - 1, dtype=torch.long)
    for row, ids in enumerate(answers):
        more[row, : len(ids) - 1] = torch.tensor(ids[:-1], dtype=torch.long)
    more = more.to(prefixes.ids.device)
    if intervention is None:
        logits, _ = prefixes.run_last(more, n_logits=0)
    else:
        with injecting(prefixes.model, intervention, last_columns(prefixes)):
            logits, _ = prefixes.run_last(more, n_logits=0)
    return logits.float()
