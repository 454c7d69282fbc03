"""Finished pieces of an analysis: found again by their hash, written whole, refused where they cannot be read."""

from pathlib import Path

import pytest

from site_interp.errors import UserError
from site_interp.files import locked
from site_interp.unit_files import read_unit, unit_path, write_unit


def test_a_piece_is_found_by_its_hash_only(tmp_path: Path) -> None:
    path = unit_path(tmp_path, "patching", "0123456789", "bundled/antonym", "seed-0", "necessity")
    assert path == tmp_path / "patching" / "bundled-antonym__seed-0__necessity__01234567.json"
    assert read_unit(path, "0123456789") is None
    write_unit(path, "0123456789", {"scores": (0.5, float("nan"))})
    assert read_unit(path, "0123456789") == {"scores": [0.5, None]}
    assert read_unit(path, "0123456780") is None, "the name holds the start of the hash only"
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b'{"unit_hash": "h", "val', b"\xff\xfe", b"[" * 100_000])
def test_a_torn_piece_is_made_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "piece.json"
    path.write_bytes(content)
    assert read_unit(path, "h") is None
    write_unit(path, "h", {"k": 3})
    assert read_unit(path, "h") == {"k": 3}


@pytest.mark.parametrize(("old", "new"), [("0.25", "0.5"), ("0.25", "null"), ("0.25", '"0.25"'), ("[0.25, 1]", "[]")])
def test_a_piece_whose_values_were_changed_is_made_again(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "piece.json"
    write_unit(path, "h", {"scores": [0.25, 1]})
    assert read_unit(path, "h") == {"scores": [0.25, 1]}
    path.write_text(path.read_text().replace(old, new))
    assert read_unit(path, "h") is None


def test_a_piece_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "piece.json").mkdir()
    with pytest.raises(UserError, match=r"Cannot read .*piece\.json: Is a directory. Remove it"):
        read_unit(tmp_path / "piece.json", "h")


@pytest.mark.parametrize("content", ["[]", '{"unit_hash": "h"}', '{"unit_hash": "h", "values": 3}', "null"])
def test_json_that_is_no_piece_is_no_finished_piece(tmp_path: Path, content: str) -> None:
    (tmp_path / "piece.json").write_text(content)
    assert read_unit(tmp_path / "piece.json", "h") is None


def test_a_folder_is_locked_for_others_and_free_again(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match="another process is writing there")
    with locked(tmp_path / "out"), refused, locked(tmp_path / "out"):
        pytest.fail("two at once")
    with locked(tmp_path / "out"):
        pass
