"""`site-interp patch`: which heads carry a task, by patching sets of them and each alone."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table

if TYPE_CHECKING:
    from site_interp.comparison import Interval
    from site_interp.experiments.patch_summary import Panel, RankedHead


def patch_verb(
    task: options.Tasks = None,
    suite: options.Suite = None,
    data_dir: options.DataDir = None,
    model: options.ModelName = "smollm2-135m",
    seeds: options.Seeds = "0",
    n_test: options.NTest = 50,
    n_queries: Annotated[int, typer.Option("--n-queries", min=1, help="Validation inputs of a sweep.")] = 25,
    n_random: Annotated[
        int, typer.Option("--n-random", min=0, help="Random sets of heads for each share, on the first seed.")
    ] = 20,
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
    """Patch the heads of tasks: which are they, are they enough, are they needed, does in-context learning use them.

    Prints the heads of the highest alpha, and what is scored as more and more heads are replaced by the task embedding,
    set back in the fitted adapter, or ablated in few-shot prompts. OUT/figures holds the curves, the alpha maps and the
    effect of every head alone. Without --task and --suite the demo suite is patched.

    Adapters are taken from the output folder of an earlier run or fitted first. Finished pieces are kept, and the same
    command continues.
    """
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
    (method,) = options.read_methods(
        ["site"],
        n_shots=n_shots,
        n_prompts=n_prompts,
        fitting=options.read_fitting(preset, steps, batch_size, lr, checkpoint),
        template=template,
        memory=budget,
    )
    numbers = options.read_seeds(seeds)
    loaded = options.read_model(model, device, dtype)

    from site_interp.experiments.adapters import adapters_there, fit_costs, obtain_adapters
    from site_interp.experiments.patch import PatchSettings, piece_cost, plan_pieces, run_pieces
    from site_interp.experiments.patch_figures import make_figures
    from site_interp.experiments.patch_summary import (
        panel_values,
        ranked_heads,
        read_curves,
        summarise_curves,
    )
    from site_interp.experiments.plan import describe_minutes, plan_units, seconds_per_token
    from site_interp.files import check_writable, json_line, locked
    from site_interp.records import unit_hash
    from site_interp.store import save_figures

    units = plan_units(loaded, tasks, [method], numbers, n_test)
    pieces = plan_pieces(units, PatchSettings(n_test, n_queries, n_random))
    folder = out or Path("runs") / unit_hash(pieces=[piece.hash for piece in pieces])
    if not plan:
        check_writable(folder / "figures")
    costs = {piece: piece_cost(loaded, piece) for piece in pieces}
    all_fits, to_fit = fit_costs(loaded, units, folder)
    to_patch = sum(cost for piece, cost in costs.items() if not piece.done(folder))
    seconds = (to_fit + to_patch) * seconds_per_token(loaded)
    print(
        f"Plan: {len(pieces)} pieces (tasks {len(tasks)}, seeds {len(numbers)}) on {loaded.name}, "
        f"{sum(piece.done(folder) for piece in pieces)} finished before; {describe_minutes(seconds)} to go. "
        f"{adapters_there(units, folder)} Output: {folder}",
        file=sys.stderr,
    )
    if plan:
        if as_json:
            labels = [piece.label for piece in pieces]
            print(json_line({"pieces": labels, "out": str(folder), "minutes": round(seconds / 60, 2)}))
        return
    with locked(folder), progress_bar(all_fits + sum(costs.values())) as progress:
        adapters = obtain_adapters(loaded, units, folder, progress)
        run_pieces(loaded, pieces, adapters, folder, memory=budget, progress=progress)
    panels = [
        panel for by_task in read_curves(pieces, folder).values() for panel in summarise_curves(by_task, "first_token")
    ]
    saved = save_figures(folder, make_figures(pieces, adapters, folder), replaces=["patching_", "effects_"])
    heads = ranked_heads(pieces, adapters, folder)
    if as_json:
        by_task = {name: [asdict(one) for one in ranked] for name, ranked in heads.items()}
        values = [{"question": panel.question, "metric": panel.metric, **panel_values(panel)} for panel in panels]
        print(json_line({"out": str(folder), "heads": by_task, "panels": values}))
        return
    show(_heads(heads, numbers[0]))
    for question in dict.fromkeys(panel.question for panel in panels):
        show(_table([panel for panel in panels if panel.question == question]))
    show("area: mean score over all shares of heads from 0 to 100 %. Intervals are over inputs and seeds.")
    show(f"Scores: {folder}/patching/, figures: {folder}/figures/")
    if saved.png_left_out:
        show(f"Figures are HTML only: {saved.png_left_out}")


N_HEADS = 8  # named for each task
SHOWN = (10, 30, 50)  # shares in the table; all are in the figures


def _heads(heads: "dict[str, list[RankedHead]]", seed: int) -> Any:
    """The heads of the highest alpha of each task, with what each does alone."""
    rows = [
        [task, ", ".join(f"L{one.layer}H{one.head} ({one.effect:+.2f})" for one in ranked[:N_HEADS])]
        for task, ranked in heads.items()
    ]
    title = f"heads of the highest alpha, seed {seed} (and the effect of each alone in zero-shot prompts, nats)"
    return table(["task", f"the first {N_HEADS}"], rows, title, left=(0, 1))


def _table(panels: "list[Panel]") -> Any:
    """First tokens right, by ranking and share, beside chance and the references."""
    from site_interp.experiments.patch_figures import TITLES

    first = panels[0]
    references = [line.name for line in first.references]
    heading = ["task", "heads by", *(f"{share} %" for share in SHOWN), "area", *references]
    rows = []
    for panel in panels:
        for line in panel.lines:
            cells = [_percent(panel.at(line.name, share)) for share in SHOWN]
            beside = [_percent(one.intervals[0]) for one in panel.references]
            rows.append([panel.task, line.name, *cells, _percent(line.area) if line.area else "", *beside])
        if panel.chance is not None:
            chance = panel.chance
            rows.append([panel.task, f"random ({chance.n_draws} draws)", *(_band(panel, share) for share in SHOWN), ""])
            rows[-1] += [""] * len(references)
    title = f"{TITLES[first.question]}: first token right, % [95 % interval; 5 to 95 % of random draws]"
    return table(heading, rows, title, left=(0, 1))


def _band(panel: "Panel", share: int) -> str:
    chance = panel.chance
    assert chance is not None
    place = chance.shares.index(share)
    return f"{100 * chance.means[place]:.1f} [{100 * chance.lows[place]:.1f}, {100 * chance.highs[place]:.1f}]"


def _percent(interval: "Interval") -> str:
    return f"{100 * interval.value:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
