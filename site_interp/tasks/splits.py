"""Three splits that share nothing: cut from one list, or taken as given and cleared of leaks."""

import random
from collections.abc import Iterable, Sequence

from site_interp.errors import UserError
from site_interp.tasks.task import Example, Row, merge_answers, sub_seed

VALID_SHARE = 0.1
TEST_SHARE = 0.3

Splits = tuple[tuple[Example, ...], tuple[Example, ...], tuple[Example, ...]]


def cut_splits(
    rows: Iterable[Row],
    *,
    name: str,
    split_seed: int,
    wanted: Sequence[str] = ("valid", "test"),
    stratified: bool = False,
) -> Splits:
    """Cut one list of rows 60/10/30 into train, valid and test, after merging the rows that share an input.

    Args:
        rows: (input, answers) in the order of the source.
        name: Task name; the shuffle depends on it and on `split_seed` alone.
        split_seed: Seed of the shuffle.
        wanted: Splits to cut; one that is not wanted comes back empty, and its share stays in train.
        stratified: Cut the examples of each answer by themselves, then shuffle what comes together.

    Raises:
        UserError: Fewer distinct inputs than splits, so that one would be empty.

    Example:
        >>> [len(split) for split in cut_splits([(str(n), ("x",)) for n in range(20)], name="t", split_seed=0)]
        [12, 2, 6]
    """
    examples = list(merge_answers(rows))
    if len(examples) < 1 + len(wanted):
        raise UserError(
            f"Cannot split task {name!r} into {', '.join(['train', *wanted])}: it has {len(examples)} distinct "
            f"inputs, and at least {1 + len(wanted)} are needed. Add rows."
        )
    shuffler = random.Random(sub_seed(split_seed, "split", name))
    shuffler.shuffle(examples)
    if stratified:
        by_answer: dict[str, list[Example]] = {}
        for example in examples:
            by_answer.setdefault(example.answer, []).append(example)
        parts: tuple[list[Example], ...] = ([], [], [])
        for answer in sorted(by_answer):
            for part, cut in zip(parts, _cut(by_answer[answer], wanted, least=0), strict=True):
                part.extend(cut)
        for part in parts:
            shuffler.shuffle(part)
        return tuple(parts[0]), tuple(parts[1]), tuple(parts[2])
    return _cut(examples, wanted, least=1)


def _cut(examples: Sequence[Example], wanted: Sequence[str], *, least: int) -> Splits:
    """The examples in their order as train, valid and test."""
    n_valid = max(least, round(VALID_SHARE * len(examples))) if "valid" in wanted else 0
    n_test = max(least, round(TEST_SHARE * len(examples))) if "test" in wanted else 0
    n_train = len(examples) - n_valid - n_test
    return (
        tuple(examples[:n_train]),
        tuple(examples[n_train : n_train + n_valid]),
        tuple(examples[n_train + n_valid :]),
    )


def clear_leaks(splits: Sequence[Sequence[Row]], *, name: str, keep_leaks: bool = False) -> tuple[Splits, int]:
    """Merge each given split by input and leave out what an earlier split already holds.

    An example goes when any of its (input, answer) pairs stands in an earlier split: from valid what is in train, from
    test what is in train or valid. An input that an earlier split holds with other answers only stays.

    Args:
        splits: Rows of train, valid and test.
        name: Task name, for messages.
        keep_leaks: Leave every example where it is.

    Returns:
        The three splits, and how many given test rows were left out.

    Raises:
        UserError: A split is empty, or nothing is left of it.
    """
    seen: set[tuple[str, str]] = set()
    kept: list[tuple[Example, ...]] = []
    left_out: set[str] = set()
    for rows, split in zip(splits, ("train", "valid", "test"), strict=True):
        examples = merge_answers(rows)
        if not examples:
            raise UserError(f"Cannot load task {name!r}: its {split} split is empty. Add rows to it.")
        leaked = {e.input for e in examples if not keep_leaks and any((e.input, a) in seen for a in e.answers)}
        kept.append(tuple(e for e in examples if e.input not in leaked))
        if not kept[-1]:
            raise UserError(
                f"Cannot load task {name!r}: every row of its {split} split also stands in an earlier split. "
                "Give it rows of its own, or keep the leaks."
            )
        seen.update((e.input, answer) for e in examples for answer in e.answers)
        left_out = leaked
    n_leaked = sum(text in left_out for text, _ in splits[-1])
    return (kept[0], kept[1], kept[2]), n_leaked
