"""`site-interp fit`: make task adapters and save them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table

if TYPE_CHECKING:
    from site_interp.adapter import Adapter


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
    plan: options.Plan = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit one adapter per task and seed, all in one batch, and save them."""
    tasks = options.read_tasks(
        task,
        suite,
        data_dir,
        split_seed=split_seed,
        keep_leaks=keep_leaks,
        input_column=input_column,
        output_column=output_column,
    )
    numbers = options.read_seeds(seeds)
    fitting = options.read_fitting(preset, steps, batch_size, lr, checkpoint)
    budget = options.read_memory(memory)
    from site_interp.baselines import PRESETS, SITE
    from site_interp.experiments.plan import describe_minutes, plan_units, seconds_per_token, token_cost
    from site_interp.files import check_writable, json_line, safe_name
    from site_interp.fitting import FitRun
    from site_interp.prompts import load_template
    from site_interp.tasks import Labelled

    method = SITE(n_prompts, n_shots, fitting, load_template(template), budget)
    if not plan:
        check_writable(out)
    loaded = options.read_model(model, device, dtype)
    units = plan_units(loaded, tasks, [method], numbers, 0)
    seconds = sum(token_cost(loaded, unit) for unit in units) * seconds_per_token(loaded)
    print(
        f"Plan: {len(units)} adapter(s) on {loaded.name}, {describe_minutes(seconds)}. Output: {out}", file=sys.stderr
    )
    if plan:
        if as_json:
            fits = [{"task": unit.task.name, "seed": unit.seed} for unit in units]
            print(json_line({"fits": fits, "out": str(out), "minutes": round(seconds / 60, 2)}))
        return
    pairs = [(one, seed) for one in tasks for seed in numbers]
    with progress_bar(float(len(pairs) * (n_prompts + fitting.n_steps))) as progress:
        runs = []
        for one, seed in pairs:
            progress.say(f"{one.name} seed {seed}: embedding")
            labelled = Labelled(one)
            runs.append(FitRun(method.embed(loaded, labelled, seed, progress.steps(1.0)), labelled, seed))
        progress.say(f"fitting {len(runs)} selection(s)")
        adapters = method.select(loaded, runs, progress.steps(1.0))
    folders = []
    for adapter in adapters:
        name = f"{safe_name(adapter.embedding.task)}__seed-{adapter.selection.seed}"
        folders.append(out if len(adapters) == 1 else out / name)
        adapter.save_pretrained(folders[-1], preset=preset if fitting == PRESETS[preset] else None)
    if as_json:
        print(json_line([_values(*pair) for pair in zip(adapters, folders, strict=True)]))
        return
    show(
        table(
            ["task", "seed", "kept step", "validation loss, nats", "alpha > 0.9", "labels"], list(map(_row, adapters))
        )
    )
    show(f"Saved to {out}")


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
    return [task, str(seed), str(step), f"{loss:.3f}", f"{n_open} heads", str(labels)]
