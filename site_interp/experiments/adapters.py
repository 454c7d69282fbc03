"""The adapters an analysis rests on: those an earlier run left in the output folder, the others fitted now."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from site_interp.adapter import Adapter
from site_interp.baselines import SITE
from site_interp.experiments.fit_units import Progress, check_place, fit_together, is_kept
from site_interp.experiments.plan import Unit, unit_cost
from site_interp.experiments.run import adapter_folder
from site_interp.model import Model


def obtain_adapters(
    model: Model, units: Sequence[Unit], out: Path, progress: Progress
) -> dict[tuple[str, int], Adapter]:
    """The adapter of each (task, seed), loaded from `out` or fitted, many in one batch, and saved there.

    Args:
        model: Left as it is.
        units: SITE units; what is scored with them does not matter.
        out: Output folder of this analysis or of an earlier run.
        progress: Where to report.

    Raises:
        UserError: A task cannot be fitted, or the folder holds an adapter of another model or of other data.
    """
    found: dict[tuple[str, int], Adapter] = {}
    for unit in units:
        check_place(unit, adapter_folder(out, unit))
    for method, same in groupby(units, key=lambda unit: unit.method):
        assert isinstance(method, SITE)
        several = list(same)
        for start in range(0, len(several), method.together):
            part = several[start : start + method.together]
            for unit, made, _ in fit_together(model, method, part, progress, place=partial(adapter_folder, out)):
                if isinstance(made, Exception):
                    raise made
                assert isinstance(made, Adapter)
                found[unit.task.name, unit.seed] = made
    return found


def fit_costs(model: Model, units: Sequence[Unit], out: Path) -> tuple[float, float]:
    """The work of all fits, and of those that `out` does not hold, in prefix tokens."""
    costs = {unit: unit_cost(model, unit) for unit in units}
    work = {unit: cost.embedding + cost.fitting for unit, cost in costs.items()}
    missing = [work[unit] for unit in units if not is_kept(unit, adapter_folder(out, unit))]
    return sum(work.values(), 0.0), sum(missing, 0.0)


def adapters_there(units: Sequence[Unit], out: Path) -> str:
    """How many adapters are taken from `out` and how many will be fitted, as a sentence."""
    there = sum(is_kept(unit, adapter_folder(out, unit)) for unit in units)
    return f"Adapters: {there} there, {len(units) - there} to fit."
