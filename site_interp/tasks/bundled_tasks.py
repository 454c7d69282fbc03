"""The tasks that come with the package: lists in `bundled/`, and generators that need no file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


BUNDLED: dict[str, BundledTask] = {
    "antonym": BundledTask("a word -> its opposite"),
    "capitalize": BundledTask(
        "a word -> the word with its first letter in upper case", generators.capitalize, case_sensitive=True
    ),
    "choose_first_of_3": BundledTask("three words -> the first of them", generators.choose_first_of_3),
    "country-capital": BundledTask("a country -> its capital"),
    "next_item": BundledTask("a number, letter, day or month -> the one after it", generators.next_item),
    "present-past": BundledTask("a verb -> its past tense"),
    "sentiment": BundledTask("a sentence from a review -> positive or negative", generators.sentiment),
    "singular-plural": BundledTask("a noun -> its plural"),
}


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
