"""`site-interp fit`: make task adapters and save them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table

if TYPE_CHECKING:
    from site_interp.adapter import Adapter
    from site_interp.experiments.fit_units import Progress
    from site_interp.experiments.plan import Unit
    from site_interp.model import Model


def fit_verb(
    out: Annotated[Path, typer.Option("--out", help="Adapter folder; with several fits a folder of adapters.")],
    task: options.Tasks = None,
    suite: options.Suite = None,
    data_dir: options.DataDir = None,
    model: options.ModelName = "smollm2-135m",
    seeds: options.Seeds = "0",
    n_shots: options.NShots = 10,
    n_prompts: options.NPrompts = 50,
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    preset: options.Preset = "default",
    checkpoint: options.Checkpoint = "best",
    template: options.TemplateName = "qa",
    memory: options.Memory = "4G",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    split_seed: options.SplitSeed = 0,
    keep_leaks: options.KeepLeaks = False,
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
    case_sensitive: options.CaseSensitive = None,
    plan: options.Plan = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit one adapter per task and seed, many in one batch, and save them.

    A task that fails leaves the others alone, and the same command continues.
    """
    tasks = options.read_tasks(
        task,
        suite,
        data_dir,
        split_seed=split_seed,
        keep_leaks=keep_leaks,
        input_column=input_column,
        output_column=output_column,
        case_sensitive=case_sensitive,
    )
    numbers = options.read_seeds(seeds)
    fitting = options.read_fitting(preset, steps, batch_size, lr, checkpoint)
    budget = options.read_memory(memory)
    from site_interp.baselines import PRESETS, SITE
    from site_interp.experiments.fit_units import check_place
    from site_interp.experiments.plan import describe_minutes, plan_units, seconds_per_token, token_cost
    from site_interp.files import check_writable, json_line, locked
    from site_interp.prompts import load_template

    method = SITE(n_prompts, n_shots, fitting, load_template(template), budget)
    if not plan:
        check_writable(out)
    loaded = options.read_model(model, device, dtype)
    units = plan_units(loaded, tasks, [method], numbers, 0)
    total = sum(token_cost(loaded, unit) for unit in units)
    seconds = total * seconds_per_token(loaded)
    made = "1 adapter" if len(units) == 1 else f"{len(units)} adapters"
    print(f"Plan: {made} on {loaded.name}, {describe_minutes(seconds)}. Output: {out}", file=sys.stderr)
    if plan:
        if as_json:
            fits = [{"task": unit.task.name, "seed": unit.seed} for unit in units]
            print(json_line({"fits": fits, "out": str(out), "minutes": round(seconds / 60, 2)}))
        return
    used = preset if fitting == PRESETS[preset] else None
    with locked(out), progress_bar(total) as progress:
        for unit in units:
            check_place(unit, _folder(out, unit, len(units)))
        adapters, reasons = _fit(loaded, units, out, progress, preset=used)
    if as_json:
        print(json_line([_values(*pair) for pair in adapters]))
    else:
        heading = [
            "task",
            "seed",
            "kept step",
            "validation loss, nats",
            "heads with alpha > 0.9",
            "labelled examples used",
        ]
        show(table(heading, [_row(adapter) for adapter, _ in adapters]))
        show(f"Saved to {out}" if adapters else "No adapter was saved.")
    for reason in reasons:
        print(reason, file=sys.stderr)
    raise typer.Exit(1 if reasons else 0)


def _folder(out: Path, unit: "Unit", n_units: int) -> Path:
    from site_interp.files import safe_name

    return out if n_units == 1 else out / f"{safe_name(unit.task.name)}__seed-{unit.seed}"


def _fit(
    model: "Model", units: "list[Unit]", out: Path, progress: "Progress", *, preset: str | None
) -> "tuple[list[tuple[Adapter, Path]], list[str]]":
    """Every adapter with its folder, and a line for each unit that failed; where there is one unit, its error."""
    from site_interp.adapter import Adapter
    from site_interp.baselines import SITE
    from site_interp.errors import UserError
    from site_interp.experiments.fit_units import fit_together, log_error

    made, reasons = [], []
    method = units[0].method
    assert isinstance(method, SITE)

    def place(unit: "Unit") -> Path:
        return _folder(out, unit, len(units))

    for start in range(0, len(units), method.together):
        part = units[start : start + method.together]
        for unit, fitted, _ in fit_together(model, method, part, progress, place=place, preset=preset):
            if not isinstance(fitted, Exception):
                assert isinstance(fitted, Adapter)
                made.append((fitted, place(unit)))
                continue
            if len(units) == 1:
                raise fitted
            if not isinstance(fitted, UserError):
                log_error(out, unit, fitted)
            reasons.append(f"{unit.label}: failed: {str(fitted) or type(fitted).__name__}")
    return made, reasons


def _values(adapter: "Adapter", folder: Path) -> dict[str, Any]:
    trace = adapter.selection.trace
    assert trace is not None
    return {
        "task": adapter.embedding.task,
        "seed": adapter.selection.seed,
        "chosen_step": trace.chosen_step,
        "valid_loss": trace.valid_loss[trace.valid_steps.index(trace.chosen_step)],
        "n_open": adapter.selection.n_open,
        "labels": adapter.n_labels,
        "folder": str(folder),
    }


def _row(adapter: "Adapter") -> list[str]:
    task, seed, step, loss, n_open, labels, _ = _values(adapter, Path()).values()
    return [task, str(seed), str(step), f"{loss:.3f}", f"{n_open} of {adapter.selection.logits.numel()}", str(labels)]
