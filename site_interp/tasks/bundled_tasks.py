"""The tasks that come with the package: lists in `bundled/`, and generators that need no file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from site_interp.tasks import generators
from site_interp.tasks.files import read_rows
from site_interp.tasks.splits import cut_splits
from site_interp.tasks.task import Row, Task

FOLDER = Path(__file__).parent / "bundled"


@dataclass(frozen=True)
class BundledTask:
    """How to make one bundled task.

    Args:
        description: One line: input, arrow, answer.
        generate: Makes the rows; None reads them from `bundled/<name>.tsv`.
        case_sensitive: Whether metrics compare letter case.
    """

    description: str
    generate: Callable[[], Sequence[Row]] | None = None
    case_sensitive: bool = False


_MEANINGS = {
    "antonym": BundledTask("a word -> its opposite"),
    "synonym": BundledTask("a word -> another of the same meaning"),
    "present-past": BundledTask("a verb -> its past tense"),
    "singular-plural": BundledTask("a noun -> its plural"),
    "country-capital": BundledTask("a country -> its capital"),
    "country-currency": BundledTask("a country -> its currency"),
    "english-french": BundledTask("an English word -> the French one"),
    "english-german": BundledTask("an English word -> the German one"),
    "english-spanish": BundledTask("an English word -> the Spanish one"),
    "next_item": BundledTask("a number, letter, day or month -> the one after it", generators.next_item),
    "prev_item": BundledTask("a number, letter, day or month -> the one before it", generators.prev_item),
    "sentiment": BundledTask("a sentence from a review -> positive or negative", generators.sentiment),
    "word_length": BundledTask("a word -> how many letters it has, in digits", generators.word_length),
}


def _letter_task(
    description: str, answer: Callable[[str], str], shown: Callable[[str], str] = str.lower
) -> BundledTask:
    return BundledTask(description, partial(generators.each_word, answer, shown), case_sensitive=True)


_LETTERS = {
    "capitalize": _letter_task("a word -> the word with its first letter in upper case", str.capitalize),
    "uppercase": _letter_task("a word -> the word in upper case", str.upper),
    "lowercase": _letter_task("a word in upper case -> the word in lower case", str.lower, shown=str.upper),
    "capitalize_first_letter": _letter_task("a word -> its first letter in upper case", lambda word: word[0].upper()),
    "capitalize_second_letter": _letter_task("a word -> its second letter in upper case", lambda word: word[1].upper()),
    "capitalize_last_letter": _letter_task("a word -> its last letter in upper case", lambda word: word[-1].upper()),
    "lowercase_first_letter": _letter_task(
        "a word in upper case -> its first letter in lower case", lambda word: word[0], shown=str.upper
    ),
    "lowercase_last_letter": _letter_task(
        "a word in upper case -> its last letter in lower case", lambda word: word[-1], shown=str.upper
    ),
    "next_capital_letter": _letter_task(
        "a word -> the letter after its first one in the alphabet, in upper case",
        lambda word: chr(ord(word[0]) + 1).upper(),
    ),
}

_LENGTHS = {3: "three", 5: "five"}

_CHOICES = {
    f"choose_{place}_of_{n}": BundledTask(f"{words} words -> the {place} of them", partial(generators.choose, place, n))
    for place in generators.PLACES
    for n, words in _LENGTHS.items()
}

_ALPHABETICAL = {
    f"alphabetically_{end}_{n}": BundledTask(
        f"{words} words -> the one that comes {end} in the alphabet", partial(generators.alphabetically, end, n)
    )
    for end in generators.ENDS
    for n, words in _LENGTHS.items()
}

_ODD_ONES = {
    f"{kind}_v_{other}_{n}": BundledTask(
        f"{words} words, one {kind} among {other}s -> the {kind}", partial(generators.odd_one_out, kind, other, n)
    )
    for kind, other in (
        ("adjective", "verb"),
        ("verb", "adjective"),
        ("animal", "object"),
        ("color", "animal"),
        ("fruit", "animal"),
    )
    for n, words in _LENGTHS.items()
}

BUNDLED: dict[str, BundledTask] = _MEANINGS | _LETTERS | _CHOICES | _ALPHABETICAL | _ODD_ONES

DEMO = (
    "antonym",
    "capitalize",
    "choose_first_of_3",
    "country-capital",
    "next_item",
    "present-past",
    "sentiment",
    "singular-plural",
)
"""The tasks of the demo suite: few, and of different kinds."""


def load_bundled(name: str, *, split_seed: int = 0, case_sensitive: bool | None = None) -> Task:
    """Load a bundled task, split 60/10/30.

    Args:
        name: A key of `BUNDLED`.
        split_seed: Seed of the split and of the order of test examples.
        case_sensitive: Overrides the task's own setting; None keeps it.

    Example:
        >>> load_bundled("capitalize").case_sensitive
        True
    """
    bundled = BUNDLED[name]
    full_name = f"bundled/{name}"
    rows = bundled.generate() if bundled.generate is not None else read_rows(FOLDER / f"{name}.tsv")
    train, valid, test = cut_splits(rows, name=full_name, split_seed=split_seed)
    return Task(
        name=full_name,
        train=train,
        valid=valid,
        test=test,
        case_sensitive=bundled.case_sensitive if case_sensitive is None else case_sensitive,
        split_seed=split_seed,
        description=bundled.description,
    )
