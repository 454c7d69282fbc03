"""The main job: methods on tasks with seeds, each unit recorded as soon as it is done, continued where it stopped."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from site_interp.baselines import SITE, FitsTogether, Fitted, FixedAnswers
from site_interp.comparison import bootstrap_mean
from site_interp.errors import NotFiniteError, UserError
from site_interp.evaluation import Evaluation, evaluate_fitted
from site_interp.experiments.fit_units import Progress, attempt, check_place, fit_together, log_error
from site_interp.experiments.peak_memory import peak_memory_mb, reset_peak_memory
from site_interp.experiments.plan import WITHOUT_MODEL, Unit, token_cost, unit_cost
from site_interp.files import safe_name
from site_interp.metrics import METRICS, Metric
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.records import Record
from site_interp.store import ResultsFile, open_results, save_predictions


@dataclass(frozen=True)
class Outcome:
    """What became of the units.

    Args:
        done, skipped, inapplicable, failed: Counts; skipped units were finished before.
        reasons: A line for each unit that is inapplicable or failed.
    """

    done: int
    skipped: int
    inapplicable: int
    failed: int
    reasons: tuple[str, ...]


def run_units(
    model: Model,
    units: Sequence[Unit],
    out: Path,
    *,
    memory: int = DEFAULT_MEMORY,
    keep_predictions: bool = True,
    progress: Progress = Progress(),  # noqa: B008 - a frozen value
) -> Outcome:
    """Run every unit that is not finished in `out`, in their order, and record each one when it is done.

    Units of a method that fits several together go through the model in one batch; what was fitted is saved before it
    is scored, so that a killed run keeps it.

    Args:
        model: Left as it is.
        units: From `plan_units`.
        out: Output folder; what is finished there is skipped.
        memory: Budget in bytes, beside the model.
        keep_predictions: Write texts to `out/predictions`.
        progress: Where to report.

    Raises:
        UserError: The folder cannot be written, another process is writing there, or it holds an adapter of another
            model or of other data in the place of one of these.
    """
    counts = {"done": 0, "skipped": 0, "inapplicable": 0, "failed": 0}
    reasons = []
    with open_results(out) as results:
        pending = []
        for unit in units:
            if results.finished(unit.hash, metrics_of(unit)):
                counts["skipped"] += 1
                progress.advance(token_cost(model, unit))
            else:
                check_place(unit, adapter_folder(out, unit))
                pending.append(unit)
        for unit, fitted, fit_seconds in _fitted(model, pending, out, memory, progress):
            cost = unit_cost(model, unit).scoring
            share = cost / max(len(unit.task.test_examples(unit.n_test)), 1)
            made: Evaluation | Exception
            if isinstance(fitted, Exception):
                made = fitted
            else:
                made = attempt(_evaluate, model, unit, fitted, memory, progress.steps(share))
            status, reason = _keep(unit, made, fit_seconds, results, out, keep_predictions)
            counts[status] += 1
            if reason:
                reasons.append(f"{unit.label}: {status}: {reason}")
                progress.say(reasons[-1])
            if isinstance(made, Exception) or made.n_prompt_tokens == 0:
                progress.advance(cost)  # nothing was counted on the way
    return Outcome(**counts, reasons=tuple(reasons))


def _evaluate(
    model: Model, unit: Unit, fitted: Fitted | FixedAnswers, memory: int, advance: Callable[[int], None]
) -> Evaluation:
    made = evaluate_fitted(
        model, unit.task, fitted, seed=unit.seed, n_test=unit.n_test, memory=memory, progress=advance
    )
    for metric, scores in made.scores.items():
        if not all(map(math.isfinite, scores)):
            raise RuntimeError(f"Scores of {unit.label} are not finite in {metric}. Run the model in float32.")
    return made


def metrics_of(unit: Unit) -> tuple[Metric, ...]:
    """The metrics a unit writes when all goes well.

    Answers given without the model have no log-probability, and only tasks of multiple choice have a choice match.
    """
    without: set[Metric] = set()
    if unit.method.name in WITHOUT_MODEL:
        without.add("answer_log_prob")
    if unit.task.options is None:
        without.add("choice_match")
    return tuple(metric for metric in METRICS if metric not in without)


Made = Fitted | FixedAnswers | Exception


def _fitted(
    model: Model, units: Sequence[Unit], out: Path, memory: int, progress: Progress
) -> Iterator[tuple[Unit, Made, float]]:
    """Every unit with what its fit made, or the exception it ended in, and the seconds of its fit."""
    for method, same in groupby(units, key=lambda unit: unit.method):
        several = list(same)
        if isinstance(method, FitsTogether):
            for start_at in range(0, len(several), method.together):
                part = several[start_at : start_at + method.together]
                reset_peak_memory()  # of the whole batch: its fits share it
                yield from fit_together(model, method, part, progress, place=partial(adapter_folder, out))
            continue
        for unit in several:
            progress.say(unit.label)
            reset_peak_memory()
            start, cost = time.perf_counter(), unit_cost(model, unit)
            made = attempt(_fit, model, unit)
            seconds = time.perf_counter() - start
            if isinstance(made, Fitted):
                made.save(adapter_folder(out, unit))
            progress.advance(cost.embedding + cost.fitting)
            yield unit, made, seconds


def _fit(model: Model, unit: Unit) -> Fitted | FixedAnswers:
    return unit.method.fit(model, unit.labelled(), unit.seed)


def adapter_folder(out: Path, unit: Unit) -> Path:
    """Where a run keeps what was fitted for a unit; that of SITE stands without the method's name."""
    method = "" if unit.method.name == SITE.name else f"{unit.method.name}__"
    variant = f"__{safe_name(unit.variant)}" if unit.variant else ""
    return out / "adapters" / f"{method}{safe_name(unit.task.name)}{variant}__seed-{unit.seed}"


