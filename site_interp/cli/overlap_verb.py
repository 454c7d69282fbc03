"""`site-interp overlap`: which heads tasks share, and a catalogue of all heads."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table

if TYPE_CHECKING:
    from site_interp.experiments.overlap import CatalogueEntry, Overlap
    from site_interp.similarity import Stability


def overlap_verb(
    task: options.Tasks = None,
    suite: options.Suite = None,
    data_dir: options.DataDir = None,
    model: options.ModelName = "smollm2-135m",
    seeds: options.Seeds = "0",
    k: Annotated[int | None, typer.Option("--k", min=1, help="Heads in a set; by default 30 % of all.")] = None,
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
    """Compare the heads that tasks use with chance, say how stable they are, and list every head with what it does.

    Adapters are taken from the output folder of an earlier run or fitted first. With two seeds or more the agreement of
    seeds is told; tasks are compared on the first. Without --task and --suite the demo suite is used. OUT/figures holds
    the matrices, OUT/head_catalogue.csv every head with its alpha in each of these tasks.
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
    from site_interp.experiments.head_pieces import head_piece_costs, read_model_scores, read_task_heads
    from site_interp.experiments.overlap import catalogue_of, check_k, overlap, seed_stability
    from site_interp.experiments.overlap_summary import catalogue_csv, make_figures, overlap_values, spread_values
    from site_interp.experiments.plan import describe_minutes, plan_units, seconds_per_token
    from site_interp.files import check_writable, json_line, locked, write_atomically
    from site_interp.records import unit_hash
    from site_interp.store import save_figures

    check_k(k, loaded.n_layers * loaded.n_heads)
    units = plan_units(loaded, tasks, [method], numbers, 0)
    firsts = [unit for unit in units if unit.seed == numbers[0]]
    folder = out or Path("runs") / unit_hash(overlap=[unit.fit_hash for unit in units])
    if not plan:
        check_writable(folder / "figures")
    all_fits, to_fit = fit_costs(loaded, units, folder)
    everything, to_read = head_piece_costs(loaded, firsts, folder)
    seconds = (to_fit + to_read) * seconds_per_token(loaded)
    print(
        f"Plan: heads of {len(tasks)} tasks compared, seeds {len(numbers)}, on {loaded.name}; "
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
        heads = read_task_heads(loaded, firsts, adapters, folder, memory=budget, progress=progress)
        scores = read_model_scores(loaded, folder)
    compared = [adapters[one.name, numbers[0]] for one in tasks]
    found = overlap(compared, k=k)
    stabilities = (
        {one.name: seed_stability([adapters[one.name, seed] for seed in numbers], k=k) for one in tasks}
        if len(numbers) > 1
        else {}
    )
    entries = catalogue_of(compared, heads, scores)
    write_atomically(folder / "head_catalogue.csv", catalogue_csv(entries))
    figures = make_figures(found, compared, entries, stabilities, loaded.name)
    saved = save_figures(folder, figures, replaces=["overlap_", "alpha_distribution", "head_catalogue", "stability"])
    if as_json:
        by_task = {one.embedding.task: one for one in compared}
        spread = spread_values(heads, by_task)
        writes = {one.task: one.writes for one in heads}
        values = overlap_values(found, stabilities, loaded.name)
        print(json_line({"out": str(folder), **values, "spread": spread, "writes": writes}))
        return
    show(_pairs(found), _shapes(found, stabilities), _heads(entries))
    show(f"Heads: {folder}/head_catalogue.csv, figures: {folder}/figures/")
    if saved.png_left_out:
        show(f"Figures are HTML only: {saved.png_left_out}")


N_SHOWN = 15


def _pairs(found: "Overlap") -> Any:
    pairs = sorted(found.pairs, key=lambda pair: -pair.jaccard)[:N_SHOWN]
    rows = [
        [f"{pair.first} - {pair.second}", str(pair.shared), f"{pair.jaccard:.2f}", f"{pair.p_corrected:.1g}"]
        + [f"{value:.2f}" for value in (pair.weighted_jaccard, pair.cosine, pair.spearman)]
        for pair in pairs
    ]
    chance = found.chance
    title = (
        f"the {len(rows)} most similar of {len(found.pairs)} pairs, top {found.k} heads of {chance.n}; by chance they "
        f"share {chance.shared:.1f}, Jaccard {chance.jaccard:.2f}"
    )
    heading = ["tasks", "shared", "Jaccard", "p (Holm)", "weighted Jaccard", "cosine", "Spearman"]
    return table(heading, rows, title)


def _shapes(found: "Overlap", stabilities: "dict[str, Stability]") -> Any:
    rows = []
    for task, shape in found.shapes.items():
        stable = stabilities.get(task)
        rows.append(
            [task, *(f"{100 * share:.0f}" for share in (shape.near_zero, shape.near_one)), f"{shape.mean:.2f}"]
            + ([f"{stable.spearman:.2f}", f"{stable.jaccard:.2f}"] if stable else ["-", "-"])
        )
    heading = ["task", "alpha < 0.1, %", "alpha > 0.9, %", "mean", "Spearman of seeds", "Jaccard of seeds"]
    return table(heading, rows, "alpha over the heads, and how far seeds agree")


def _heads(entries: "list[CatalogueEntry]") -> Any:
    rows = []
    for entry in entries[:N_SHOWN]:
        looks_at = max(entry.looks_at, key=lambda part: entry.looks_at[part])
        rows.append(
            [
                f"L{entry.layer}H{entry.head}",
                str(entry.n_tasks),
                f"{entry.induction:.2f}",
                f"{entry.previous:.2f}",
                f"{looks_at} ({100 * entry.looks_at[looks_at]:.0f} %)",
            ]
        )
    heading = ["head", "tasks with alpha > 0.5", "induction", "previous token", "looks most at"]
    return table(heading, rows, f"the {len(rows)} heads that most tasks use")
