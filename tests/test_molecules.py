"""MoleculeNet files: what is read, left out, merged and cut."""

import random
from collections import Counter
from pathlib import Path

import pytest

from site_interp.errors import UserError
from site_interp.tasks import Task, list_tasks, load_suite, load_task
from site_interp.tasks.molecules import canonical_smiles, scaffold, smiles_of

RINGS = ("c1ccccc1", "c1ccncc1", "C1CCCCC1", "c1ccoc1", "c1ccsc1", "C1CCNCC1")
TAILS = ("C", "CC", "CCC", "CO", "CCO", "CN", "CCN", "ClC", "BrC", "FC")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "moleculenet"
    folder.mkdir()
    molecules = [f"{tail}{ring}" for ring in RINGS for tail in TAILS]  # 60, ordered by label as the originals are
    bace = "".join(f"{m},{int(n < 20)},x\r\n" for n, m in enumerate(molecules))
    (folder / "bace.csv").write_bytes(f"smiles,Class,CID\r\n{bace}".encode())
    rows = [f'{n},"a, b",{int(n % 4 > 0)},{m}' for n, m in enumerate(molecules)]
    rows += ["60,again,1,C(C)O", "61,again,0,OCC", "62,again,1,N(C)C", "63,again,1,CNC", "64,wrong,1,C(C)(C)(C)(C)C"]
    (folder / "BBBP.csv").write_text("num,name,p_np,smiles\r\n" + "\r\n".join(rows) + "\r\n")
    clintox = "".join(f"{m},{int(n % 5 > 0)},{int(n % 5 == 0)}\n" for n, m in enumerate(molecules))
    (folder / "clintox.csv").write_text(f"smiles,FDA_APPROVED,CT_TOX\n{clintox}")
    return tmp_path


def splits_of(task: Task) -> list[list[str]]:
    return [[smiles_of(e.input) for e in split] for split in (task.train, task.valid, task.test)]


def test_a_molecule_is_asked_about_with_yes_or_no(data: Path) -> None:
    task = load_task("moleculenet/bace", data_dir=data)
    example = next(e for e in task.train if smiles_of(e.input) == "Cc1ccccc1")
    assert (example.input, example.answers) == ("Cc1ccccc1\nBACE-1 Inhibit", ("Yes",))
    assert task.options is not None
    assert (task.options.of(example.input), task.chance()) == (("Yes", "No"), 0.5)
    assert "60 rows, 0 unreadable and 0 molecules with both answers" in task.description


def test_every_split_has_both_answers_in_their_share_though_the_file_is_ordered(data: Path) -> None:
    for seed in range(3):
        task = load_task("moleculenet/bace", data_dir=data, split_seed=seed)
        counts = [Counter(e.answer for e in split) for split in (task.train, task.valid, task.test)]
        assert counts == [{"Yes": 12, "No": 24}, {"Yes": 2, "No": 4}, {"Yes": 6, "No": 12}]
    assert splits_of(task) != splits_of(load_task("moleculenet/bace", data_dir=data, split_seed=0))
    answers = [e.answer for e in task.train]
    assert answers != sorted(answers), "the answers of a split are not in order"


def test_spellings_of_one_molecule_are_one_example_and_contradictions_none(data: Path) -> None:
    task = load_task("moleculenet/bbbp", data_dir=data)
    found = [molecule for split in splits_of(task) for molecule in split]
    assert len(found) == len(set(found)) == 61
    assert "CNC" in found
    assert "CCO" not in found, "it stands there with both answers"
    assert "65 rows, 1 unreadable and 1 molecules with both answers left out" in task.description


def test_the_field_that_gives_the_answer_away_is_shown_on_request_only(data: Path) -> None:
    plain, told = (load_task(f"moleculenet/{name}", data_dir=data) for name in ("clintox", "clintox_fda"))
    assert not any("FDA" in e.input for e in plain.train)
    for example in told.train:
        shown = example.input.splitlines()[1]
        assert shown == f"FDA-approved: {'No' if example.answer == 'Yes' else 'Yes'}"


def test_no_scaffold_stands_in_two_splits(data: Path) -> None:
    task = load_task("moleculenet/bace:scaffold", data_dir=data)
    scaffolds = [{scaffold(molecule) for molecule in split} for split in splits_of(task)]
    assert all(scaffolds)
    assert not scaffolds[0] & scaffolds[1]
    assert not (scaffolds[0] | scaffolds[1]) & scaffolds[2]
    assert sum(map(len, splits_of(task))) == 60


def test_listings_and_the_suite_hold_the_files_that_are_there(data: Path) -> None:
    names = ["moleculenet/bace", "moleculenet/bbbp", "moleculenet/clintox", "moleculenet/clintox_fda"]
    assert [info.name for info in list_tasks(data) if info.source == "moleculenet"] == names
    assert [task.name for task in load_suite("moleculenet", data_dir=data)] == names
    (data / "moleculenet/BBBP.csv").unlink()
    assert "moleculenet/bbbp" not in [info.name for info in list_tasks(data)]


def test_the_spelling_of_a_molecule_does_not_matter() -> None:
    assert canonical_smiles("OCC") == canonical_smiles("C(C)O") == "CCO"
    assert canonical_smiles("C(C)(C)(C)(C)C") is None
    assert canonical_smiles("") is None
    assert scaffold("CCc1ccccc1") == scaffold("c1ccccc1Cl") == "c1ccccc1"
    assert scaffold("CCO") == ""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("moleculenet/bacy", "Did you mean moleculenet/bace"),
        ("moleculenet/bace:random", "each also with :scaffold behind it"),
        ("moleculenet/tox21", "there are moleculenet/bace, moleculenet/bbbp"),
    ],
)
def test_a_task_or_split_that_is_not_there_is_told_with_those_that_are(data: Path, name: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_task(name, data_dir=data)


def test_without_its_file_or_with_other_columns_it_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_INTERP_DATA", raising=False)
    with pytest.raises(UserError, match=r"no data folder with moleculenet/bace.csv was named"):
        load_task("moleculenet/bace")
    path = data / "moleculenet/bace.csv"
    path.write_text("smiles,Class\nCCO,2\n")
    with pytest.raises(UserError, match="has '2' in its column 'Class', and not 0 or 1"):
        load_task("moleculenet/bace", data_dir=data)
    path.write_text("mol,Class\nCCO,1\n")
    with pytest.raises(UserError, match="no molecule in its column 'smiles'"):
        load_task("moleculenet/bace", data_dir=data)


def test_without_rdkit_it_says_how_to_add_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rdkit.Chem.Scaffolds.MurckoScaffold", None)
    with pytest.raises(UserError, match=r"pip install 'site-interp\[molecules\]'"):
        load_task("moleculenet/bace", data_dir=data)


def test_what_is_cut_without_strata_is_as_it_was() -> None:
    from site_interp.tasks.splits import cut_splits

    rows = [(str(n), ("x",)) for n in range(20)]
    train, valid, test = cut_splits(rows, name="t", split_seed=0)
    order = list(range(20))
    from site_interp.tasks import sub_seed

    random.Random(sub_seed(0, "split", "t")).shuffle(order)
    assert [e.input for e in (*train, *valid, *test)] == list(map(str, order))
