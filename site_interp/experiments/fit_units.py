"""Fitting many units in one batch, each kept on disk once it is fitted; one that fails leaves the others alone."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from site_interp.adapter import Adapter
from site_interp.adapter_files import check_own
from site_interp.baselines import SITE, load_fitted
from site_interp.embedding import TaskEmbedding
from site_interp.errors import UserError
from site_interp.experiments.plan import Unit, unit_cost
from site_interp.files import writing
from site_interp.fit_plan import FitRun
from site_interp.model import Model
from site_interp.prompts import Template

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """Where a run reports to.

    Args:
        advance: Called with work done, in the unit of `token_cost`.
        say: Called with one line about what is being done or went wrong.
    """

    advance: Callable[[float], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None

    def steps(self, cost: float) -> Callable[[int], None]:
        """A callback that counts steps of this cost each."""
        return lambda n: self.advance(n * cost)


def fit_together(
    model: Model,
    method: SITE,
    units: Sequence[Unit],
    progress: Progress,
    *,
    place: Callable[[Unit], Path],
    **notes: Any,
) -> Iterator[tuple[Unit, Adapter | Exception, float]]:
    """Embed each unit's task, fit all alphas in one batch, save the adapters; then hand them out.

    Args:
        model: Left as it is.
        method: That of all units.
        units: What to fit.
        progress: Where to report.
        place: The adapter folder of a unit; an adapter that is there of the very same unit is not made anew.
        notes: For the configuration of the adapters.

    Returns:
        Each unit with its adapter, or the exception it ended in, and the seconds of its fit.

    Raises:
        UserError: An adapter cannot be saved.
    """
    waiting: list[tuple[Unit, float, FitRun]] = []
    for unit in units:
        cost = unit_cost(model, unit)
        if (kept := _kept_adapter(unit, place(unit))) is not None:
            progress.advance(cost.embedding + cost.fitting)
            yield unit, *kept
            continue
        progress.say(f"{unit.label}: embedding")
        labelled, start = attempt(unit.labelled), time.perf_counter()
        each = progress.steps(cost.embedding / (method.n_prompts * method.n_embeddings(unit.task.name)))
        if isinstance(labelled, Exception):
            embedding: TaskEmbedding | Exception = labelled
        else:
            embedding = attempt(method.embed, model, labelled, unit.seed, each)
        if isinstance(labelled, Exception) or isinstance(embedding, Exception):
            progress.advance(cost.embedding + cost.fitting)
            yield unit, embedding, time.perf_counter() - start  # type: ignore[misc]
            continue
        waiting.append((unit, time.perf_counter() - start, FitRun(embedding, labelled, unit.seed)))
    if not waiting:
        return
    progress.say(f"fitting {waiting[0][0].label}" + (f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""))
    share = sum(unit_cost(model, unit).fitting for unit, *_ in waiting) / (method.fitting.n_steps * len(waiting))
    start = time.perf_counter()
    adapters = _select(model, method, [run for *_, run in waiting], progress.steps(share))
    seconds = (time.perf_counter() - start) / len(waiting)
    fitted = [(unit, made, spent + seconds) for (unit, spent, _), made in zip(waiting, adapters, strict=True)]
    for unit, made, fit_seconds in fitted:
        if isinstance(made, Adapter):
            told = {"unit_hash": unit.fit_hash, "fit_seconds": fit_seconds, "preset": method.preset}
            made.save_pretrained(place(unit), **{**told, **notes})
    yield from fitted


def _select(
    model: Model, method: SITE, runs: Sequence[FitRun], advance: Callable[[int], None]
) -> Sequence[Adapter | Exception]:
    """All runs in one batch; if that fails each alone, so that one bad task does not take the others with it."""
    together = attempt(method.select, model, runs, advance)
    if not isinstance(together, Exception):
        return together
    if len(runs) == 1:
        return [together]
    return [_select(model, method, [run], advance)[0] for run in runs]


def check_place(unit: Unit, folder: Path) -> None:
    """Refuse to put an adapter where one of another model, of other data, or of another program would be lost.

    Raises:
        UserError: Says what is there.
    """
    check_own(folder)
    try:
        kept = load_fitted(folder)
    except UserError:
        return  # nothing, or what a killed run left
    there = kept.embedding if isinstance(kept, Adapter) else kept.origin
    differences = {
        "another model": there.fingerprint.id != unit.fingerprint,
        "other data": there.split_hash != unit.task.split_hash,
        "another template of the same name": _text(there.template)
        != _text(getattr(unit.method, "template", there.template)),
    }
    if other := [what for what, differs in differences.items() if differs]:
        raise UserError(
            f"Cannot write the adapter of {unit.task.name} to {folder}: it holds one of {there.task}, made with "
            f"{' and '.join(other)} ({there.model} in {there.dtype}, split {there.split_hash}). Choose another --out, "
            "or remove it."
        )


def _text(template: Template) -> dict[str, Any]:
    """What a template does to examples, whatever its name."""
    return {key: value for key, value in template.to_dict().items() if key != "name"}


def is_kept(unit: Unit, folder: Path) -> bool:
    """Whether a folder holds the adapter of this very unit."""
    return _kept_adapter(unit, folder) is not None


def _kept_adapter(unit: Unit, folder: Path) -> tuple[Adapter, float] | None:
    """The adapter an earlier, interrupted run saved for this very unit, with the seconds of its fit."""
    if not folder.is_dir():
        return None
    try:
        adapter, notes = Adapter.from_pretrained_with_notes(folder)
    except UserError:
        return None  # half-written by a killed run: it is fitted again and replaced
    seconds = notes.get("fit_seconds")
    if notes.get("unit_hash") != unit.fit_hash or not isinstance(seconds, int | float):
        return None
    return adapter, float(seconds)


def attempt(make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Exception:
    """What a unit's function gives, or the exception that is then recorded as the unit's reason."""
    try:
        return make(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - recorded, told and counted in the exit code
        return error


def log_error(out: Path, unit: Unit, error: Exception) -> None:
    """Put the traceback of a failed unit into `errors.log` of the output folder.

    Raises:
        UserError: It cannot be written.
    """
    with writing(out), (out / "errors.log").open("a", encoding="utf-8") as log:
        log.write(f"{unit.label}\n{''.join(traceback.format_exception(error))}\n")
