"""Public benchmarks in their original field names: BIG-Bench Hard, ANLI and MMLU-Pro, from a data folder or the hub.

None of them brings training examples that are right for this (BBH has no splits, ANLI's are of another size, MMLU-Pro's
validation is 70 rows): what is there is cut by the split seed, as `docs/benchmarks.md` says.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from site_interp.errors import UserError, did_you_mean
from site_interp.tasks.datasets_hub import read_hub_records
from site_interp.tasks.files import encoding_of, read_json, read_records
from site_interp.tasks.function_vectors import data_folder
from site_interp.tasks.options import Options
from site_interp.tasks.rows import Columns, Record
from site_interp.tasks.source import Source

SOURCES: Mapping[str, str] = {
    "bbh": "BIG-Bench Hard",
    "anli": "Adversarial NLI",
    "mmlu_pro": "MMLU-Pro",
}
ANLI_ROUNDS = ("r1", "r2", "r3")
ANLI_WORDS = {"e": "True", "n": "Neither", "c": "False"}
ANLI_LABELS = {"e": "entailment", "n": "neutral", "c": "contradiction"}  # on the hub
BBH_WORDS = {
    "boolean_expressions": ("True", "False"),
    "sports_understanding": ("yes", "no"),
    "web_of_lies": ("Yes", "No"),
}
"""Options of the tasks that are a choice without listing them."""
HUB = {"lukaemon/bbh": "bbh", "facebook/anli": "anli", "TIGER-Lab/MMLU-Pro": "mmlu_pro"}
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
    rows = _bbh_file(path) if source == "bbh" else read_records(path)
    return _made(source, task, rows, {str(path): encoding_of(path.read_bytes())})


def read_hub_benchmark(name: str) -> Source:
    """Read a benchmark task from the hub; it is named as from a data folder, and equal rows are split alike.

    Args:
        name: `lukaemon/bbh:date_understanding`, `facebook/anli:r1` or `TIGER-Lab/MMLU-Pro:law`.

    Raises:
        UserError: No such task, no connection, or a row without the fields it must have.
    """
    data_id, _, task = name.partition(":")
    source = HUB[data_id]
    if not task or (source == "anli" and task not in ANLI_ROUNDS):
        example = {"bbh": "date_understanding", "anli": "r1", "mmlu_pro": "law"}[source]
        raise UserError(
            f"Cannot load a task from 'hub/{name}': {SOURCES[source]} is several tasks. Name one behind a colon, such "
            f"as hub/{data_id}:{example}."
        )
    splits = read_hub_records(data_id, task if source == "bbh" else None)
    wanted = f"dev_{task}" if source == "anli" else "test"
    if wanted not in splits:
        raise UserError(
            f"Cannot load a task from 'hub/{name}': it has the splits {', '.join(splits)} and not {wanted!r}. Give a "
            "data folder that holds the files."
        )
    return _made(source, task, splits[wanted], {})


def _made(source: str, task: str, rows: Sequence[Record], encodings: Mapping[str, str]) -> Source:
    """The task of a benchmark from its rows, original fields as in the files or on the hub."""
    if source == "mmlu_pro":
        categories = sorted({_plain(row.values.get("category")) for row in rows})
        if task not in categories:
            hint = did_you_mean(task, categories)
            raise UserError(f"Cannot load task 'mmlu_pro/{task}': there are {', '.join(categories)}.{hint}")
        rows = [row for row in rows if _plain(row.values.get("category")) == task]
    read = {"bbh": _bbh, "anli": _anli, "mmlu_pro": _mmlu}[source]
    records = [read(row) for row in rows]
    options = None
    if source == "anli":
        options = Options(tuple(ANLI_WORDS.values()))
    elif source == "bbh" and task in BBH_WORDS:
        options = Options(BBH_WORDS[task])
    elif all(Options().of(str(record.values[COLUMNS.input])) for record in records):
        options = Options()
    return Source(
        name=f"{source}/{task}",
        description=f"{SOURCES[source]}: {task.replace('_', ' ')}",
        splits={"all rows": tuple(records)},
        columns=COLUMNS,
        encodings=encodings,
        options=options,
    )


def _bbh_file(path: Path) -> list[Record]:
    """The rows of `{"examples": [{"input", "target"}]}`."""
    content = read_json(path)
    examples = content.get("examples") if isinstance(content, dict) else None
    if not isinstance(examples, list) or not all(isinstance(one, dict) for one in examples):
        raise UserError(f"Cannot load a task from {str(path)!r}: it has no list of examples. Give the original file.")
    return [Record(str(path), f"example {number}", one) for number, one in enumerate(examples, start=1)]


def _bbh(record: Record) -> Record:
    """Input and target; a target that is the text of an option becomes its letter."""
    text, target = _text(record, "input"), _text(record, "target")
    options = {words.strip(): letter for letter, words in re.findall(r"^(\([A-Z]\)) (.*)$", text, re.MULTILINE)}
    return _pair(record, text, options.get(target.strip(), target))


def _anli(record: Record) -> Record:
    """Context and hypothesis as a question of three answers, in the words of Brown et al. (2020, appendix G)."""
    label = _text(record, "label")
    if label[:1] not in ANLI_WORDS or label not in (label[:1], ANLI_LABELS[label[:1]]):
        raise UserError(
            f"Cannot load a task from {record.source!r}: {record.place} has the label {label!r}, not one of "
            f"{', '.join(ANLI_WORDS)}. Give the original file."
        )
    context = _text(record, "premise" if "premise" in record.values else "context")  # the hub's name, and the file's
    text = f"{context}\nQuestion: {_text(record, 'hypothesis')} True, False, or Neither?"
    return _pair(record, text, ANLI_WORDS[label[:1]])


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
    return _pair(record, "\n".join([_text(record, "question"), "Options:", *listed]), answer)


def _pair(record: Record, text: str, answer: str) -> Record:
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
