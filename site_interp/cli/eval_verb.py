"""`site-interp eval`: score saved adapters beside the model as it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table
from site_interp.errors import UserError

if TYPE_CHECKING:
    from site_interp.adapter import Adapter
    from site_interp.evaluation import Evaluation
    from site_interp.model import Model
    from site_interp.tasks import Task


def eval_verb(
    adapter: Annotated[list[Path], typer.Argument(help="Adapter folders.")],
    task: options.Tasks = None,
    data_dir: options.DataDir = None,
    model: Annotated[str | None, typer.Option("--model", help="By default the adapter's model.")] = None,
    n_test: options.NTest = 100,
    memory: options.Memory = "4G",
    out: Annotated[Path | None, typer.Option("--out", help="Folder whose results.jsonl takes the records.")] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    split_seed: Annotated[int | None, typer.Option("--split-seed", help="By default the adapter's.")] = None,
    keep_leaks: options.KeepLeaks = False,
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
    case_sensitive: options.CaseSensitive = None,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate adapters on their own task (or those given), next to zero-shot on the same examples.

    A file's task is given again with --task FILE; another split than the adapter's is refused.
    """
    from site_interp.adapter import Adapter
    from site_interp.evaluation import EvaluationTable
    from site_interp.files import json_line

    budget = options.read_memory(memory)
    adapters = [Adapter.from_pretrained(folder) for folder in adapter]
    pairs = [
        (made, one)
        for made in adapters
        for one in options.read_tasks(
            task or [_own_task(made)],
            None,
            data_dir,
            split_seed=made.embedding.split_seed if split_seed is None else split_seed,
            keep_leaks=keep_leaks,
            input_column=input_column,
            output_column=output_column,
            case_sensitive=case_sensitive,
        )
    ]
    loaded = options.read_model(adapters[0].embedding.model if model is None else model, device, dtype)
    for made in adapters:
        made.check_model(loaded)
    rows = _evaluate(loaded, pairs, n_test, budget, out)
    if as_json:
        print(json_line([_values(row) for row in rows]))
        return
    heading, *lines = EvaluationTable(tuple(rows)).cells()
    cells = [[row.task, *line] for row, line in zip(rows, lines, strict=True)]
    show(table(["task", *heading], cells, f"{loaded.name}: percent, nats for answer_log_prob [95 % interval]"))
    if out is not None:
        show(f"Results: {out}/results.jsonl")


def _own_task(adapter: "Adapter") -> str:
    """Name of the task an adapter was fitted on, where a name is enough to find it."""
    task = adapter.embedding.task
    if task.startswith("file/"):
        raise UserError(
            f"Cannot find the file of task '{task}', on which the adapter was fitted. Give it again with --task FILE."
        )
    return task


def _evaluate(
    model: "Model", pairs: "list[tuple[Adapter, Task]]", n_test: int, memory: int, out: Path | None
) -> "list[Evaluation]":
    """Zero-shot once for each task and template, and each adapter; recorded as soon as done where there is a folder."""
    from contextlib import nullcontext

    from site_interp.baselines import SavedSITE, ZeroShot
    from site_interp.evaluation import evaluate_fitted
    from site_interp.experiments.plan import Unit
    from site_interp.experiments.run import records_of
    from site_interp.store import open_results
    from site_interp.tasks import Labelled

    units = {}
    for made, one in pairs:
        for method, seed in ((ZeroShot(made.template), 0), (SavedSITE(made), made.selection.seed)):
            unit = Unit(one, method, seed, n_test, model.name, model.fingerprint.id, model.dtype_name)
            units[unit.hash] = unit
    rows = []
    with progress_bar(float(len(units))) as progress, nullcontext() if out is None else open_results(out) as results:
        for unit in units.values():
            progress.say(unit.label)
            fitted = unit.method.fit(model, Labelled(unit.task), unit.seed)
            rows.append(
                evaluate_fitted(model, unit.task, fitted, seed=unit.seed, n_test=n_test, memory=memory, progress=_quiet)
            )
            if results is not None:
                results.append(records_of(unit, rows[-1], 0.0))
            progress.advance(1.0)
    return rows


def _quiet(_: int) -> None:
    """The bar of the verb is enough."""


def _values(row: "Evaluation") -> dict[str, Any]:
    intervals: dict[str, Any] = {metric: vars(row.interval(metric)) for metric in row.scores}
    return {"task": row.task, "method": row.method, "seed": row.seed, "n": len(row.texts), **intervals}
