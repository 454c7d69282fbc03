"""A row as it stands in a source, and what a task keeps of it: strings stay strings, what cannot be read is refused."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from site_interp.errors import UserError
from site_interp.tasks.task import Row

SHOWN_COLUMNS = 12  # of a file with many, in an error


@dataclass(frozen=True)
class Record:
    """One row of a source, with the words that lead a reader to it.

    Args:
        source: File, folder or data set.
        place: Where in it, such as `line 3`.
        values: Cells by column.
    """

    source: str
    place: str
    values: Mapping[str, object]


@dataclass(frozen=True)
class Columns:
    """Which column holds the input and which the answer."""

    input: str = "input"
    output: str = "output"

    def row(self, record: Record) -> Row:
        """The input and the answers of a record.

        The input is kept as it is; answers lose the whitespace around them and their repeats.

        Raises:
            UserError: A column is not there, or a cell holds nothing, or something other than text.
        """
        where = f"Cannot load a task from {record.source!r}: {record.place}"
        for column in (self.input, self.output):
            if column not in record.values:
                names = [repr(key) for key in record.values]
                more = f" and {len(names) - SHOWN_COLUMNS} more" if len(names) > SHOWN_COLUMNS else ""
                found = (", ".join(names[:SHOWN_COLUMNS]) or "none") + more
                raise UserError(
                    f"{where} has no column {column!r}; its columns are {found}. Say which to read with input_column "
                    "and output_column (--input-column, --output-column)."
                )
        given, wanted = record.values[self.input], record.values[self.output]
        texts, answers = _texts(given), _texts(wanted)
        if texts is None or len(texts) != 1 or not texts[0].strip():
            raise UserError(
                f"{where} needs one text or number as its {self.input!r}, got {_short(given)}. "
                "Fill it in or delete the row."
            )
        if not answers or not all(answer.strip() for answer in answers):
            raise UserError(
                f"{where} needs an answer, a text or number or a list of them, as its {self.output!r}, got "
                f"{_short(wanted)}. Fill it in or delete the row."
            )
        if any("\ud800" <= letter <= "\udfff" for text in (*texts, *answers) for letter in text):
            raise UserError(
                f"{where} holds half of a character (a lone surrogate such as \\ud83d), which no encoding can write. "
                "Repair the text."
            )
        return texts[0], tuple(dict.fromkeys(answer.strip() for answer in answers))

    def rows(self, records: Iterable[Record]) -> list[Row]:
        """`row` of each record."""
        return [self.row(record) for record in records]


def _texts(value: object) -> list[str] | None:
    """The strings in a cell, or None if it holds anything else."""
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str)]
    return texts if len(texts) == len(items) else None


def _short(value: object) -> str:
    """A cell as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
