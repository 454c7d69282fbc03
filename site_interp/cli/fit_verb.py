"""`site-interp fit`: make task adapters and save them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
) -> None:
    """Fit one adapter per task and seed, all in one batch, and save them."""
    tasks = options.read_tasks(
        task, suite, data_dir, split_seed=split_seed, input_column=input_column, output_column=output_column
    )
    numbers = options.read_seeds(seeds)
    fitting = options.read_fitting(preset, steps, batch_size, lr, checkpoint)
    budget = options.read_memory(memory)
    from site_interp.baselines import SITE
    from site_interp.files import check_writable, safe_name
    from site_interp.fitting import FitRun
    from site_interp.prompts import load_template
    from site_interp.tasks import Labelled

    check_writable(out)
    method = SITE(n_prompts, n_shots, fitting, load_template(template), budget)
    loaded = options.read_model(model, device, dtype)
    pairs = [(one, seed) for one in tasks for seed in numbers]
    with progress_bar(len(pairs) * (n_prompts + fitting.n_steps)) as progress:
        runs = []
        for one, seed in pairs:
            progress.say(f"{one.name} seed {seed}: embedding")
            labelled = Labelled(one)
            runs.append(FitRun(method.embed(loaded, labelled, seed, progress.advance), labelled, seed))
        progress.say(f"fitting {len(runs)} selection(s)")
        adapters = method.select(loaded, runs, progress.advance)
    for adapter in adapters:
        name = f"{safe_name(adapter.embedding.task)}__seed-{adapter.selection.seed}"
        adapter.save_pretrained(out if len(adapters) == 1 else out / name, preset=preset)
    show(
        table(
            ["task", "seed", "kept step", "validation loss, nats", "alpha > 0.9", "labels"], list(map(_row, adapters))
        )
    )
    show(f"Saved to {out}")


def _row(adapter: "Adapter") -> list[str]:
    selection, trace = adapter.selection, adapter.selection.trace
    loss = "-" if trace is None else f"{trace.valid_loss[trace.valid_steps.index(trace.chosen_step)]:.3f}"
    step = "-" if trace is None else str(trace.chosen_step)
    return [adapter.embedding.task, str(selection.seed), step, loss, f"{selection.n_open} heads", str(adapter.n_labels)]
