"""`site-interp tasks`: what tasks there are, what is in them, how their prompts read, and what is wrong with them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from site_interp.cli import options
from site_interp.cli.console import show, table

if TYPE_CHECKING:
    from rich.table import Table

    from site_interp.tasks.check import Finding

tasks_app = typer.Typer(help="List and look at tasks.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Task name, file, folder, or hub/ID of a data set.")]


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
    show(table(["task", "train", "valid", "test", "what it is"], rows, left=(0, 4)))


@tasks_app.command("show")
def show_verb(
    name: Name,
    data_dir: options.DataDir = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Examples of each split.")] = 5,
    split_seed: options.SplitSeed = 0,
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
    case_sensitive: options.CaseSensitive = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a task: sizes, settings and the first examples of each split."""
    from site_interp.files import json_line

    (task,) = options.read_tasks(
        [name],
        None,
        data_dir,
        split_seed=split_seed,
        input_column=input_column,
        output_column=output_column,
        case_sensitive=case_sensitive,
    )
    splits = {"train": task.train, "valid": task.valid, "test": task.test_examples()}  # test in the order it is used
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
    case_sensitive: options.CaseSensitive = None,
) -> None:
    """Print the zero-shot and few-shot prompt of the first test example, exactly as the model gets them."""
    from site_interp.prompts import draw_icl_prompts, load_template
    from site_interp.tasks import Labelled

    (task,) = options.read_tasks(
        [name],
        None,
        data_dir,
        split_seed=split_seed,
        input_column=input_column,
        output_column=output_column,
        case_sensitive=case_sensitive,
    )
    text = load_template(template)
    (example,) = task.test_examples(1)
    (few_shot,) = draw_icl_prompts(Labelled(task), text, [example.input], n_shots=n_shots, seed=seed)
    print(f"--- zero-shot\n{text.zero_shot(example.input)}")
    print(f"--- {n_shots}-shot, seed {seed}\n{few_shot}")
    print(f"--- expected\n{' | '.join(repr(text.answer(answer)) for answer in example.answers)}")


@tasks_app.command("check")
def check_verb(
    name: Name,
    data_dir: options.DataDir = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Check with this model's tokenizer too; by default without any, which is quick."),
    ] = None,
    n_shots: options.NShots = 10,
    template: options.TemplateName = "qa",
    split_seed: options.SplitSeed = 0,
    input_column: options.InputColumn = None,
    output_column: options.OutputColumn = None,
    case_sensitive: options.CaseSensitive = None,
    as_json: options.AsJson = False,
) -> None:
    """Look for what makes a task unusable or its scores mislead.

    Exit code 1 if a finding is an error, 2 if the file cannot be read at all.
    """
    from dataclasses import asdict

    from site_interp.files import json_line
    from site_interp.prompts import load_template
    from site_interp.task_checks import check_named

    text = load_template(template)
    findings, task = check_named(
        name,
        text,
        n_shots=n_shots,
        split_seed=split_seed,
        data_dir=data_dir,
        input_column=input_column,
        output_column=output_column,
        case_sensitive=case_sensitive,
    )
    if model is not None and task is not None:
        from site_interp.model import load_tokenizer
        from site_interp.token_checks import check_tokens

        tokenizer, n_ctx = load_tokenizer(model)
        findings += check_tokens(task, text, tokenizer, n_ctx=n_ctx, n_shots=n_shots)
    if as_json:
        print(json_line({"name": name, "findings": [asdict(finding) for finding in findings]}))
    else:
        show(_findings_table(findings))
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


def _findings_table(findings: "Sequence[Finding]") -> "Table":
    """One row a finding; sentences and examples wrap."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table("level", "check", "count", "what was found", box=box.SIMPLE_HEAD)
    made.columns[2].justify = "right"
    for found in findings:
        lines = [found.message, *found.examples]
        cells = [found.level, found.check, str(found.count) if found.count else "", "\n".join(lines)]
        made.add_row(*(Text(cell) for cell in cells))
    return made
