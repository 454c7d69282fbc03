"""Read a user's file into (input, answers) rows: strings stay strings, what cannot be read is refused in a sentence."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from site_interp.errors import UserError
from site_interp.tasks.task import Row

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Record:
    """One row as it stands in a file, with the words that lead a reader to it."""

    place: str
    values: Mapping[str, object]


def read_rows(path: Path, *, input_column: str = "input", output_column: str = "output") -> list[Row]:
    """Read (input, answers) rows from a JSON, JSON lines, CSV or TSV file, chosen by the file's suffix.

    Numbers become strings, written as in the file. An answer may be a list of answers. Inputs are kept as they are;
    answers lose the whitespace around them. A row without an input or without an answer is refused, not skipped.

    Args:
        path: The file; UTF-8 with or without a byte-order mark, or UTF-16 with one.
        input_column: Key or column that holds the input.
        output_column: Key or column that holds the answer.

    Raises:
        UserError: The file is missing, empty, cut off, wrongly encoded or lacks a column; the text names the place.
    """
    rows = [_row(path, record, input_column, output_column) for record in _records(path)]
    if not rows:
        raise UserError(f"Cannot load a task from {str(path)!r}: the file holds no rows. Add some.")
    return rows


def _records(path: Path) -> Iterator[Record]:
    match path.suffix.lower():
        case ".json":
            return _json_records(path, _read_text(path))
        case ".jsonl":
            return _json_line_records(path, _read_text(path))
        case ".csv":
            return _table_records(path, _read_text(path), delimiter=",")
        case ".tsv":
            return _table_records(path, _read_text(path), delimiter="\t")
    kinds = ", ".join(SUFFIXES)
    raise UserError(f"Cannot load a task from {str(path)!r}: the kind of file is not known. Use one of {kinds}.")


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"Cannot load a task from {str(path)!r}: there is no such file. Check the path.") from None
    except OSError as error:
        raise UserError(f"Cannot load a task from {str(path)!r}: {error.strerror}.") from error
    encoding = "utf-16" if content.startswith(UTF16_MARKS) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"Cannot load a task from {str(path)!r}: line {line} is not valid {encoding.upper().removesuffix('-SIG')} "
            "text. Save the file as UTF-8."
        ) from None
    if not text.strip():
        raise UserError(f"Cannot load a task from {str(path)!r}: the file is empty. Add rows.")
    return text


def _parse_json(path: Path, text: str, first_line: int = 1) -> object:
    """Parse JSON with numbers as the text they are written in, and NaN as a missing value."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(
            f"Cannot load a task from {str(path)!r}: it is not valid JSON at line {line}, column {error.colno} "
            f"({error.msg}). The file may be cut off; repair it."
        ) from None
    except RecursionError:
        raise UserError(f"Cannot load a task from {str(path)!r}: its JSON is nested too deeply.") from None


def _json_records(path: Path, text: str) -> Iterator[Record]:
    items = _parse_json(path, text)
    if not isinstance(items, list):
        raise UserError(
            f"Cannot load a task from {str(path)!r}: it must hold a list of objects such as "
            '[{"input": "hot", "output": "cold"}], and holds something else.'
        )
    for number, item in enumerate(items, start=1):
        yield _record(path, f"row {number}", item)


def _json_line_records(path: Path, text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _record(path, f"line {number}", _parse_json(path, line, number))


def _record(path: Path, place: str, item: object) -> Record:
    if not isinstance(item, dict):
        raise UserError(
            f"Cannot load a task from {str(path)!r}: {place} is not an object with an input and an output. Repair it."
        )
    return Record(place, item)


def _table_records(path: Path, text: str, *, delimiter: str) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    try:
        for fields in reader:
            place = f"line {reader.line_num}"
            if not any(field.strip() for field in fields):
                continue
            if not header:
                header = [field.strip() for field in fields]
                _check_header(path, header)
                continue
            if len(fields) != len(header):
                raise UserError(
                    f"Cannot load a task from {str(path)!r}: {place} has {len(fields)} fields and the header "
                    f"{len(header)}. Quote fields that contain the separator."
                )
            yield Record(place, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise UserError(
            f"Cannot load a task from {str(path)!r}: line {reader.line_num} cannot be read ({error}). "
            "Repair its quotes."
        ) from None


def _check_header(path: Path, header: list[str]) -> None:
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise UserError(f"Cannot load a task from {str(path)!r}: column {repeated[0]!r} stands twice in its header.")


def _row(path: Path, record: Record, input_column: str, output_column: str) -> Row:
    for column in (input_column, output_column):
        if column not in record.values:
            found = ", ".join(repr(key) for key in record.values) or "none"
            raise UserError(
                f"Cannot load a task from {str(path)!r}: {record.place} has no column {column!r}; its columns are "
                f"{found}. Say which to read with input_column and output_column."
            )
    texts = _texts(record.values[input_column])
    if texts is None or len(texts) != 1 or not texts[0].strip():
        raise UserError(
            f"Cannot load a task from {str(path)!r}: {record.place} needs one text or number as its {input_column!r}, "
            f"got {record.values[input_column]!r}."
        )
    answers = _texts(record.values[output_column])
    if not answers or not all(answer.strip() for answer in answers):
        raise UserError(
            f"Cannot load a task from {str(path)!r}: {record.place} needs an answer, a text or number or a list of "
            f"them, as its {output_column!r}, got {record.values[output_column]!r}. Fill it in or delete the row."
        )
    return texts[0], tuple(dict.fromkeys(answer.strip() for answer in answers))


def _texts(value: object) -> list[str] | None:
    """The strings in a cell, or None if it holds anything else."""
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str)]
    return texts if len(texts) == len(items) else None
