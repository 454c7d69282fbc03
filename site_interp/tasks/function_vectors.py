"""Tasks in the layout of the Function Vectors data: a folder with train.json, valid.json and test.json."""

import os
from pathlib import Path

from site_interp.errors import UserError
from site_interp.tasks.files import read_rows
from site_interp.tasks.splits import clear_leaks
from site_interp.tasks.task import Task

SPLIT_FILES = ("train.json", "valid.json", "test.json")

DATA_VARIABLE = "SITE_INTERP_DATA"


def is_task_folder(folder: Path) -> bool:
    """Whether the folder holds at least one of the three split files."""
    return any((folder / name).is_file() for name in SPLIT_FILES)


def load_task_folder(
    folder: Path,
    *,
    split_seed: int = 0,
    keep_leaks: bool = False,
    case_sensitive: bool | None = None,
    input_column: str = "input",
    output_column: str = "output",
) -> Task:
    """Load one task folder with its given splits; the folder's name becomes the task's name.

    Args:
        folder: Folder with train.json, valid.json and test.json.
        split_seed: Seed of the order of test examples; the splits stay as given.
        keep_leaks: Keep test examples whose (input, answer) pair also stands in train or valid.
        case_sensitive: Whether metrics compare letter case; None decides by the task's name.
        input_column: Key of the input.
        output_column: Key of the answer.

    Raises:
        UserError: A file is missing or cannot be read, or a split is empty.
    """
    name = f"fv/{folder.resolve().name}"
    columns = {"input_column": input_column, "output_column": output_column}
    rows = [read_rows(folder / file, **columns) for file in SPLIT_FILES]
    (train, valid, test), n_leaked = clear_leaks(rows, name=name, keep_leaks=keep_leaks)
    return Task(
        name=name,
        train=train,
        valid=valid,
        test=test,
        case_sensitive=is_about_letter_case(folder.resolve().name) if case_sensitive is None else case_sensitive,
        split_seed=split_seed,
        description=describe(folder.resolve().name),
        n_leaked=n_leaked,
    )


def is_about_letter_case(name: str) -> bool:
    """Whether a Function Vectors task asks for upper or lower case, so that metrics must not ignore it.

    Example:
        >>> is_about_letter_case("capitalize_last_letter"), is_about_letter_case("country-capital")
        (True, False)
    """
    return "capitalize" in name or "lowercase" in name or name == "next_capital_letter"


def describe(name: str) -> str:
    """One line for listings."""
    return f"Function Vectors task: {name.replace('_', ' ').replace('-', ' to ')}"


def find_root(data_dir: Path | str | None) -> Path | None:
    """The folder that holds the task folders, or None if no data folder was named.

    Args:
        data_dir: A folder that holds `fv/`, or the `fv` folder itself; None reads SITE_INTERP_DATA.

    Raises:
        UserError: The folder named does not exist.
    """
    named = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise UserError(f"Cannot look for tasks in {str(folder)!r}: there is no such folder. Check the data folder.")
    return folder / "fv" if (folder / "fv").is_dir() else folder


def task_folders(root: Path) -> tuple[Path, ...]:
    """Every task folder below `root`, by name."""
    return tuple(sorted(folder for folder in root.iterdir() if folder.is_dir() and is_task_folder(folder)))
