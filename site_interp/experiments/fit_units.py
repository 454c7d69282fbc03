"""Fitting many units in one batch, each kept on disk once it is fitted; one that fails leaves the others alone."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from site_interp.adapter import Adapter
from site_interp.adapter_files import check_own, read_files
from site_interp.baselines import FitsTogether, Kept, load_fitted
from site_interp.errors import UserError
from site_interp.experiments.plan import Unit, unit_cost
from site_interp.files import writing
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
    method: FitsTogether,
    units: Sequence[Unit],
    progress: Progress,
    *,
    place: Callable[[Unit], Path],
    **notes: Any,
) -> Iterator[tuple[Unit, Kept | Exception, float]]:
    """Prepare each unit's fit, fit all in one batch, save what was fitted; then hand it out.

    Args:
        model: Left as it is.
        method: That of all units; at most `method.together` of them.
        units: What to fit.
        progress: Where to report.
        place: The folder of a unit; what is there of the very same unit is not made anew.
        notes: For the configuration of what is saved.

    Returns:
        Each unit with what was fitted, or the exception it ended in, and the seconds of its fit.

    Raises:
        UserError: An adapter cannot be saved.
    """
    waiting: list[tuple[Unit, float, Any]] = []
    for unit in units:
        cost = unit_cost(model, unit)
        if (kept := _kept(unit, place(unit))) is not None:
            progress.advance(cost.embedding + cost.fitting)
            yield unit, *kept
            continue
        progress.say(f"{unit.label}: embedding")
        each, start = progress.steps(cost.embedding / method.n_read(unit.task.name)), time.perf_counter()
        prepared = attempt(_prepare, model, method, unit, each)
        if isinstance(prepared, Exception):
            progress.advance(cost.embedding + cost.fitting)
            yield unit, prepared, time.perf_counter() - start
            continue
        waiting.append((unit, time.perf_counter() - start, prepared))
    if not waiting:
        return
    progress.say(f"fitting {waiting[0][0].label}" + (f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""))
    share = sum(unit_cost(model, unit).fitting for unit, *_ in waiting) / max(1, method.n_fit_steps * len(waiting))
    start = time.perf_counter()
    made_together = _fit(model, method, [prepared for *_, prepared in waiting], progress.steps(share))
    seconds = (time.perf_counter() - start) / len(waiting)
    fitted = [(unit, made, spent + seconds) for (unit, spent, _), made in zip(waiting, made_together, strict=True)]
    for unit, made, fit_seconds in fitted:
        if not isinstance(made, Exception):
            told = {"unit_hash": unit.fit_hash, "fit_seconds": fit_seconds, "preset": getattr(method, "preset", None)}
            made.save_pretrained(place(unit), **{**told, **notes})
    yield from fitted


def _prepare(model: Model, method: FitsTogether, unit: Unit, advance: Callable[[int], None]) -> Any:
    return method.prepare(model, unit.labelled(), unit.seed, advance)


def _fit(
    model: Model, method: FitsTogether, prepared: Sequence[Any], advance: Callable[[int], None]
) -> Sequence[Kept | Exception]:
    """All in one batch; if that fails each alone, so that one bad task does not take the others with it."""
    together = attempt(method.fit_prepared, model, prepared, advance)
    if not isinstance(together, Exception):
        return together
    if len(prepared) == 1:
        return [together]
    return [_fit(model, method, [one], advance)[0] for one in prepared]


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
    """Whether a folder holds what was fitted for this very unit."""
    return _kept(unit, folder) is not None


def _kept(unit: Unit, folder: Path) -> tuple[Kept, float] | None:
    """What an earlier, interrupted run saved for this very unit, with the seconds of its fit."""
    if not folder.is_dir():
        return None
    try:
        notes, _ = read_files(folder, f"Cannot load a fitted method from {folder}")
        seconds = notes.get("fit_seconds")
        if notes.get("unit_hash") != unit.fit_hash or not isinstance(seconds, int | float):
            return None
        return load_fitted(folder), float(seconds)
    except UserError:
        return None  # half-written by a killed run: it is fitted again and replaced


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
