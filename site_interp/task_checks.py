"""What metrics and a template say about a task, before any model is asked; `check_named` is the whole of it."""

from itertools import pairwise
from pathlib import Path

from site_interp.metrics import prefix_match, processed, strict_match
from site_interp.prompts import QA, Template
from site_interp.tasks import Task, load_task
from site_interp.tasks.check import Finding, Level, all_examples, are_labels, check_source, check_task, finding
from site_interp.tasks.load import bundled_name, read_source

ECHO = 0.2  # an echo above it hides what a method adds


def check_named(
    name: str | Path,
    template: Template = QA,
    *,
    n_shots: int = 10,
    split_seed: int = 0,
    data_dir: Path | None = None,
    input_column: str | None = None,
    output_column: str | None = None,
    case_sensitive: bool | None = None,
) -> tuple[list[Finding], Task | None]:
    """Check a task by name or path, without a model: its rows, splits, answers and floors.

    Args:
        name: As `load_task` takes it.
        template: How examples become text.
        n_shots: Demonstrations in a prompt.
        split_seed, data_dir, input_column, output_column, case_sensitive: As for `load_task`.

    Returns:
        One finding per check, and the task made of the usable rows, or None if they make none.

    Raises:
        UserError: No such task, or a file that cannot be read at all.
    """
    if bundled_name(name) is not None:
        bundled = load_task(name, split_seed=split_seed, case_sensitive=case_sensitive)
        return [*check_task(bundled, n_shots=n_shots), *check_answers(bundled, template)], bundled
    source = read_source(name, data_dir=data_dir, input_column=input_column, output_column=output_column)
    findings, task = check_source(source, n_shots=n_shots, split_seed=split_seed, case_sensitive=case_sensitive)
    return [*findings, *(check_answers(task, template) if task is not None else [])], task


def check_answers(task: Task, template: Template) -> list[Finding]:
    """Check what the metrics and the template make of the answers; one finding per check."""
    return [_prefixes(task), _unmatchable(task), _stopped(task, template), _echo(task)]


def _prefixes(task: Task) -> Finding:
    """Sorted, whatever begins with a text follows it at once."""
    known = {processed(e.answer, task.case_sensitive) for e in all_examples(task)} - {""}
    labels = sorted(known)
    inside = {label: longer for label, longer in pairwise(labels) if longer.startswith(label)}
    shown = [(e, processed(e.answer, task.case_sensitive)) for e in all_examples(task)]
    found = [f"{e.answer} begins {inside[label]}" for e, label in shown if label in inside]
    level: Level = "warning" if are_labels(task) else "note"
    message = "Examples whose answer begins another answer, which prefix match takes for it; read strict match."
    return finding("answers in answers", level, message, found, fine="No answer begins another.")


def _unmatchable(task: Task) -> Finding:
    empty = [e.answer for e in all_examples(task) if not any(processed(a, task.case_sensitive) for a in e.answers)]
    message = "Examples whose answer prefix match never finds, as it begins with a parenthesis; read strict match."
    return finding("unmatchable answers", "warning", message, empty, fine="Prefix match can find every answer.")


def _stopped(task: Task, template: Template) -> Finding:
    cut = [e.answer for e in all_examples(task) if template.stop in e.answer]
    message = f"Examples whose answer holds {template.stop!r}, where generation stops; use another stop text."
    return finding("stop text", "warning", message, cut, fine=f"No answer holds {template.stop!r}.")


def _echo(task: Task) -> Finding:
    right = [e for e in task.test if prefix_match(e.input, e.answers, task.case_sensitive)]
    strict = [e for e in task.test if strict_match(e.input, e.answers, task.case_sensitive)]
    share, strict_share = len(right) / len(task.test), len(strict) / len(task.test)
    examples = tuple(f"{e.input[:20]!r} -> {e.answer[:20]!r}" for e in right[:3])
    shown = f"Giving the input back is right for {share:.0%} of the test examples by prefix match"
    shown = f"{shown}, {strict_share:.0%} by strict match"
    if strict_share > ECHO and not task.case_sensitive:
        return Finding("echo floor", "warning", f"{shown}; if letter case is the task, say so.", len(right), examples)
    if share > ECHO:
        return Finding("echo floor", "warning", f"{shown}; read strict match.", len(right), examples)
    return Finding("echo floor", "note" if right else "ok", f"{shown}.", len(right), examples)
