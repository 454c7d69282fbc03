"""Read a user's file into records: every kind of file gives the same strings, what cannot be read is refused."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from site_interp.errors import UserError
from site_interp.tasks.rows import Columns, Record
from site_interp.tasks.task import Row

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


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
    return Columns(input_column, output_column).rows(read_records(path))


def read_records(path: Path) -> tuple[Record, ...]:
    """Read the rows of a JSON, JSON lines, CSV or TSV file as they stand, cells as text; blank lines are left out.

    A CSV file whose first line holds semicolons and no comma is separated by semicolons.

    Args:
        path: The file; UTF-8 with or without a byte-order mark, or UTF-16 with one.

    Raises:
        UserError: The file is missing, empty, cut off or wrongly encoded; the text names the place.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(
            f"Cannot load a task from {str(path)!r}: the kind of file is not known. Use one of {', '.join(SUFFIXES)}."
        )
    text = _read_text(path)
    match kind:
        case ".json":
            records = tuple(_json_records(path, text))
        case ".jsonl":
            records = tuple(_json_line_records(path, text))
        case ".csv":
            records = tuple(_table_records(path, text, delimiter=_csv_delimiter(text)))
        case _:
            records = tuple(_table_records(path, text, delimiter="\t"))
    if not records:
        raise UserError(f"Cannot load a task from {str(path)!r}: the file holds no rows. Add some.")
    return records


def read_json(path: Path) -> object:
    """The content of a JSON file, numbers as the text they are written in.

    Raises:
        UserError: The file is missing, empty, cut off or wrongly encoded; the text names the place.
    """
    return _parse_json(path, _read_text(path))


def encoding_of(content: bytes) -> str:
    """The encoding that a file's first bytes announce; `utf-8` where they announce none.

    Example:
        >>> encoding_of("hot".encode("utf-16")), encoding_of(b"hot")
        ('utf-16', 'utf-8')
    """
    if content.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    return "utf-16" if content.startswith(UTF16_MARKS) else "utf-8"


def _read_text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for its writer
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise UserError(
                f"Cannot load a task from {str(path)!r}: it is {kind}, not a file. Save the rows to a file."
            )
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"Cannot load a task from {str(path)!r}: there is no such file. Check the path.") from None
    except OSError as error:
        raise UserError(f"Cannot load a task from {str(path)!r}: {error.strerror}. Check the path.") from error
    encoding = encoding_of(content)
    known = "UTF-16" if encoding == "utf-16" else "UTF-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        guess = " (Latin-1 or Windows-1252, perhaps)" if known == "UTF-8" and content[error.start] >= 0xA0 else ""
        raise UserError(
            f"Cannot load a task from {str(path)!r}: line {line} is not valid {known} text, its byte "
            f"0x{content[error.start]:02x} is of another encoding{guess}. Save the file as UTF-8."
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise UserError(
            f"Cannot load a task from {str(path)!r}: line {line} holds a NUL character, so that it is either no text "
            "or UTF-16 or UTF-32 without a mark. Save the file as UTF-8."
        )
    if not text.strip():
        raise UserError(f"Cannot load a task from {str(path)!r}: the file is empty. Add rows.")
    return text


def _parse_json(path: Path, text: str, first_line: int = 1) -> object:
    """Parse JSON with numbers as the text they are written in, and NaN as a missing value."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        cure = (
            "If it holds one object per line, name it .jsonl."
            if error.msg == "Extra data"
            else "The file may be cut off; repair it."
        )
        raise UserError(
            f"Cannot load a task from {str(path)!r}: it is not valid JSON at line {line}, column {error.colno} "
            f"({error.msg}). {cure}"
        ) from None
    except RecursionError:
        raise UserError(f"Cannot load a task from {str(path)!r}: its JSON is nested too deeply. Flatten it.") from None


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
    return Record(str(path), place, item)


def _csv_delimiter(text: str) -> str:
    """Semicolon where the header has one and no comma, as spreadsheets write CSV in many countries."""
    header = text.lstrip().splitlines()[0]
    return ";" if ";" in header and "," not in header else ","


def _table_records(path: Path, text: str, *, delimiter: str) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    limit = csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a cell may be as long as the file
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
                    f"{len(header)}. Quote fields that contain the separator, and fill in those that are missing."
                )
            yield Record(str(path), place, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise UserError(
            f"Cannot load a task from {str(path)!r}: line {reader.line_num} cannot be read ({error}). "
            "Repair its quotes."
        ) from None
    finally:
        csv.field_size_limit(limit)


def _check_header(path: Path, header: list[str]) -> None:
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise UserError(
            f"Cannot load a task from {str(path)!r}: column {repeated[0]!r} stands twice in its header. Rename one."
        )