def _keep(
    unit: Unit,
    made: Evaluation | Exception,
    fit_seconds: float,
    results: ResultsFile,
    out: Path,
    keep_predictions: bool,
) -> tuple[str, str]:
    """Record a unit; returns its status and the reason where it has no scores."""
    if isinstance(made, Exception):
        settled = isinstance(made, UserError) and not isinstance(made, NotFiniteError)
        status, reason = "inapplicable" if settled else "failed", str(made) or type(made).__name__
        if status == "failed":
            log_error(out, unit, made)
        results.append([_record(unit, status=status, reason=reason)])
        return status, reason
    if keep_predictions:
        examples = unit.task.test_examples(unit.n_test)
        save_predictions(
            out,
            task=unit.task.name,
            method=unit.method.name,
            variant=unit.variant,
            seed=unit.seed,
            rows=[
                {"input": example.input, "answers": example.answers, "output": text}
                | {metric: scores[place] for metric, scores in made.scores.items()}
                for place, (example, text) in enumerate(zip(examples, made.texts, strict=True))
            ],
        )
    results.append(records_of(unit, made, fit_seconds))
    return "done", ""


def records_of(unit: Unit, made: Evaluation, fit_seconds: float) -> list[Record]:
    """The records of a scored unit, one for each metric."""
    return [_metric_record(unit, made, metric, fit_seconds) for metric in made.scores]


def _metric_record(unit: Unit, made: Evaluation, metric: Metric, fit_seconds: float) -> Record:
    interval = bootstrap_mean(made.scores[metric])
    known = interval.low == interval.low
    return _record(
        unit,
        metric=metric,
        value=interval.value,
        ci_low=interval.low if known else None,
        ci_high=interval.high if known else None,
        n=len(made.scores[metric]),
        scores=made.scores[metric],
        labels=made.n_labels,
        n_parameters=made.n_parameters,
        n_prompt_tokens=round(made.n_prompt_tokens, 2),
        fit_seconds=round(fit_seconds, 3),
        eval_seconds=round(made.seconds, 3),
        peak_memory_mb=round(peak_memory_mb(), 1),
    )


def _record(unit: Unit, **fields: object) -> Record:
    return Record(
        model=unit.model,
        model_fingerprint=unit.fingerprint,
        dtype=unit.dtype,
        task=unit.task.name,
        split_hash=unit.task.split_hash,
        method=unit.method.name,
        variant=unit.variant,
        seed=unit.seed,
        unit_hash=unit.hash,
        version=version("site-interp"),
        **fields,  # type: ignore[arg-type]
    )
