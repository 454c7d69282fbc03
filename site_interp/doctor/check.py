"""What a check says, and how one is run so that it cannot hide the others."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from site_interp.doctor.subject import Subject

Status = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Check:
    """One line of the self-test.

    Args:
        name: In a few words.
        meaning: What holds where the check passes, in a plain phrase.
        status: `pass`, `fail` or `skipped`.
        deviation: How far off, as a share of the largest value compared, or a count; None where nothing was measured.
        tolerance: The largest deviation that passes; None where a number is reported and nothing can fail.
        detail: What was compared, or why the check failed or was skipped.
    """

    name: str
    meaning: str
    status: Status
    deviation: float | None
    tolerance: float | None
    detail: str


@dataclass(frozen=True)
class Finding:
    """What a measurement found.

    Args:
        deviation: How far off; None if there is nothing to measure here.
        tolerance: The largest deviation that passes; None if the number is only reported.
        detail: What was compared, or why nothing was.
    """

    deviation: float | int | None
    tolerance: float | int | None
    detail: str


@dataclass(frozen=True)
class Question:
    """A check that has not been run yet: its name, what it means, and the measurement."""

    name: str
    meaning: str
    measure: Callable[[Subject], Finding]


def ask(question: Question, subject: Subject) -> Check:
    """Run a check; whatever it raises is its failure."""
    try:
        found = question.measure(subject)
    # What a check runs into is what is wrong with the model or the versions here. It is the result, whatever its type,
    # and must not hide the other checks.
    except Exception as error:  # noqa: BLE001
        return failed(question.name, question.meaning, error)
    if found.deviation is None:
        return Check(question.name, question.meaning, "skipped", None, None, found.detail)
    deviation = float(found.deviation)
    tolerance = None if found.tolerance is None else float(found.tolerance)
    passed = tolerance is None or deviation <= tolerance
    return Check(question.name, question.meaning, "pass" if passed else "fail", deviation, tolerance, found.detail)


def failed(name: str, meaning: str, error: Exception) -> Check:
    """A check that ended in an exception, with the first line of its text."""
    lines = str(error).strip().splitlines()
    return Check(name, meaning, "fail", None, None, f"{type(error).__name__}: {lines[0]}" if lines else repr(error))
