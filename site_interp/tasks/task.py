"""What a task is: (input, answers) pairs in three splits, with the facts that every later number depends on."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from site_interp.errors import UserError
from site_interp.tasks.options import Options


@dataclass(frozen=True)
class Example:
    """One input and every answer that counts as right; the first answer is the one trained on."""

    input: str
    answers: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.answers:
            raise ValueError(f"Cannot make an example of {self.input!r}: it has no answer. Leave the row out.")

    @property
    def answer(self) -> str:
        """The answer used for training and in demonstrations."""
        return self.answers[0]


@dataclass(frozen=True)
class Task:
    """A named task with its splits, as loaded; nothing in it changes afterwards.

    Args:
        name: `source/name`, for example `bundled/antonym` or `fv/antonym`.
        train, valid, test: The splits; no (input, answer) pair of one stands in another, unless leaks were kept on
            request.
        case_sensitive: Whether metrics compare upper and lower case as written.
        split_seed: Seed of the split where the source has none, and of the order of test examples.
        description: One line for listings and figures.
        n_leaked: Given test rows left out because the same pair stands in train or valid.
        options: Where the options of an input are found, if the task is one of multiple choice.
    """

    name: str
    train: tuple[Example, ...]
    valid: tuple[Example, ...]
    test: tuple[Example, ...]
    case_sensitive: bool = False
    split_seed: int = 0
    description: str = ""
    n_leaked: int = 0
    options: Options | None = None

    def __repr__(self) -> str:
        sizes = f"{len(self.train)} training, {len(self.valid)} validation, {len(self.test)} test examples"
        return f"Task({self.name}: {sizes}, split_seed {self.split_seed})"

    @property
    def split_hash(self) -> str:
        """A hash of every example and of where it stands; equal hashes mean the same splits."""
        content = [[[e.input, list(e.answers)] for e in split] for split in (self.train, self.valid, self.test)]
        text = json.dumps([self.name, self.case_sensitive, self.split_seed, content], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def test_examples(self, n: int | None = None) -> tuple[Example, ...]:
        """The first `n` test examples after a shuffle by `split_seed`: the same for all methods and seeds.

        Args:
            n: How many; None or more than there are means all.

        Raises:
            UserError: Fewer than none.
        """
        if n is not None and n < 0:
            raise UserError(
                f"Cannot take {n} test examples of task '{self.name}'. Give a number from 1, or None for all."
            )
        order = list(range(len(self.test)))
        random.Random(sub_seed(self.split_seed, "test order", self.name)).shuffle(order)
        return tuple(self.test[index] for index in order[:n])

    def chance(self, n: int | None = None) -> float | None:
        """Share right of a blind choice among the options of the first `n` test examples; None without options."""
        shares = [1 / len(self.options.of(e.input)) for e in self.test_examples(n)] if self.options else []
        return sum(shares) / len(shares) if shares else None


def sub_seed(seed: int, purpose: str, task: str) -> int:
    """A 64-bit seed for one purpose in one task, so that a task's numbers do not depend on which others run.

    Raises:
        UserError: `seed` is no whole number of 0 or more.

    Example:
        >>> sub_seed(0, "demonstrations", "bundled/antonym") == sub_seed(0, "demonstrations", "bundled/antonym")
        True
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UserError(f"Cannot draw with the seed {seed!r}. Give a whole number of 0 or more.")
    digest = hashlib.sha256(f"{seed}\x1f{purpose}\x1f{task}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


Row = tuple[str, tuple[str, ...]]
"""One row of a source: the input and its answers."""


def merge_answers(rows: Iterable[Row]) -> tuple[Example, ...]:
    """Merge rows that share an input into one example, answers in order of appearance, repeats dropped."""
    merged: dict[str, dict[str, None]] = {}
    for text, answers in rows:
        merged.setdefault(text, {}).update(dict.fromkeys(answers))
    return tuple(Example(text, tuple(answers)) for text, answers in merged.items())


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Names of tasks for tables and figures: without the source, where that leaves them different.

    Example:
        >>> short_names(["fv/antonym", "fv/synonym"])
        {'fv/antonym': 'antonym', 'fv/synonym': 'synonym'}
        >>> short_names(["fv/antonym", "bundled/antonym"])
        {'fv/antonym': 'fv/antonym', 'bundled/antonym': 'bundled/antonym'}
    """
    short = {name: name.split("/", 1)[-1] for name in names}
    counts = Counter(short.values())
    return {name: last if counts[last] == 1 else name for name, last in short.items()}


def check_several(names: Sequence[str]) -> None:
    """Refuse to compare fewer than two tasks.

    Raises:
        UserError: Says which was given.
    """
    given = list(dict.fromkeys(names))
    if len(given) < 2:
        raise UserError(f"Cannot compare tasks: only {given[0] if given else 'none'} was given. Give two or more.")
