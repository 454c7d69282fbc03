"""`site-interp tasks`: what tasks there are, what is in them, and how their prompts read."""

from typing import Annotated

import typer

from site_interp.cli import options
from site_interp.cli.console import show, table

tasks_app = typer.Typer(help="List and look at tasks.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Task name or file.")]


@tasks_app.command("list")
def list_verb(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """List the bundled tasks, and those of a data folder."""
    from site_interp.tasks import list_tasks

    infos = list_tasks(data_dir)
    if as_json:
        from site_interp.files import json_line

        print(json_line([{"name": i.name, "description": i.description, "sizes": i.sizes} for i in infos]))
        return
    rows = [[info.name, *(map(str, info.sizes) if info.sizes else ("", "", "")), info.description] for info in infos]
    show(table(["task", "train", "valid", "test", "what it is"], rows))


@tasks_app.command("show")
def show_verb(
    name: Name,
    data_dir: options.DataDir = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Examples of each split.")] = 5,
    split_seed: options.SplitSeed = 0,
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a task: sizes, settings and the first examples of each split."""
    from site_interp.files import json_line

    (task,) = options.read_tasks(
        [name], None, data_dir, split_seed=split_seed, input_column=input_column, output_column=output_column
    )
    splits = {"train": task.train, "valid": task.valid, "test": task.test}
    if as_json:
        shown = {split: [{"input": e.input, "answers": e.answers} for e in rows[:n]] for split, rows in splits.items()}
        sizes = {split: len(rows) for split, rows in splits.items()}
        print(json_line({"name": task.name, "sizes": sizes, "split_hash": task.split_hash, "examples": shown}))
        return
    case = "case-sensitive" if task.case_sensitive else "case-insensitive"
    show(f"{task.name}: {task.description}" if task.description else task.name)
    show(
        f"{case}, split seed {task.split_seed}, split hash {task.split_hash}, {task.n_leaked} leaked test rows left out"
    )
    for split, rows in splits.items():
        lines = [[repr(e.input), " | ".join(map(repr, e.answers))] for e in rows[:n]]
        show(table(["input", "answers"], lines, f"{split}: {len(rows)} examples"))


@tasks_app.command("show-prompt")
def show_prompt_verb(
    name: Name,
    data_dir: options.DataDir = None,
    n_shots: options.NShots = 10,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the demonstrations.")] = 0,
    template: options.TemplateName = "qa",
    split_seed: options.SplitSeed = 0,
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
) -> None:
    """Print the zero-shot and few-shot prompt of the first test example, exactly as the model gets them."""
    from site_interp.prompts import draw_icl_prompts, load_template
    from site_interp.tasks import Labelled

    (task,) = options.read_tasks(
        [name], None, data_dir, split_seed=split_seed, input_column=input_column, output_column=output_column
    )
    text = load_template(template)
    (example,) = task.test_examples(1)
    (few_shot,) = draw_icl_prompts(Labelled(task), text, [example.input], n_shots=n_shots, seed=seed)
    print(f"--- zero-shot\n{text.zero_shot(example.input)}")
    print(f"--- {n_shots}-shot, seed {seed}\n{few_shot}")
    print(f"--- expected\n{' | '.join(repr(text.answer(answer)) for answer in example.answers)}")
