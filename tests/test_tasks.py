"""Names, sources, listings and suites: what load_task makes of a name."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from site_interp.errors import UserError
from site_interp.tasks import (
    SUITES,
    check_several,
    list_tasks,
    load_suite,
    load_task,
    short_names,
    suite_task_names,
)

REAL_DATA = os.environ.get("SITE_INTERP_DATA")

Pair = tuple[str, object]

TWELVE = [(f"in {n}", f"out {n}") for n in range(12)]


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_INTERP_DATA", raising=False)


def write_fv_task(
    data_dir: Path, name: str, train: Sequence[Pair], valid: Sequence[Pair], test: Sequence[Pair]
) -> Path:
    folder = data_dir / "fv" / name
    folder.mkdir(parents=True)
    for split, pairs in (("train", train), ("valid", valid), ("test", test)):
        rows = [{"input": text, "output": answer} for text, answer in pairs]
        (folder / f"{split}.json").write_text(json.dumps(rows), encoding="utf-8")
    return folder


def write_small_fv_task(data_dir: Path, name: str) -> Path:
    return write_fv_task(data_dir, name, TWELVE[:6], TWELVE[6:8], TWELVE[8:])


def test_a_bare_name_and_its_full_name_are_the_same_bundled_task() -> None:
    assert load_task("antonym") == load_task("bundled/antonym")
    assert load_task("antonym").name == "bundled/antonym"


def test_a_bare_name_means_bundled_even_with_a_data_folder(tmp_path: Path) -> None:
    write_small_fv_task(tmp_path, "antonym")
    assert load_task("antonym", data_dir=tmp_path) == load_task("bundled/antonym")
    assert load_task("fv/antonym", data_dir=tmp_path).train[0].input == "in 0"


def test_an_fv_task_loads_alike_from_the_data_folder_the_fv_folder_the_environment_and_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_small_fv_task(tmp_path, "colors")
    task = load_task("fv/colors", data_dir=tmp_path)
    assert task.name == "fv/colors"
    assert [len(split) for split in (task.train, task.valid, task.test)] == [6, 2, 4]
    assert load_task("fv/colors", data_dir=tmp_path / "fv") == task
    assert load_task(str(folder)) == task
    assert load_task(folder) == task
    monkeypatch.setenv("SITE_INTERP_DATA", str(tmp_path))
    assert load_task("fv/colors") == task


def test_an_fv_name_without_a_data_folder_says_how_to_give_it() -> None:
    with pytest.raises(UserError, match=r"--data-dir.*SITE_INTERP_DATA"):
        load_task("fv/antonym")


def test_a_data_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load_task("fv/antonym", data_dir=tmp_path / "nowhere")


def test_an_unknown_name_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    write_small_fv_task(tmp_path, "antonyms_rare")
    with pytest.raises(UserError, match=r"Did you mean bundled/antonym\?"):
        load_task("antonim")
    with pytest.raises(UserError, match="fv/antonyms_rare"):
        load_task("fv/antonym_rare", data_dir=tmp_path)
    with pytest.raises(UserError, match="`site-interp tasks list` shows the tasks"):
        load_task("qqqq")


def test_fv_numbers_become_strings_lists_become_answers_and_inputs_keep_their_spaces(tmp_path: Path) -> None:
    train = [(" padded\n", 5), ("many", ["one ", "two"]), ("x", "y\n")]
    write_fv_task(tmp_path, "kinds", train, [("v", "v")], [("t", "t")])
    examples = load_task("fv/kinds", data_dir=tmp_path).train
    assert [(e.input, e.answers) for e in examples] == [(" padded\n", ("5",)), ("many", ("one", "two")), ("x", ("y",))]


def test_fv_test_pairs_seen_in_train_or_valid_are_left_out_and_counted(tmp_path: Path) -> None:
    test = [("a", "1"), ("a", "1"), ("v", "3"), ("b", "other"), ("new", "9"), ("two", "8"), ("two", "7")]
    write_fv_task(tmp_path, "leaky", [("a", "1"), ("b", "2"), ("two", "7")], [("v", "3")], test)
    task = load_task("fv/leaky", data_dir=tmp_path)
    assert [(e.input, e.answers) for e in task.test] == [("b", ("other",)), ("new", ("9",))]
    assert task.n_leaked == 5
    kept = load_task("fv/leaky", data_dir=tmp_path, keep_leaks=True)
    assert [e.input for e in kept.test] == ["a", "v", "b", "new", "two"]
    assert kept.n_leaked == 0


def test_fv_valid_pairs_seen_in_train_are_left_out_of_valid(tmp_path: Path) -> None:
    write_fv_task(tmp_path, "leaky", [("a", "1")], [("a", "1"), ("a2", "1")], [("a", "other")])
    task = load_task("fv/leaky", data_dir=tmp_path)
    assert [e.input for e in task.valid] == ["a2"]
    assert [e.input for e in task.test] == ["a"]
    assert task.n_leaked == 0


def test_an_fv_task_whose_whole_test_split_leaks_is_refused(tmp_path: Path) -> None:
    write_fv_task(tmp_path, "leaky", [("a", "1")], [("b", "1")], [("a", "1")])
    with pytest.raises(UserError, match="every row of its test split"):
        load_task("fv/leaky", data_dir=tmp_path)


def test_an_fv_folder_that_lacks_a_split_is_refused_with_the_missing_file(tmp_path: Path) -> None:
    folder = write_small_fv_task(tmp_path, "half")
    (folder / "valid.json").unlink()
    with pytest.raises(UserError, match=r"valid\.json.*no such file"):
        load_task("fv/half", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "sensitive"),
    [
        ("capitalize", True),
        ("capitalize_last_letter", True),
        ("lowercase_first_letter", True),
        ("next_capital_letter", True),
        ("country-capital", False),
        ("antonym", False),
    ],
)
def test_fv_tasks_about_letter_case_are_case_sensitive(tmp_path: Path, name: str, sensitive: bool) -> None:
    write_small_fv_task(tmp_path, name)
    assert load_task(f"fv/{name}", data_dir=tmp_path).case_sensitive is sensitive
    assert load_task(f"fv/{name}", data_dir=tmp_path, case_sensitive=not sensitive).case_sensitive is not sensitive


def test_the_first_n_test_examples_are_a_prefix_of_all_and_are_shuffled_by_split_seed(tmp_path: Path) -> None:
    task = load_task("country-capital")
    everything = task.test_examples()
    assert sorted(everything, key=lambda e: e.input) == sorted(task.test, key=lambda e: e.input)
    assert everything != task.test
    for n in (1, 7, 50):
        assert task.test_examples(n) == everything[:n]
    write_small_fv_task(tmp_path, "order")
    orders = {load_task("fv/order", data_dir=tmp_path, split_seed=seed).test_examples() for seed in range(8)}
    assert len(orders) > 1


def test_tasks_are_listed_bundled_first_then_those_of_the_data_folder(tmp_path: Path) -> None:
    write_small_fv_task(tmp_path, "zebra")
    write_small_fv_task(tmp_path, "ants")
    (tmp_path / "fv" / "notes").mkdir()
    infos = list_tasks(tmp_path)
    assert [info.name for info in infos][-2:] == ["fv/ants", "fv/zebra"]
    assert all(info.source == "bundled" for info in infos[:-2])
    antonym = load_task("antonym")
    assert infos[0].name == "bundled/antonym"
    assert infos[0].sizes == (len(antonym.train), len(antonym.valid), len(antonym.test))
    assert [info.name for info in list_tasks()] == [info.name for info in infos[:-2]]


def test_suites_load_their_tasks(tmp_path: Path) -> None:
    write_small_fv_task(tmp_path, "b")
    write_small_fv_task(tmp_path, "a")
    assert suite_task_names("fv", tmp_path) == ("fv/a", "fv/b")
    assert [task.name for task in load_suite("fv", data_dir=tmp_path, split_seed=3)] == ["fv/a", "fv/b"]
    assert {task.split_seed for task in load_suite("fv", data_dir=tmp_path, split_seed=3)} == {3}
    assert len(suite_task_names("demo")) >= 8
    assert set(suite_task_names("demo")) <= set(suite_task_names("bundled"))
    assert set(SUITES) == {"demo", "bundled", "fv", "bbh", "anli", "mmlu_pro", "moleculenet"}


def test_an_unknown_suite_and_an_fv_suite_without_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the suites are demo, bundled, fv"):
        load_suite("everything")
    with pytest.raises(UserError, match="--data-dir"):
        load_suite("fv")
    with pytest.raises(UserError, match="holds no task folder"):
        load_suite("fv", data_dir=tmp_path)


@pytest.mark.skipif(REAL_DATA is None, reason="SITE_INTERP_DATA names no data folder")
def test_every_fv_task_of_the_real_data_folder_loads_without_leaks() -> None:
    tasks = load_suite("fv", data_dir=REAL_DATA)
    assert len(tasks) == 57
    for task in tasks:
        earlier = {(e.input, answer) for e in (*task.train, *task.valid) for answer in e.answers}
        assert not earlier & {(e.input, answer) for e in task.test for answer in e.answers}, task.name
        assert all(answer == answer.strip() for e in task.train for answer in e.answers), task.name
    leaky = {task.name for task in tasks if task.n_leaked}
    assert {"fv/conll2003_location", "fv/conll2003_organization", "fv/conll2003_person"} <= leaky
    lengths = next(task for task in tasks if task.name == "fv/word_length")
    assert all(e.answer.isdigit() for e in lengths.train)


def test_short_names_keep_what_tells_tasks_apart() -> None:
    assert short_names(["fv/antonym", "fv/synonym"]) == {"fv/antonym": "antonym", "fv/synonym": "synonym"}
    both = short_names(["fv/antonym", "bundled/antonym", "fv/synonym"])
    assert both == {"fv/antonym": "fv/antonym", "bundled/antonym": "bundled/antonym", "fv/synonym": "synonym"}
    assert short_names(["mean of tasks"]) == {"mean of tasks": "mean of tasks"}


@pytest.mark.parametrize("names", [[], ["fv/antonym"], ["fv/antonym", "fv/antonym"]])
def test_fewer_than_two_tasks_cannot_be_compared(names: list[str]) -> None:
    with pytest.raises(UserError, match=rf"only {names[0] if names else 'none'} was given. Give two or more."):
        check_several(names)
    check_several(["fv/antonym", "fv/synonym"])
