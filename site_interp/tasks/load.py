"""From a name to a task: the names, where they lead, and the suites that group them."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from site_interp.errors import UserError, did_you_mean
from site_interp.tasks import benchmarks, datasets_hub, function_vectors, molecules
from site_interp.tasks.bundled_tasks import BUNDLED, DEMO, load_bundled
from site_interp.tasks.files import SUFFIXES, encoding_of, read_records
from site_interp.tasks.rows import Columns
from site_interp.tasks.source import Source
from site_interp.tasks.task import Task

SUITES: dict[str, str] = {
    "demo": "the tasks that the demo runs, all bundled",
    "bundled": "every bundled task",
    "fv": "every Function Vectors task in the data folder",
    "bbh": "BIG-Bench Hard in the data folder",
    "anli": "the three rounds of ANLI in the data folder",
    "mmlu_pro": "the categories of MMLU-Pro in the data folder",
    "moleculenet": "BACE, BBBP and ClinTox in the data folder; needs rdkit",
}


FROM_DATA_FOLDER: Mapping[str, Callable[[str, Path | str | None], Source]] = {
    **dict.fromkeys(benchmarks.SOURCES, benchmarks.read_benchmark),
    molecules.SOURCE: molecules.read_molecules,
}
"""Sources whose tasks are read from the data folder by their name."""


@dataclass(frozen=True)
class TaskInfo:
    """One line of a task listing.

    Args:
        name: Name to load the task by.
        description: What input and answer are.
        source: Where the task comes from.
        sizes: Examples in train, valid and test; None where counting would mean reading the data.
    """

    name: str
    description: str
    source: Literal["bundled", "fv", "bbh", "anli", "mmlu_pro", "moleculenet"]
    sizes: tuple[int, int, int] | None


def load_task(
    name: str | Path,
    *,
    data_dir: Path | str | None = None,
    split_seed: int = 0,
    keep_leaks: bool = False,
    case_sensitive: bool | None = None,
    input_column: str | None = None,
    output_column: str | None = None,
) -> Task:
    """Load a task by name or path, split into train, valid and test.

    Rows that share an input become one example: the first answer trains, every answer counts as right.

    Args:
        name: `antonym` or `bundled/antonym` for a bundled task; `fv/antonym`, `bbh/date_understanding`, `anli/r1` or
            `mmlu_pro/law` for one in the data folder; `hub/ID` or `hub/ID:CONFIG` for a data set that the `datasets`
            library finds, the benchmarks among them (`hub/facebook/anli:r1`); or a path: of a .json, .jsonl, .csv or
            .tsv file, of a folder with train.json, valid.json and test.json, or of one that `datasets` reads.
        data_dir: Folder that holds `fv/`; None reads the environment variable SITE_INTERP_DATA.
        split_seed: Seed of the split where the source has none, and of the order of test examples.
        keep_leaks: Keep given test examples whose (input, answer) pair also stands in train or valid.
        case_sensitive: Whether metrics compare letter case; None leaves it to the task (for files: no).
        input_column: Column of a file or data set that holds the input; None means `input`.
        output_column: Column of a file or data set that holds the answer; None means `output`.

    Raises:
        UserError: No such task, no data folder, or data that cannot be read.

    Example:
        >>> task = load_task("country-capital")
        >>> task.name, len(task.test) >= 50
        ('bundled/country-capital', True)
    """
    if (bundled := bundled_name(name)) is not None:
        return load_bundled(bundled, split_seed=split_seed, case_sensitive=case_sensitive)
    source = read_source(name, data_dir=data_dir, input_column=input_column, output_column=output_column)
    return source.task(split_seed=split_seed, keep_leaks=keep_leaks, case_sensitive=case_sensitive)


def bundled_name(name: str | Path) -> str | None:
    """The bare name of a bundled task, or None if `name` is none."""
    source, _, rest = str(name).rpartition("/")
    return rest if isinstance(name, str) and source in ("", "bundled") and rest in BUNDLED else None


def read_source(
    name: str | Path,
    *,
    data_dir: Path | str | None = None,
    input_column: str | None = None,
    output_column: str | None = None,
) -> Source:
    """Read what stands behind the name or path of a task that is not bundled; the arguments are those of `load_task`.

    Raises:
        UserError: No such task, no data folder, or data that cannot be read.
    """
    if not str(name).strip():
        raise UserError("Cannot load a task without a name. `site-interp tasks list` shows the tasks.")
    columns = Columns(input_column or "input", output_column or "output")
    prefix, _, rest = str(name).partition("/")
    if isinstance(name, str) and prefix == "hub" and rest:
        known = rest.partition(":")[0] in benchmarks.HUB
        return benchmarks.read_hub_benchmark(rest) if known else datasets_hub.read_hub(rest, columns)
    if isinstance(name, str) and prefix in FROM_DATA_FOLDER and rest and not Path(name).exists():
        return FROM_DATA_FOLDER[prefix](name, data_dir)
    if isinstance(name, str) and prefix == "fv" and rest and (folder := _find_folder(rest, data_dir)) is not None:
        return function_vectors.read_task_folder(folder, columns)
    try:
        path = Path(name).expanduser()
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, RuntimeError, ValueError) as error:  # too long for a path, a NUL in it, no such user's home
        raise UserError(f"Cannot load task {str(name)[:60]!r}: {error}. Check the name.") from None
    is_folder, is_file = path.is_dir(), path.is_file()
    if is_folder and function_vectors.is_task_folder(path):
        return function_vectors.read_task_folder(path, columns)
    if is_file or path.suffix.lower() in SUFFIXES:
        records = read_records(path)
        encodings = {str(path): encoding_of(path.read_bytes())}
        return Source(f"file/{path.stem}", f"rows of {path.name}", {"all rows": records}, columns, False, encodings)
    if is_folder:
        return datasets_hub.read_folder(path, columns)
    raise UserError(_unknown_task(str(name), data_dir))


def list_tasks(data_dir: Path | str | None = None) -> list[TaskInfo]:
    """List the bundled tasks, then the Function Vectors tasks and the benchmarks of the data folder, if there is one.

    Args:
        data_dir: Folder that holds `fv/`; None reads the environment variable SITE_INTERP_DATA.

    Raises:
        UserError: The data folder named does not exist.
    """
    infos = []
    for name, bundled in BUNDLED.items():
        task = load_bundled(name)
        sizes = (len(task.train), len(task.valid), len(task.test))
        infos.append(TaskInfo(task.name, bundled.description, "bundled", sizes))
    root = function_vectors.find_root(data_dir)
    for folder in function_vectors.task_folders(root) if root else ():
        infos.append(TaskInfo(f"fv/{folder.name}", function_vectors.describe(folder.name), "fv", None))
    for benchmark in benchmarks.benchmark_names(data_dir):
        prefix, _, rest = benchmark.partition("/")
        description = f"{benchmarks.SOURCES[prefix]}: {rest.replace('_', ' ')}"
        infos.append(TaskInfo(benchmark, description, prefix, None))  # type: ignore[arg-type]
    for molecule in molecules.molecule_names(data_dir):
        question = molecules.MOLECULES[molecule.partition("/")[2]].question
        infos.append(TaskInfo(molecule, f"a molecule (SMILES) -> {question}: Yes or No", "moleculenet", None))
    return infos


def suite_task_names(suite: str, data_dir: Path | str | None = None) -> tuple[str, ...]:
    """The names of a suite's tasks, in the order in which they run.

    Args:
        suite: A key of `SUITES`.
        data_dir: Folder that holds `fv/`, for the suite of that name.

    Raises:
        UserError: No such suite, or no tasks for it.
    """
    if suite in ("demo", "bundled"):
        return tuple(f"bundled/{name}" for name in (DEMO if suite == "demo" else BUNDLED))
    if suite in (*benchmarks.SOURCES, molecules.SOURCE):
        known = (*benchmarks.benchmark_names(data_dir), *molecules.molecule_names(data_dir))
        found = [name for name in known if name.startswith(f"{suite}/")]
        if not found:
            folder = function_vectors.data_folder(data_dir)
            reason = _NO_DATA_DIR if folder is None else f"{str(folder / suite)!r} holds none of its files."
            raise UserError(f"Cannot load suite {suite!r}: {reason}")
        return tuple(found)
    if suite != "fv":
        hint = did_you_mean(suite, SUITES)
        raise UserError(f"Cannot load suite {suite!r}: the suites are {', '.join(SUITES)}.{hint}")
    root = function_vectors.find_root(data_dir)
    if root is None:
        raise UserError(f"Cannot load suite 'fv': {_NO_DATA_DIR}")
    names = tuple(f"fv/{folder.name}" for folder in function_vectors.task_folders(root))
    if not names:
        raise UserError(f"Cannot load suite 'fv': {str(root)!r} holds no task folder with train.json in it.")
    return names


def load_suite(suite: str, *, data_dir: Path | str | None = None, split_seed: int = 0) -> tuple[Task, ...]:
    """Load every task of a suite.

    Args:
        suite: A key of `SUITES`.
        data_dir: Folder that holds `fv/`; None reads the environment variable SITE_INTERP_DATA.
        split_seed: Seed of the splits and of the order of test examples.

    Raises:
        UserError: No such suite, or data that cannot be read.
    """
    names = suite_task_names(suite, data_dir)
    return tuple(load_task(name, data_dir=data_dir, split_seed=split_seed) for name in names)


_NO_DATA_DIR = (
    "no data folder is known. Give the folder that holds fv/ as data_dir (--data-dir), or in the environment "
    f"variable {function_vectors.DATA_VARIABLE}."
)


def _find_folder(name: str, data_dir: Path | str | None) -> Path | None:
    root = function_vectors.find_root(data_dir)
    if root is None or not function_vectors.is_task_folder(root / name):
        return None
    return root / name


def _unknown_task(name: str, data_dir: Path | str | None) -> str:
    root = function_vectors.find_root(data_dir)
    if name.startswith("fv/") and root is None:
        return f"Cannot load task {name!r}: {_NO_DATA_DIR}"
    known = {f"bundled/{task}": task for task in BUNDLED}
    if root is not None:
        known |= {f"fv/{folder.name}": folder.name for folder in function_vectors.task_folders(root)}
    bare = difflib.get_close_matches(name.rpartition("/")[2], sorted(set(known.values())), n=3, cutoff=0.6)
    nearest = [full for close in bare for full, short in known.items() if short == close]
    if nearest:
        return f"Cannot load task {name!r}: there is no such task. Did you mean {' or '.join(nearest)}?"
    return (
        f"Cannot load task {name!r}: there is no such task or file. `site-interp tasks list` shows the tasks; any "
        "other name is read as fv/NAME, hub/ID or a path."
    )
