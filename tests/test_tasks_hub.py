"""Data sets that the `datasets` library reads: folders on disk, and ids of the hub, here without any network."""

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest

from site_interp.errors import UserError
from site_interp.tasks import Task, load_task

MOODS = ["negative", "positive"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(autouse=True, scope="module")
def no_bars() -> Any:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def reviews(labels: Sequence[int | None], name: str = "review") -> Any:
    """One text and one label per row, with columns of other kinds beside them."""
    kinds = {
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=MOODS),
        "stars": datasets.Value("int64"),
        "names": datasets.List(datasets.Value("string")),
        "found": {"moods": datasets.List(datasets.ClassLabel(names=MOODS))},
    }
    columns = {
        "text": [f"{name} {n}" for n in range(len(labels))],
        "label": labels,
        "stars": list(range(len(labels))),
        "names": [[f"a{n}", f"b{n}"] for n in range(len(labels))],
        "found": [{"moods": [1, 0]} for _ in labels],
    }
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))


def answers(task: Task) -> dict[str, tuple[str, ...]]:
    return {e.input: e.answers for split in (task.train, task.valid, task.test) for e in split}


def save(parts: Mapping[str, Any], folder: Path) -> Path:
    datasets.DatasetDict(parts).save_to_disk(folder)
    return folder


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("label", ("positive",)),
        ("stars", ("1",)),
        ("names", ("a1", "b1")),
        ("found.moods", ("positive", "negative")),
    ],
)
def test_labels_become_their_names_numbers_strings_and_lists_answers(
    tmp_path: Path, column: str, expected: tuple[str, ...]
) -> None:
    reviews([0, 1, 1, 0]).save_to_disk(tmp_path / "reviews")
    task = load_task(tmp_path / "reviews", input_column="text", output_column=column)
    assert task.name == "file/reviews"
    assert answers(task)["review 1"] == expected


def test_one_list_of_rows_is_cut_as_a_file_is(tmp_path: Path) -> None:
    reviews([0, 1] * 10).save_to_disk(tmp_path / "reviews")
    task = load_task(tmp_path / "reviews", input_column="text", output_column="label")
    assert [len(split) for split in (task.train, task.valid, task.test)] == [12, 2, 6]
    assert len(answers(task)) == 20


def test_named_splits_are_used_and_cleared_of_leaks(tmp_path: Path) -> None:
    parts = {"train": reviews([0, 1, 0]), "validation": reviews([1, 1], "v"), "test": reviews([0, 0, 1, 1])}
    task = load_task(save(parts, tmp_path / "d"), input_column="text", output_column="label")
    assert [[e.input for e in split] for split in (task.train, task.valid)] == [
        ["review 0", "review 1", "review 2"],
        ["v 0", "v 1"],
    ]
    assert [e.input for e in task.test] == ["review 1", "review 2", "review 3"]  # 1 and 2 have other labels in train
    assert task.n_leaked == 1


def test_a_split_that_is_missing_or_has_no_answers_is_cut_from_train(tmp_path: Path) -> None:
    secret = {"train": reviews([0, 1] * 10), "validation": reviews([1], "v"), "test": reviews([-1, -1], "t")}
    task = load_task(save(secret, tmp_path / "secret"), input_column="text", output_column="label")
    assert [len(split) for split in (task.train, task.valid, task.test)] == [14, 1, 6]
    assert not any(text.startswith("t") for text in answers(task))
    two = {"train": reviews([0, 1] * 10), "test": reviews([1, 0], "t"), "extra": reviews([1], "x")}
    task = load_task(save(two, tmp_path / "two"), input_column="text", output_column="label")
    assert [len(split) for split in (task.train, task.valid, task.test)] == [18, 2, 2]
    assert {e.input for e in task.test} == {"t 0", "t 1"}


def test_splits_without_a_train_are_one_list(tmp_path: Path) -> None:
    parts = {"test": reviews([0, 1] * 3), "extra": reviews([1, 0] * 2, "x")}
    task = load_task(save(parts, tmp_path / "d"), input_column="text", output_column="label")
    assert [len(split) for split in (task.train, task.valid, task.test)] == [6, 1, 3]
    assert len(answers(task)) == 10


