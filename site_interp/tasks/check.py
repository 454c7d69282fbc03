"""What the rows and splits of a task say about its use, before any model is asked: one finding per check."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from site_interp.errors import UserError
from site_interp.tasks.rows import Record
from site_interp.tasks.source import Source
from site_interp.tasks.task import Example, Task

Level = Literal["ok", "note", "warning", "error"]

N_EXAMPLES = 3  # examples in a finding
N_LETTERS = 40  # of each
MIN_VALID = 10
MIN_TEST = 20  # below it, a score moves by more than 5 points with one example
FEW_LABELS = 10  # a task with so few answers, each at least three times on average, is one of labels
MAJORITY = 0.7
LONG_INPUT = 8000  # characters, about the 2,000 tokens of a small context


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Args:
        check: What was looked at.
        level: `ok`; `note` is worth knowing; `warning` makes scores mislead; `error` makes the task unusable.
        message: One sentence.
        count: Rows or examples concerned.
        examples: The first few of them, shortened.
    """

    check: str
    level: Level
    message: str
    count: int = 0
    examples: tuple[str, ...] = ()


def finding(check: str, level: Level, message: str, found: Sequence[str], *, fine: str) -> Finding:
    """A finding at `level` if something was found, with the first few that differ; otherwise `fine`, at level ok."""
    if not found:
        return Finding(check, "ok", fine)
    examples = tuple(shorten(text) for text in list(dict.fromkeys(found))[:N_EXAMPLES])
    return Finding(check, level, message, len(found), examples)


def shorten(text: str) -> str:
    """A text as a table shows it: on one line, in quotes, and without its middle if it is long.

    Example:
        >>> print(shorten("one\\n" + 60 * "a" + " "))
        'one\\naaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaa '
    """
    half = (N_LETTERS - 3) // 2
    return repr(text if len(text) <= N_LETTERS else f"{text[:half]}...{text[-half - 1 :]}")


def all_examples(task: Task) -> tuple[Example, ...]:
    """The examples of every split."""
    return (*task.train, *task.valid, *task.test)


def are_labels(task: Task) -> bool:
    """Whether the answers are a few labels, rather than words of their own."""
    n_labels = len({e.answer for e in all_examples(task)})
    return n_labels <= FEW_LABELS and 3 * n_labels <= len(all_examples(task))


def check_source(
    source: Source, *, n_shots: int, split_seed: int = 0, case_sensitive: bool | None = None
) -> tuple[list[Finding], Task | None]:
    """Check the records of a source, then its splits, leaving out the records that cannot be used.

    Args:
        source: What `read_source` gives.
        n_shots: Demonstrations in a prompt; training must hold one example more.
        split_seed: Seed of splits that have to be cut.
        case_sensitive: Whether letter case counts; None leaves it to the source.

    Returns:
        One finding per check, and the task made of the usable records, or None if they make none.

    Raises:
        UserError: No record can be used.
    """
    usable, refusals = _usable(source)
    n_usable = sum(map(len, usable.splits.values()))
    if not n_usable:
        raise UserError(next(iter(refusals.values())))
    first = next((text.partition(": ")[2] for text in refusals.values()), "")
    findings = [
        *_encodings(source),
        finding("rows", "error", f"Rows that cannot be used: {first}", list(refusals), fine=f"{n_usable}, all usable."),
        _whitespace(usable),
        _repeats(usable),
    ]
    try:
        task = usable.task(split_seed=split_seed, keep_leaks=False, case_sensitive=case_sensitive)
    except UserError as error:
        return [*findings, Finding("splits", "error", str(error))], None
    return [*findings, _leaks(usable), *check_task(task, n_shots=n_shots)], task


def check_task(task: Task, *, n_shots: int) -> list[Finding]:
    """Check the sizes, answers and lengths of a task; one finding per check."""
    return [_sizes(task, n_shots), _several_answers(task), _majority(task), _lengths(task)]


def _usable(source: Source) -> tuple[Source, dict[str, str]]:
    """The source with the records that can be read, and the refusals of the others by their place."""
    refusals: dict[str, str] = {}
    kept: dict[str, tuple[Record, ...]] = {}
    for split, records in source.splits.items():
        good = []
        for record in records:
            try:
                source.columns.row(record)
            except UserError as error:
                refusals[f"{split}, {record.place}" if len(source.splits) > 1 else record.place] = str(error)
            else:
                good.append(record)
        kept[split] = tuple(good)
    return replace(source, splits=kept), refusals


