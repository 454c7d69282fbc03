"""Files are replaced whole or left alone, and their JSON is standard."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from site_interp.errors import UserError
from site_interp.files import json_line, safe_name, write_atomically


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bundled/antonym", "bundled-antonym"),
        ("n_prompts=1,lr=0.2", "n_prompts-1-lr-0-2"),
        ("../../etc", "------etc"),
        ("héllo wörld", "h-llo-w-rld"),
        ("A-z_9", "A-z_9"),
    ],
)
def test_safe_names_keep_plain_characters_only(text: str, expected: str) -> None:
    assert safe_name(text) == expected


def test_json_lines_are_standard_json_for_arrays_and_for_what_is_not_finite() -> None:
    value = {"a": np.float32(0.5), "b": np.arange(3), "c": (math.nan, -math.inf, 1.5), 4: None, "d": "x\ny"}
    line = json_line(value)
    assert "\n" not in line
    assert json.loads(line) == {"a": 0.5, "b": [0, 1, 2], "c": [None, None, 1.5], "4": None, "d": "x\ny"}


def test_json_lines_refuse_what_json_has_no_word_for() -> None:
    with pytest.raises(TypeError):
        json_line({"a": {1, 2}})


def test_a_file_is_written_and_replaced_with_its_folders_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_atomically(path, "é")
    assert path.read_bytes() == "é".encode()
    write_atomically(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert [found.name for found in path.parent.iterdir()] == ["b.txt"]


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(UserError, match=r"Cannot write to .*a\.txt: No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["a.txt"]


def test_the_file_itself_is_never_opened_for_writing(tmp_path: Path) -> None:
    path, link = tmp_path / "a.txt", tmp_path / "same.txt"
    path.write_text("old")
    os.link(path, link)
    write_atomically(path, "new")
    assert (path.read_text(), link.read_text()) == ("new", "old")


def test_a_path_below_a_regular_file_is_one_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Cannot write to .*: Not a directory"):
        write_atomically(tmp_path / "file" / "deeper" / "a.txt", "new")