def test_a_folder_of_csv_files_keeps_leading_zeros_and_words_that_look_like_missing_values(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "train.csv").write_text("code,word\n01,NA\n02,null\n03,1.50\n04,None\n")
    (folder / "dev.csv").write_text("code,word\n05,nan\n")
    (folder / "test.csv").write_text("code,word\n06,007\n")
    task = load_task(folder, input_column="code", output_column="word")
    assert answers(task) == {
        "01": ("NA",), "02": ("null",), "03": ("1.50",), "04": ("None",), "05": ("nan",), "06": ("007",),
    }  # fmt: skip
    assert [len(split) for split in (task.train, task.valid, task.test)] == [4, 1, 1]


def test_a_folder_of_parquet_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "d" / "data").mkdir(parents=True)
    reviews([0, 1, 1, 0, 1]).to_parquet(tmp_path / "d" / "data" / "train-00000-of-00001.parquet")
    task = load_task(tmp_path / "d", input_column="text", output_column="label")
    assert answers(task)["review 2"] == ("positive",)
    assert len(answers(task)) == 5


@pytest.mark.parametrize("label", [-1, None])
def test_a_row_without_an_answer_is_refused_by_its_number(tmp_path: Path, label: int | None) -> None:
    reviews([0, 1, label, 1]).save_to_disk(tmp_path / "d")
    with pytest.raises(UserError, match=r"d': row 3 of all rows needs an answer.*got None"):
        load_task(tmp_path / "d", input_column="text", output_column="label")


def test_columns_that_are_not_there_are_refused_with_those_that_are(tmp_path: Path) -> None:
    reviews([0, 1, 1]).save_to_disk(tmp_path / "d")
    with pytest.raises(UserError, match=r"no column 'input'; its columns are 'text', 'label', .*'found\.moods'"):
        load_task(tmp_path / "d")


def test_folders_that_hold_no_data_or_broken_data_are_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    (handler,) = logging.getLogger("datasets").handlers
    monkeypatch.setattr(handler, "emit", lambda record: shown.append(record.getMessage()))
    with pytest.raises(UserError, match="holds no data files"):
        load_task(tmp_path)
    for name, content in (("train.parquet", b"PAR1"), ("train.csv", b"input,output\n\xff,1\n"), ("state.json", b"{")):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(UserError, match=r"Cannot load a task from .*Check the files in it\.$"):
            load_task(folder)
    assert shown == []


def test_an_id_and_its_configuration_reach_the_hub_and_no_code_of_the_data_set_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []

    def build(*arguments: object, **options: object) -> Any:
        asked.append((arguments, options))
        return SimpleNamespace(config=SimpleNamespace(name="short"))

    def load(*arguments: object, **options: object) -> Any:
        asked.append((arguments, options))
        return datasets.DatasetDict(train=reviews([0, 1] * 10))

    monkeypatch.setattr(datasets, "load_dataset_builder", build)
    monkeypatch.setattr(datasets, "load_dataset", load)
    task = load_task("hub/owner/reviews:short", input_column="text", output_column="label")
    assert task.name == "hub/owner/reviews:short"
    assert len(answers(task)) == 20
    assert asked == 2 * [(("owner/reviews", "short"), {})]
    load_task("hub/reviews", input_column="text", output_column="label")
    assert asked[-1][0] == ("reviews", None)


def test_an_id_that_is_not_in_the_cache_is_refused_in_one_sentence_without_a_network(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        UserError, match=r"^Cannot load a task from 'hub/owner/nothing': [^\n]*reach.*the connection\.$"
    ):
        load_task("hub/owner/nothing")
    assert capfd.readouterr().err == ""


def test_the_progress_bars_and_the_log_of_datasets_are_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews([0, 1, 1]).save_to_disk(tmp_path / "d")
    before = datasets.logging.get_verbosity()
    shown = []
    loaded = datasets.load_from_disk

    def look(*arguments: Any) -> Any:
        shown.append(datasets.utils.are_progress_bars_disabled())
        return loaded(*arguments)

    monkeypatch.setattr(datasets, "load_from_disk", look)
    datasets.enable_progress_bars()
    try:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
        load_task(tmp_path / "d", input_column="text", output_column="label")
        assert not datasets.utils.are_progress_bars_disabled()
    finally:
        datasets.disable_progress_bars()
    assert shown == [True]
    assert datasets.logging.get_verbosity() == before