def _encodings(source: Source) -> list[Finding]:
    if not source.encodings:
        return []
    names = {"utf-8-sig": "UTF-8 with a byte-order mark", "utf-8": "UTF-8", "utf-16": "UTF-16"}
    found = Counter(source.encodings.values())
    shown = ", ".join(names[encoding] for encoding in found)
    return [Finding("encoding", "ok" if set(found) == {"utf-8"} else "note", f"{shown}.")]


def _whitespace(source: Source) -> Finding:
    columns = source.columns
    records = list(chain.from_iterable(source.splits.values()))
    inputs = [text for text, _ in columns.rows(records) if text != text.strip()]
    values = [record.values[columns.output] for record in records]
    cells = [str(cell) for value in values for cell in (value if isinstance(value, list) else [value])]
    answers = [cell for cell in cells if cell != cell.strip()]
    if inputs:
        message = "Inputs that begin or end with white space, which stays in the prompt and changes its tokens."
        return finding("white space", "warning", message, inputs, fine="")
    message = "Answers that begin or end with white space; it is taken off."
    return finding("white space", "note", message, answers, fine="None around inputs and answers.")


def _repeats(source: Source) -> Finding:
    repeated = []
    for records in source.splits.values():
        counts = Counter(source.columns.rows(records))
        repeated += [f"{text} -> {' | '.join(answers)}" for (text, answers), n in counts.items() for _ in range(n - 1)]
    message = "Rows that repeat an earlier row of their split; they are merged."
    return finding("repeated rows", "note", message, repeated, fine="No row stands twice in a split.")


def _leaks(source: Source) -> Finding:
    rows = {split: source.columns.rows(source.splits.get(split, ())) for split in ("train", "valid", "test")}
    earlier = {(text, answer) for split in ("train", "valid") for text, answers in rows[split] for answer in answers}
    leaked = {text for text, answers in rows["test"] for answer in answers if (text, answer) in earlier}
    message = "Test rows that stand in train or valid too; they are left out."
    found = [text for text, _ in rows["test"] if text in leaked]
    return finding("leaks", "warning", message, found, fine="No test row stands in train or valid.")


def _sizes(task: Task, n_shots: int) -> Finding:
    shown = f"{len(task.train)} train, {len(task.valid)} valid, {len(task.test)} test examples"
    n = len(all_examples(task))
    if len(task.train) < n_shots + 1:
        message = f"{shown}: {n_shots} shots need {n_shots + 1} training examples. Add rows or lower --n-shots."
        return Finding("sizes", "error", message, n)
    if len(task.valid) < MIN_VALID or len(task.test) < MIN_TEST:
        message = f"{shown}: below {MIN_VALID} valid or {MIN_TEST} test examples, choices and scores are mostly noise."
        return Finding("sizes", "warning", message, n)
    return Finding("sizes", "ok", f"{shown}.", n)


def _several_answers(task: Task) -> Finding:
    several = [f"{e.input} -> {' | '.join(e.answers)}" for e in all_examples(task) if len(e.answers) > 1]
    level: Level = "warning" if are_labels(task) else "note"
    message = "Inputs with several answers; the first trains, all count as right."
    return finding("several answers", level, message, several, fine="Each input has one answer.")


def _majority(task: Task) -> Finding:
    examples = all_examples(task)
    answers = Counter(e.answer for e in examples)
    (answer, count), *_ = answers.most_common(1)
    share = count / len(examples)
    shown = f"{len(answers)} different answers, the most frequent is that of {share:.0%}"
    if share > MAJORITY:
        message = f"{shown}: always giving it scores as much. Balance the rows."
        return Finding("majority answer", "warning", message, count, (shorten(answer),))
    return Finding("majority answer", "ok", f"{shown}.", count, (shorten(answer),))


def _lengths(task: Task) -> Finding:
    examples = all_examples(task)
    texts = _longest_first(e.input for e in examples)
    middle = int(statistics.median(map(len, texts)))
    shown = f"Inputs have {middle:,} characters at the median and {len(texts[0]):,} at most"
    long = [
        text for text in _longest_first([*texts, *(a for e in examples for a in e.answers)]) if len(text) > LONG_INPUT
    ]
    message = f"{shown}; inputs and answers above {LONG_INPUT:,} may not fit into a context. Check with --model."
    return finding("long inputs", "warning", message, long, fine=f"{shown}.")


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=len, reverse=True)
