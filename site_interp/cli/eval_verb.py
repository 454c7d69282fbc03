"""`site-interp eval`: score saved adapters beside the model as it is."""

from pathlib import Path
from typing import Annotated

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table


def eval_verb(
    adapter: Annotated[list[Path], typer.Argument(help="Adapter folders.")],
    task: options.Tasks = None,
    data_dir: options.DataDir = None,
    model: Annotated[str | None, typer.Option("--model", help="By default the adapter's model.")] = None,
    n_test: options.NTest = 100,
    memory: options.Memory = "4G",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    split_seed: Annotated[int | None, typer.Option("--split-seed", help="By default the adapter's.")] = None,
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate adapters on their own task (or those given), next to zero-shot on the same examples.

    A file's task is given again with --task FILE; another split than the adapter's is refused.
    """
    from site_interp.adapter import Adapter
    from site_interp.baselines import ZeroShot
    from site_interp.evaluation import EvaluationTable, evaluate
    from site_interp.tasks import Labelled

    budget = options.read_memory(memory)
    adapters = [Adapter.from_pretrained(folder) for folder in adapter]
    loaded = options.read_model(model or adapters[0].embedding.model, device, dtype)
    tables: list[EvaluationTable] = []
    with progress_bar(len(adapters) * max(len(task or []), 1)) as progress:
        for made in adapters:
            made.check_model(loaded)
            seed = made.embedding.split_seed if split_seed is None else split_seed
            columns = {"input_column": input_column, "output_column": output_column}
            for one in options.read_tasks(task or [made.embedding.task], None, data_dir, split_seed=seed, **columns):
                progress.say(f"{one.name}")
                plain = ZeroShot(made.template).fit(loaded, Labelled(one), 0)
                tables.append(evaluate(loaded, one, [plain, made], n_test=n_test, memory=budget))
                progress.advance(1)
    rows = [row for found in tables for row in found.rows]
    if as_json:
        from site_interp.files import json_line

        print(
            json_line(
                [
                    {"task": row.task, "method": row.method, "seed": row.seed, "n": len(row.texts)}
                    | {metric: vars(row.interval(metric)) for metric in row.scores}
                    for row in rows
                ]
            )
        )
        return
    heading, *lines = EvaluationTable(tuple(rows)).cells()
    cells = [[row.task, *line] for row, line in zip(rows, lines, strict=True)]
    show(table(["task", *heading], cells, f"{loaded.name}: percent, nats for answer_log_prob [95 % interval]"))
