"""`site-interp run`: methods on tasks, with a table, paired differences and figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table
from site_interp.errors import UserError

if TYPE_CHECKING:
    from site_interp.experiments.plan import Unit
    from site_interp.experiments.summary import Summary
    from site_interp.model import Model
    from site_interp.records import Record


METHOD_HELP = (
    "zero_shot, icl, many_shot_icl, site, function_vector, task_vector, mtv, i2cl, ltv, lora, ia3, knn, echo or "
    "majority; may be repeated, with settings behind a colon: lora:lr=0.003,rank=4. Echo and majority are always added."
)


LABELS_HELP = "Labelled examples a method may use, validation included, such as 10,50,200; by default all."


def run_verb(
    task: options.Tasks = None,
    suite: options.Suite = None,
    data_dir: options.DataDir = None,
    method: Annotated[list[str] | None, typer.Option("--method", help=METHOD_HELP)] = None,
    model: options.ModelName = "smollm2-135m",
    seeds: options.Seeds = "0",
    n_test: options.NTest = 100,
    labels: Annotated[str | None, typer.Option("--labels", help=LABELS_HELP)] = None,
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
    """Run methods on tasks; with no options the main job: the demo suite, zero-shot, 10-shot and SITE.

    Finished units are kept in the output folder, and the same command continues.
    """
    if data_dir is not None and not task and not suite and not _from_environment(data_dir):
        _list_tasks(data_dir)
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
    methods = options.read_methods(
        method or ["zero_shot", "icl", "site"],
        n_shots=n_shots,
        n_prompts=n_prompts,
        fitting=options.read_fitting(preset, steps, batch_size, lr, checkpoint),
        template=template,
        memory=budget,
        donors=tasks,
    )
    floors = options.read_methods(
        [name for name in ("echo", "majority") if name not in {m.name for m in methods}],
        n_shots=0,
        n_prompts=1,
        fitting=options.read_fitting("paper", None, None, None, "best"),
        template=template,
        memory=budget,
    )
    numbers = options.read_seeds(seeds)
    loaded = options.read_model(model, device, dtype)

    from site_interp.experiments.plan import plan_units
    from site_interp.files import check_writable, json_line
    from site_interp.records import unit_hash

    units = plan_units(loaded, tasks, [*floors, *methods], numbers, n_test, options.read_budgets(labels))
    folder = out or Path("runs") / unit_hash(units=[unit.hash for unit in units])
    if not plan:
        check_writable(folder / "figures")
    total, tokens, minutes = _announce(loaded, units, folder, [t for t in tasks if t.n_leaked])
    if plan:
        if as_json:
            told = {"units": [unit.label for unit in units], "out": str(folder), "minutes": minutes, "tokens": tokens}
            print(json_line(told))
        return
    raise typer.Exit(_execute(loaded, units, folder, budget, total, as_json=as_json))


def _from_environment(data_dir: Path) -> bool:
    import os

    return os.environ.get("SITE_INTERP_DATA") == str(data_dir)


def _list_tasks(data_dir: Path) -> None:
    from site_interp.tasks import list_tasks

    names = [info.name for info in list_tasks(data_dir) if info.source != "bundled"]
    raise UserError(
        f"Name what to run from {data_dir} with --task or --suite: {', '.join(names) or 'no task is there'}."
    )


def _announce(model: "Model", units: "list[Unit]", folder: Path, leaking: list[Any]) -> tuple[float, int, float]:
    """Print the plan; returns the whole work, and tokens and estimated minutes of what is not finished yet.

    Work is counted in tokens of long prompts.
    """
    import sys

    from site_interp.experiments.plan import describe_minutes, seconds_per_token, token_cost
    from site_interp.experiments.run import metrics_of
    from site_interp.store import peek_results

    finished = peek_results(folder).finished
    open_units = [unit for unit in units if not finished(unit.hash, metrics_of(unit))]
    costs = {unit.hash: token_cost(model, unit) for unit in units}
    tokens = sum(costs[unit.hash] for unit in open_units)
    seconds = tokens * seconds_per_token(model)
    n_methods = len({(unit.method.name, unit.variant) for unit in units})
    n_tasks = len({unit.task.name for unit in units})
    done = len(units) - len(open_units)
    print(
        f"Plan: {len(units)} results (tasks {n_tasks}, methods {n_methods}, echo and majority among them) on "
        f"{model.name}, {model.dtype_name}, {model.device}; {done} finished before; {describe_minutes(seconds)} to go. "
        f"Output: {folder}",
        file=sys.stderr,
    )
    for task in leaking:
        print(f"{task.name}: {task.n_leaked} test rows left out, their pair stands in train or valid.", file=sys.stderr)
    return sum(costs.values()), round(tokens), round(seconds / 60, 2)


def _execute(model: "Model", units: "list[Unit]", folder: Path, memory: int, total: float, *, as_json: bool) -> int:
    from site_interp.experiments.run import run_units
    from site_interp.experiments.summary import comparison_rows, make_figures, summarise
    from site_interp.experiments.tables import write_tables
    from site_interp.experiments.tradeoffs import make_tradeoffs
    from site_interp.store import read_results, save_figures, write_comparisons

    with progress_bar(total) as progress:
        outcome = run_units(model, units, folder, memory=memory, progress=progress)
    records = read_results(folder)
    summary = summarise(units, records)
    chances = _chances(units)
    rows = comparison_rows(summary)
    write_comparisons(folder, rows)
    tables = write_tables(folder, summary, records, model.name, chances)
    saved = save_figures(folder, make_figures(summary, units, folder) | make_tradeoffs(summary, records))
    if as_json:
        from site_interp.files import json_line

        print(json_line({"out": str(folder), "cells": _cells(summary), "comparisons": rows, "outcome": vars(outcome)}))
    else:
        _show(summary, records, model.name, chances)
        for line in outcome.reasons:
            show(line)
        show(f"Results: {folder}/results.jsonl, tables: {tables}/, figures: {folder}/figures/")
        if saved.png_left_out:
            show(f"Figures are HTML only: {saved.png_left_out}")
    return 1 if outcome.failed else 0


def _chances(units: "list[Unit]") -> dict[str, float]:
    """What a blind choice gets right on the tasks of multiple choice."""
    found = {unit.task.name: unit.task.chance(unit.n_test) for unit in units}
    return {task: chance for task, chance in found.items() if chance is not None}


def _cells(summary: "Summary") -> list[dict[str, Any]]:
    return [
        {"task": c.task, "method": c.method, "metric": c.metric, "n_seeds": c.n_seeds, **vars(c.interval)}
        for c in summary.cells
    ]


MANY = 6  # methods: more than that do not stand side by side on a screen


def _show(summary: "Summary", records: "list[Record]", model: str, chances: dict[str, float]) -> None:
    """Tables of the headline metrics and the mean paired differences; with many methods, a line for each instead."""
    from site_interp.experiments.summary import MEAN
    from site_interp.experiments.tables import difference_table, overall_table, shown_metrics, task_table

    many = len(summary.methods) > MANY
    if many:
        heading, *rows = overall_table(summary, records)
        where = f"mean of {len(summary.tasks)} tasks" if len(summary.tasks) > 1 else summary.tasks[0]
        show(table(heading, rows, f"{model}: {where} [95 % interval]"))
    for metric, words in {} if many else shown_metrics(summary).items():
        heading, *rows = task_table(summary, metric, chances if metric == "choice_match" else None)
        official = f"{words} (the official score)" if metric == "prefix_match" else words
        show(table(heading, rows, f"{model}: {official} [95 % interval]"))
    reference = "site" if many and "site" in summary.methods else None
    heading, *rows = difference_table(summary, reference)
    if rows:
        where = "mean of tasks" if any(d.task == MEAN for d in summary.differences) else summary.tasks[0]
        show(table(heading, rows, f"paired differences, {where}"))
