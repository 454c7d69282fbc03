"""What a name or path leads to before anything is merged, split or left out, and the task that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from site_interp.tasks.options import Options
from site_interp.tasks.rows import Columns, Record
from site_interp.tasks.splits import clear_leaks, cut_splits
from site_interp.tasks.task import Task


@dataclass(frozen=True)
class Source:
    """The records of a file, folder or data set, by given split.

    Args:
        name: The task's name, `source/name`.
        description: One line for listings.
        splits: Records by split: `train`, `valid` and `test` as given. Without a `train`, what is there is one list
            to cut from, whatever it is called.
        columns: Which cells are input and answer.
        case_sensitive: Whether metrics compare letter case, unless asked otherwise.
        encodings: Encoding of each file read, by its path; empty where no text file was read.
        options: Where the options of an input are found, if the task is one of multiple choice.
        stratified: Whether a split that has to be cut gets every answer in its share.
    """

    name: str
    description: str
    splits: Mapping[str, tuple[Record, ...]]
    columns: Columns
    case_sensitive: bool = False
    encodings: Mapping[str, str] = field(default_factory=dict)
    options: Options | None = None
    stratified: bool = False

    @property
    def missing_splits(self) -> tuple[str, ...]:
        """Those of valid and test that have to be cut, because they are not given."""
        if "train" not in self.splits:
            return "valid", "test"
        return tuple(split for split in ("valid", "test") if split not in self.splits)

    def task(self, *, split_seed: int, keep_leaks: bool, case_sensitive: bool | None) -> Task:
        """Read every record and split: given splits stay, cleared of leaks; a missing one is cut from train.

        Args:
            split_seed: Seed of a split that has to be cut, and of the order of test examples.
            keep_leaks: Keep given test examples whose (input, answer) pair also stands in train or valid.
            case_sensitive: Overrides the source's own setting; None keeps it.

        Raises:
            UserError: A record cannot be read, or a split would be empty.
        """
        missing = self.missing_splits
        if "train" in self.splits:
            rows = {split: self.columns.rows(records) for split, records in self.splits.items()}
        else:
            rows = {"train": self.columns.rows(chain.from_iterable(self.splits.values()))}
        if missing:
            cut = cut_splits(
                rows["train"], name=self.name, split_seed=split_seed, wanted=missing, stratified=self.stratified
            )
            for split, examples in zip(("train", "valid", "test"), cut, strict=True):
                if split not in rows or split == "train":
                    rows[split] = [(e.input, e.answers) for e in examples]
        given = [rows[split] for split in ("train", "valid", "test")]
        (train, valid, test), n_leaked = clear_leaks(given, name=self.name, keep_leaks=keep_leaks)
        return Task(
            name=self.name,
            train=train,
            valid=valid,
            test=test,
            case_sensitive=self.case_sensitive if case_sensitive is None else case_sensitive,
            split_seed=split_seed,
            description=self.description,
            n_leaked=n_leaked,
            options=self.options,
        )
