"""Tasks in the layout of the Function Vectors data: a folder with train.json, valid.json and test.json."""

import os
from pathlib import Path

from site_interp.errors import UserError
from site_interp.tasks.files import encoding_of, read_records
from site_interp.tasks.rows import Columns
from site_interp.tasks.source import Source

SPLIT_FILES = ("train.json", "valid.json", "test.json")

DATA_VARIABLE = "SITE_INTERP_DATA"


def is_task_folder(folder: Path) -> bool:
    """Whether the folder holds at least one of the three split files."""
    return any((folder / name).is_file() for name in SPLIT_FILES)


def read_task_folder(folder: Path, columns: Columns) -> Source:
    """Read one task folder with its given splits; the folder's name becomes the task's name.

    Args:
        folder: Folder with train.json, valid.json and test.json.
        columns: Keys of the input and the answer.

    Raises:
        UserError: A file is missing or cannot be read.
    """
    name = folder.resolve().name
    paths = {Path(file).stem: folder / file for file in SPLIT_FILES}
    return Source(
        name=f"fv/{name}",
        description=describe(name),
        splits={split: read_records(path) for split, path in paths.items()},
        columns=columns,
        case_sensitive=is_about_letter_case(name),
        encodings={str(path): encoding_of(path.read_bytes()) for path in paths.values()},
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


def data_folder(data_dir: Path | str | None) -> Path | None:
    """The folder that holds `fv/` and other data, or None if none was named.

    Args:
        data_dir: The folder; None reads SITE_INTERP_DATA.

    Raises:
        UserError: The folder named does not exist.
    """
    named = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise UserError(f"Cannot look for tasks in {str(folder)!r}: there is no such folder. Check the data folder.")
    return folder


def find_root(data_dir: Path | str | None) -> Path | None:
    """The folder that holds the task folders, or None if no data folder was named.

    Args:
        data_dir: A folder that holds `fv/`, or the `fv` folder itself; None reads SITE_INTERP_DATA.

    Raises:
        UserError: The folder named does not exist.
    """
    folder = data_folder(data_dir)
    return folder / "fv" if folder is not None and (folder / "fv").is_dir() else folder


def task_folders(root: Path) -> tuple[Path, ...]:
    """Every task folder below `root`, by name."""
    return tuple(sorted(folder for folder in root.iterdir() if folder.is_dir() and is_task_folder(folder)))
