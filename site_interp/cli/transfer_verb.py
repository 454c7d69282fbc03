"""`site-interp transfer`: the heads of each task on every other."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table

if TYPE_CHECKING:
    from site_interp.comparison import Interval
    from site_interp.experiments.transfer_summary import Transfer


def transfer_verb(
    task: options.Tasks = None,
    suite: options.Suite = None,
    data_dir: options.DataDir = None,
    model: options.ModelName = "smollm2-135m",
    seeds: options.Seeds = "0",
    n_test: options.NTest = 50,
    share: Annotated[float, typer.Option("--share", min=0.01, max=100, help="Heads of a top-k mask, in percent.")] = 30,
    joint: Annotated[bool, typer.Option("--joint/--no-joint", help="Also fit one alpha for all tasks.")] = True,
    n_shots: options.NShots = 10,
    n_prompts: options.NPrompts = 50,
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    preset: options.Preset = "default",
    checkpoint: options.Checkpoint = "best",
    template: options.TemplateName = "qa",
    memory: options.Memory = "4G",
    out: Annotated[Path | None, typer.Option("--out", help="Output folder; by default runs/<hash>.")] = None,
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
    """Use the heads of each task on every other, with the target's own embedding, and the other way round.

    Beside them stand the target's own alphas on shuffled heads (chance) and one alpha fitted on all tasks. Without
    --task and --suite the demo suite is used. OUT/figures holds the matrices.

    Adapters are taken from the output folder of an earlier run or fitted first. Finished targets are kept, and the same
    command continues.
    """
    from site_interp.tasks import check_several

    tasks = options.read_tasks(
        task,
        suite,
        data_dir,
        default_suite="demo",
        split_seed=split_seed,
        keep_leaks=keep_leaks,
        input_column=input_column,
        output_column=output_column,
        case_sensitive=case_sensitive,
    )
    budget = options.read_memory(memory)
    fitting = options.read_fitting(preset, steps, batch_size, lr, checkpoint)
    (method,) = options.read_methods(
        ["site"], n_shots=n_shots, n_prompts=n_prompts, fitting=fitting, template=template, memory=budget
    )
    numbers = options.read_seeds(seeds)
    check_several([one.name for one in tasks])
    loaded = options.read_model(model, device, dtype)

    from site_interp.experiments.adapters import adapters_there, fit_costs, obtain_adapters
    from site_interp.experiments.plan import describe_minutes, plan_units, seconds_per_token
    from site_interp.experiments.transfer import TransferSettings, column_hash, run_transfer, transfer_costs
    from site_interp.experiments.transfer_summary import (
        make_figures,
        overlap_correlation,
        summarise_transfer,
        transfer_values,
    )
    from site_interp.files import check_writable, json_line, locked
    from site_interp.records import unit_hash
    from site_interp.store import save_figures

    settings = TransferSettings(n_test=n_test, share=share, joint=joint)
    units = plan_units(loaded, tasks, [method], numbers, n_test)
    folder = out or Path("runs") / unit_hash(columns=[column_hash(units, unit, settings) for unit in units])
    if not plan:
        check_writable(folder / "figures")
    all_fits, to_fit = fit_costs(loaded, units, folder)
    everything, to_measure = transfer_costs(loaded, units, settings, folder)
    seconds = (to_fit + to_measure) * seconds_per_token(loaded)
    print(
        f"Plan: heads of {len(tasks)} tasks on each other, seeds {len(numbers)}, on {loaded.name}; "
        f"{describe_minutes(seconds)} to go. "
        f"{adapters_there(units, folder)} Output: {folder}",
        file=sys.stderr,
    )
    if plan:
        if as_json:
            names = [one.name for one in tasks]
            print(json_line({"tasks": names, "out": str(folder), "minutes": round(seconds / 60, 2)}))
        return
    with locked(folder), progress_bar(all_fits + everything) as progress:
        adapters = obtain_adapters(loaded, units, folder, progress)
        columns = run_transfer(
            loaded, units, adapters, folder, settings=settings, fitting=fitting, memory=budget, progress=progress
        )
    found = summarise_transfer(columns)
    correlation = overlap_correlation(found, adapters)
    saved = save_figures(folder, make_figures(found, loaded.name, correlation), replaces=["transfer_"])
    if as_json:
        print(json_line({"out": str(folder), **transfer_values(found, loaded.name, correlation)}))
        return
    show(_matrix(found), _beside(found))
    wins = found.diagonal_wins("soft")
    show(f"No other task's alpha scores higher than the target's own on {len(wins)} of {len(found.tasks)} tasks.")
    p_value = f"permutation p {correlation.p_value:.1g}"
    show(
        f"Heads that tasks share (Jaccard of the top {found.k}) and transfer, as a share of the target's own: "
        f"rank correlation {correlation.value:.2f} over {correlation.n_pairs} pairs ({p_value})."
    )
    show(f"Scores: {folder}/transfer/, figures: {folder}/figures/")
    if saved.png_left_out:
        show(f"Figures are HTML only: {saved.png_left_out}")


def _matrix(found: "Transfer") -> Any:
    from site_interp.tasks import short_names

    names = list(short_names(found.tasks).values())
    raw = found.values("soft")
    rows = [[name, *(f"{100 * value:.1f}" for value in line)] for name, line in zip(names, raw, strict=True)]
    title = f"alpha of the row's task, embedding of the column's: first token right, % (seeds {found.n_seeds})"
    return table(["source \\ target", *names], rows, title)


def _beside(found: "Transfer") -> Any:
    rows = [
        [task, *(_percent(by_task.get(task)) for by_task in (found.own, found.joint, found.shuffled))]
        for task in found.tasks
    ]
    return table(
        ["target", "own alpha", "one alpha for all", "shuffled alphas"], rows, "first token right, % [95 % interval]"
    )


def _percent(interval: "Interval | None") -> str:
    if interval is None:
        return "-"
    return f"{100 * interval.value:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
