"""Options that several verbs share, and how their words become values."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.errors import UserError, did_you_mean
from site_interp.files import safe_name

if TYPE_CHECKING:
    from site_interp.baselines import Method
    from site_interp.model import Model
    from site_interp.selection import FitSettings
    from site_interp.tasks import Task

ModelName = Annotated[
    str, typer.Option("--model", help="Bundled name (smollm2-135m, gemma-3-270m), Hugging Face id, or folder.")
]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Task name or file; may be repeated.")]
Suite = Annotated[
    str | None, typer.Option("--suite", help="A named set of tasks: demo, bundled, fv, bbh, anli, mmlu_pro.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", envvar="SITE_INTERP_DATA", help="Folder that holds fv/ and other data.")
]
Seeds = Annotated[str, typer.Option("--seeds", help="Seeds, such as 0, 0,1,2 or 0-2.")]
NTest = Annotated[int, typer.Option("--n-test", min=1, help="Test examples per task.")]
NShots = Annotated[int, typer.Option("--n-shots", min=0, help="Demonstrations in a few-shot prompt (N).")]
NPrompts = Annotated[int, typer.Option("--n-prompts", min=1, help="Prompts for a task embedding (M).")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Steps of the fit; by default the preset's.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Examples per step and run.")]
LearningRate = Annotated[float | None, typer.Option("--lr", help="Adam step size, in logits of alpha.")]
Preset = Annotated[str, typer.Option("--preset", help="default, or paper (400 steps of 1 example, lr 0.2).")]
Checkpoint = Annotated[str, typer.Option("--checkpoint", help="best (validated step) or last, as the released code.")]
TemplateName = Annotated[str, typer.Option("--template", help="qa, chat, or a JSON file.")]
Memory = Annotated[str, typer.Option("--memory", help="Budget beside the model, such as 4G or 800M.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="float32, bfloat16 or float16; by default by device.")]
SplitSeed = Annotated[int, typer.Option("--split-seed", help="Seed of splits, where the source has none.")]
KeepLeaks = Annotated[bool, typer.Option("--keep-leaks", help="Keep test pairs that stand in train or valid.")]
InputColumn = Annotated[str | None, typer.Option("--input-column", help="Column of the inputs in a file or data set.")]
OutputColumn = Annotated[
    str | None, typer.Option("--output-column", help="Column of the answers in a file or data set.")
]
CaseSensitive = Annotated[
    bool | None,
    typer.Option(
        "--case-sensitive/--ignore-case", help="Whether letter case counts; by default the task's (files: no)."
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Print what would be done and how long it takes, then stop.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


MAX_SEEDS = 1000


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds from words such as `0`, `0,1,2` or `0-2`.

    Example:
        >>> read_seeds("0,2-4")
        (0, 2, 3, 4)
    """
    seeds: list[int] = []
    for part in re.split(r"[,\s]+", text.strip()):
        found = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part)
        if not found or (found[2] and int(found[2]) < int(found[1])):
            raise UserError(f"Cannot read the seeds {text!r}: write them as 0, 0,1,2 or 0-2.")
        if int(found[2] or found[1]) - int(found[1]) >= MAX_SEEDS:
            raise UserError(f"Cannot run with the seeds {text!r}: they are more than {MAX_SEEDS}. Give fewer.")
        seeds.extend(range(int(found[1]), int(found[2] or found[1]) + 1))
    if repeated := [seed for seed, n in Counter(seeds).items() if n > 1]:
        raise UserError(f"Cannot run with the seeds {text!r}: {repeated[0]} stands twice. Give each one once.")
    return tuple(seeds)


def read_budgets(text: str | None) -> tuple[int | None, ...]:
    """Budgets of labels from words such as `10,50,200`; none is all there are.

    Example:
        >>> read_budgets("10,50"), read_budgets(None)
        ((10, 50), (None,))
    """
    if text is None:
        return (None,)
    parts = [part for part in re.split(r"[,\s]+", text.strip()) if part]
    if not parts or not all(re.fullmatch("[0-9]{1,9}", part) for part in parts) or len(set(parts)) < len(parts):
        raise UserError(f"Cannot read the labels {text!r}: write numbers such as 10,50,200, each once.")
    return tuple(map(int, parts))


def read_memory(text: str) -> int:
    """Bytes from words such as `4G` or `800M`.

    Example:
        >>> read_memory("1G")
        1073741824
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MG])i?B?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * {"m": 1 << 20, "g": 1 << 30}[found[2].lower()] if found else 0
    if size < 1 << 26:
        raise UserError(f"Cannot use a memory budget of {text!r}: write it as 4G or 800M, at least 64M.")
    return int(size)


def read_tasks(
    names: Sequence[str] | None,
    suite: str | None,
    data_dir: Path | None,
    *,
    default_suite: str | None = None,
    split_seed: int = 0,
    **loading: Any,
) -> tuple["Task", ...]:
    """Load the tasks asked for by name and suite, each once."""
    from site_interp.tasks import load_task, suite_task_names

    wanted = list(names or [])
    if suite is not None or (not wanted and default_suite):
        wanted += suite_task_names(default_suite or "" if suite is None else suite, data_dir)
    if not wanted:
        raise UserError("No task was asked for. Give --task NAME or --suite NAME; `site-interp tasks list` shows them.")
    tasks = [load_task(name, data_dir=data_dir, split_seed=split_seed, **loading) for name in dict.fromkeys(wanted)]
    by_name = {safe_name(task.name): task for task in tasks}  # as adapters and predictions are named on disk
    if clash := next((task.name for task in tasks if task != by_name[safe_name(task.name)]), None):
        raise UserError(f"Two different tasks are called {clash!r}: results are kept by name. Rename one of the files.")
    return tuple(by_name.values())


def read_fitting(
    preset: str, steps: int | None, batch_size: int | None, lr: float | None, checkpoint: str
) -> "FitSettings":
    """Fit settings from a preset and the options that change it."""
    from dataclasses import replace

    from site_interp.baselines import PRESETS

    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise UserError(f"Cannot use the preset {preset!r}: there are {' and '.join(PRESETS)}.{hint}")
    if checkpoint not in ("best", "last"):
        hint = did_you_mean(checkpoint, ("best", "last"))
        raise UserError(f"Cannot keep the checkpoint {checkpoint!r}: there are best and last.{hint}")
    given: dict[str, Any] = {"n_steps": steps, "batch_size": batch_size, "lr": lr, "checkpoint": checkpoint}
    return replace(PRESETS[preset], **{key: value for key, value in given.items() if value is not None})


def read_methods(
    names: Sequence[str],
    *,
    n_shots: int,
    n_prompts: int,
    fitting: "FitSettings",
    template: str,
    memory: int,
    donors: tuple["Task", ...] = (),
) -> tuple["Method", ...]:
    """Methods by name, with the settings that concern them; further settings may stand behind a colon."""
    from site_interp.baselines import known_methods, named_method
    from site_interp.prompts import load_template

    known = known_methods(
        n_shots=n_shots,
        n_prompts=n_prompts,
        fitting=fitting,
        template=load_template(template),
        memory=memory,
        donors=donors,
    )
    return tuple(dict.fromkeys(named_method(name, known) for name in names))


def read_model(name: str, device: str, dtype: str | None, *, check: bool = True) -> "Model":
    """Load the model, quietly."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from site_interp.model import load_model

    return load_model(name, device=device, dtype=dtype, check=check)
