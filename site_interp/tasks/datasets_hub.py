"""Tasks from data sets that the `datasets` library reads: by their id on the Hugging Face hub, or from a folder.

`datasets` is imported inside the functions: it takes a second, and most tasks do without it.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from site_interp.errors import UserError
from site_interp.tasks.rows import Columns, Record
from site_interp.tasks.source import Source

DATA_SUFFIXES = (".arrow", ".csv", ".json", ".jsonl", ".parquet", ".tsv")

SPLIT_NAMES = {
    "train": "train",
    "validation": "valid",
    "valid": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}


def read_hub(name: str, columns: Columns) -> Source:
    """Read a data set of the hub, or of the cache of earlier downloads, without running code of its own.

    Args:
        name: The data set's id, such as `nyu-mll/glue:sst2`; after the colon the name of a configuration.
        columns: Which columns are input and answer; a nested one is written with a dot, as `answers.text`.

    Raises:
        UserError: No such data set within reach, or one that cannot be read.
    """
    data_id, _, config = name.partition(":")
    what = f"hub/{name}"
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", data_id):
        raise UserError(
            f"Cannot load a task from {what!r}: that is no data set's id. Write hub/NAME or hub/OWNER/NAME."
        )
    with _refusals(what, "Check the id, the configuration (hub/ID:CONFIG) and the connection"):
        data = _load(data_id, config or None, columns)
    return _source(what, what, data, columns)


def read_hub_records(data_id: str, config: str | None) -> dict[str, tuple[Record, ...]]:
    """Every split of a data set of the hub, all columns of it, as they stand.

    Raises:
        UserError: No such data set within reach, or one that cannot be read.
    """
    what, columns = f"hub/{data_id}", Columns()
    with _refusals(what, "Check the connection, or give a data folder that holds the files"):
        data = _load(data_id, config, columns)
    parts = dict(data) if isinstance(data, Mapping) else {"all rows": data}
    return {split: _records(what, split, part, None) for split, part in parts.items()}


def is_data_folder(folder: Path) -> bool:
    """Whether a folder holds files that `datasets` reads, in itself or one level below."""
    files = (path for place in ("*", "*/*") for path in folder.glob(place))
    return any(path.suffix.lower() in DATA_SUFFIXES and path.is_file() for path in files)


def read_folder(folder: Path, columns: Columns) -> Source:
    """Read a folder written by `save_to_disk`, or one of data files such as train.csv and test.csv.

    Args:
        folder: The folder; its name becomes the task's name.
        columns: Which columns are input and answer; a nested one is written with a dot.

    Raises:
        UserError: The folder holds nothing that can be read.
    """
    what = str(folder)
    if not is_data_folder(folder):
        raise UserError(
            f"Cannot load a task from {what!r}: the folder holds no data files. Give a file, or a folder with "
            "train.json, valid.json and test.json or written by Dataset.save_to_disk."
        )
    with _refusals(what, "Check the files in it"):
        if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
            import datasets

            data: Any = datasets.load_from_disk(what)
        else:
            data = _load(what, None, columns)
    return _source(f"file/{folder.resolve().name}", what, data, columns)


def _load(path: str, config: str | None, columns: Columns) -> Any:
    """`load_dataset`, with the cells of CSV files as they stand: pandas would make 1 of 01, and nothing of NA."""
    import datasets

    builder = datasets.load_dataset_builder(path, config)
    as_it_stands = {"converters": {columns.input: str, columns.output: str}, "keep_default_na": False}
    return datasets.load_dataset(path, config, **(as_it_stands if hasattr(builder.config, "converters") else {}))


@contextmanager
def _refusals(what: str, cure: str) -> Iterator[None]:
    """Turn what `datasets` raises into one sentence; its log is silent, its progress shows on a terminal only."""
    from datasets import disable_progress_bars, enable_progress_bars, logging
    from datasets.exceptions import DatasetsError
    from datasets.utils import are_progress_bars_disabled

    hide = not (sys.stderr.isatty() or are_progress_bars_disabled())
    verbosity = logging.get_verbosity()
    if hide:
        disable_progress_bars()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    except (DatasetsError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200] or type(error).__name__
        raise UserError(f"Cannot load a task from {what!r}: {reason.rstrip('.')}. {cure}.") from None
    finally:
        logging.set_verbosity(verbosity)
        if hide:
            enable_progress_bars()


def _source(name: str, what: str, data: Any, columns: Columns) -> Source:
    """The splits as records; one without a single answer, as test sets have whose labels are secret, is left out."""
    parts = dict(data) if isinstance(data, Mapping) else {"all rows": data}
    known = {SPLIT_NAMES[split]: part for split, part in parts.items() if split in SPLIT_NAMES}
    chosen = known if "train" in known else parts
    splits = {split: _records(what, split, part.flatten(), columns) for split, part in chosen.items()}
    answered = {
        split: records
        for split, records in splits.items()
        if split == "train" or any(record.values.get(columns.output) is not None for record in records)
    }
    return Source(name, f"data set {what}", answered or splits, columns)


def _records(what: str, split: str, part: Any, columns: Columns | None) -> tuple[Record, ...]:
    """The rows of a split with the two columns asked for, or with all where `columns` is None."""
    names = part.column_names
    wanted = [column for column in ((columns.input, columns.output) if columns else ()) if column in names]
    if len(wanted) < 2:  # the refusal of the first row names every column
        wanted = names
    features = part.features
    return tuple(
        Record(what, f"row {number} of {split}", {name: _cell(features[name], row[name]) for name in wanted})
        for number, row in enumerate(part.select_columns(wanted), start=1)
    )


def _cell(feature: Any, value: Any) -> object:
    """A cell as text: labels by their names, numbers as written by Python, what is missing as None."""
    if isinstance(value, list):
        inner = getattr(feature, "feature", feature[0] if isinstance(feature, list) else None)
        return [_cell(inner, item) for item in value]
    if value is None or isinstance(value, str | bool):
        return value
    if hasattr(feature, "int2str"):
        return feature.int2str(value) if value >= 0 else None
    if isinstance(value, float) and math.isnan(value):
        return None
    return str(value) if isinstance(value, int | float) else value
