"""Public benchmarks in their original field names: BIG-Bench Hard, ANLI and MMLU-Pro, from a data folder or the hub.

None of them brings training examples that are right for this (BBH has no splits, ANLI's are of another size, MMLU-Pro's
validation is 70 rows): what is there is cut by the split seed, as `docs/benchmarks.md` says.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from site_interp.errors import UserError, did_you_mean
from site_interp.tasks.files import encoding_of, read_json, read_records
from site_interp.tasks.function_vectors import data_folder
from site_interp.tasks.rows import Columns, Record
from site_interp.tasks.source import Source

SOURCES: Mapping[str, str] = {
    "bbh": "BIG-Bench Hard",
    "anli": "Adversarial NLI",
    "mmlu_pro": "MMLU-Pro",
}
ANLI_ROUNDS = ("r1", "r2", "r3")
ANLI_WORDS = {"e": "True", "n": "Neither", "c": "False"}
MMLU_FILE = "test_sample.jsonl"
LETTERS = "ABCDEFGHIJ"
COLUMNS = Columns("input", "output")


def benchmark_names(data_dir: Path | str | None) -> tuple[str, ...]:
    """The benchmark tasks of a data folder, `source/name`, in the order of `SOURCES`."""
    folder = data_folder(data_dir)
    if folder is None:
        return ()
    bbh = [f"bbh/{path.stem}" for path in sorted((folder / "bbh").glob("*.json"))]
    anli = [f"anli/{part}" for part in ANLI_ROUNDS if (folder / "anli" / f"{part}_dev.jsonl").is_file()]
    rows = read_records(folder / "mmlu_pro" / MMLU_FILE) if (folder / "mmlu_pro" / MMLU_FILE).is_file() else ()
    mmlu = sorted({f"mmlu_pro/{_plain(row.values.get('category'))}" for row in rows})
    return (*bbh, *anli, *mmlu)


def read_benchmark(name: str, data_dir: Path | str | None) -> Source:
    """Read a benchmark task.

    Args:
        name: `bbh/date_understanding`, `anli/r1`, `mmlu_pro/law` (the category, spaces written as `_`).
        data_dir: Folder that holds `bbh/`, `anli/` and `mmlu_pro/`; None reads SITE_INTERP_DATA.

    Raises:
        UserError: No data folder, no such task in it, or a row without the fields it must have.
    """
    source, _, task = name.partition("/")
    folder = data_folder(data_dir)
    if folder is None:
        raise UserError(
            f"Cannot load task {name!r}: no data folder was named. Give --data-dir (data_dir), a folder that holds "
            f"{source}/, or set SITE_INTERP_DATA."
        )
    if name not in (known := benchmark_names(data_dir)):
        here = [one for one in known if one.startswith(f"{source}/")]
        raise UserError(
            f"Cannot load task {name!r}: {str(folder / source)!r} has {', '.join(here) or 'no tasks'}."
            f"{did_you_mean(name, here)}"
        )
    path = {
        "bbh": folder / "bbh" / f"{task}.json",
        "anli": folder / "anli" / f"{task}_dev.jsonl",
        "mmlu_pro": folder / "mmlu_pro" / MMLU_FILE,
    }[source]
    if source == "bbh":
        records = _bbh(path)
    elif source == "anli":
        records = [_anli(record) for record in read_records(path)]
    else:
        records = [_mmlu(row) for row in read_records(path) if _plain(row.values.get("category")) == task]
    return Source(
        name=name,
        description=f"{SOURCES[source]}: {task.replace('_', ' ')}",
        splits={"all rows": tuple(records)},
        columns=COLUMNS,
        encodings={str(path): encoding_of(path.read_bytes())},
    )


def _bbh(path: Path) -> list[Record]:
    """`{"examples": [{"input", "target"}]}`; a target that is the text of an option becomes its letter."""
    content = read_json(path)
    examples = content.get("examples") if isinstance(content, dict) else None
    if not isinstance(examples, list) or not all(isinstance(one, dict) for one in examples):
        raise UserError(f"Cannot load a task from {str(path)!r}: it has no list of examples. Give the original file.")
    records = []
    for number, one in enumerate(examples, start=1):
        record = Record(str(path), f"example {number}", one)
        text, target = _text(record, "input"), _text(record, "target")
        options = {words.strip(): letter for letter, words in re.findall(r"^(\([A-Z]\)) (.*)$", text, re.MULTILINE)}
        records.append(_made(record, text, options.get(target.strip(), target)))
    return records


def _anli(record: Record) -> Record:
    """Context and hypothesis as a question of three answers, in the words of Brown et al. (2020, appendix G)."""
    label = _text(record, "label")
    if label not in ANLI_WORDS:
        raise UserError(
            f"Cannot load a task from {record.source!r}: {record.place} has the label {label!r}, not one of "
            f"{', '.join(ANLI_WORDS)}. Give the original file."
        )
    text = f"{_text(record, 'context')}\nQuestion: {_text(record, 'hypothesis')} True, False, or Neither?"
    return _made(record, text, ANLI_WORDS[label])


def _mmlu(record: Record) -> Record:
    """Question and lettered options; the answer is a letter."""
    options = record.values.get("options")
    if not isinstance(options, list) or not 2 <= len(options) <= len(LETTERS):
        raise UserError(
            f"Cannot load a task from {record.source!r}: {record.place} has no list of 2 to {len(LETTERS)} options. "
            "Give the original file."
        )
    answer = _text(record, "answer")
    if answer not in LETTERS[: len(options)]:
        raise UserError(
            f"Cannot load a task from {record.source!r}: {record.place} has the answer {answer!r}, and "
            f"{len(options)} options. Give the original file."
        )
    listed = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return _made(record, "\n".join([_text(record, "question"), "Options:", *listed]), answer)


def _made(record: Record, text: str, answer: str) -> Record:
    return Record(record.source, record.place, {COLUMNS.input: text, COLUMNS.output: answer})


def _text(record: Record, field: str) -> str:
    value = record.values.get(field)
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"Cannot load a task from {record.source!r}: {record.place} has no text as its {field!r}. Give the "
            "original file."
        )
    return value


def _plain(category: object) -> str:
    return str(category).replace(" ", "_")
