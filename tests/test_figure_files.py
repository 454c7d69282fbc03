"""Saved figures: pages that share a script, the numbers beside them, and pictures only where they are true."""

import json
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from site_interp import figure_files
from site_interp.errors import UserError
from site_interp.figure_files import save_figure, save_figures
from site_interp.plots import head_map

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
needs_browser = pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no Chromium or Chrome is installed")
PNG_START = b"\x89PNG\r\n\x1a\n"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "figures").iterdir())


def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program of our own where the renderer looks for the browser."""
    path = tmp_path / "browser"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BROWSER_PATH", str(path))


def test_a_figure_has_its_numbers_beside_it(tmp_path: Path) -> None:
    alpha = np.array([[0.25, 0.5], [0.75, 1.0]])
    saved = save_figure(head_map(alpha), tmp_path, "bundled/antonym", {"alpha": alpha, "n": 2}, png=False)
    assert names(tmp_path) == ["bundled-antonym.html", "bundled-antonym.json", "plotly.min.js"]
    assert saved.files == tuple(tmp_path / "figures" / name for name in names(tmp_path))
    assert saved.png_left_out == "not asked for"
    numbers = json.loads((tmp_path / "figures" / "bundled-antonym.json").read_text())
    assert numbers == {"alpha": [[0.25, 0.5], [0.75, 1.0]], "n": 2}


def test_pages_share_one_script_of_the_folder_and_load_nothing_else(tmp_path: Path) -> None:
    figure = head_map([[0.5]])
    save_figures(tmp_path, {"a": (figure, {}), "b": (figure, {})}, png=False)
    for name in ("a.html", "b.html"):
        page = (tmp_path / "figures" / name).read_text()
        assert 'src="plotly.min.js"' in page
        assert len(page) < 100_000
        assert "http://" not in page
        assert "cdn." not in page
    assert (tmp_path / "figures" / "plotly.min.js").stat().st_size > 1_000_000


def test_the_same_figure_makes_the_same_page(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        save_figure(head_map([[0.5]]), tmp_path / folder, "a", {}, png=False)
    assert (tmp_path / "x/figures/a.html").read_bytes() == (tmp_path / "y/figures/a.html").read_bytes()


def test_a_picture_that_was_not_made_anew_is_removed(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.png").write_bytes(b"old")
    (tmp_path / "figures" / "other.png").write_bytes(b"old")
    save_figure(head_map([[0.5]]), tmp_path, "a", {}, png=False)
    assert names(tmp_path) == ["a.html", "a.json", "other.png", "plotly.min.js"]


def test_two_names_that_are_one_file_name_are_refused(tmp_path: Path) -> None:
    figure = head_map([[0.5]])
    with pytest.raises(ValueError, match=r"figures a/b, a\.b: two have one file name"):
        save_figures(tmp_path, {"a/b": (figure, {}), "a.b": (figure, {})}, png=False)


def test_a_figure_that_fails_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    class Broken:
        def write_html(self, path: Path, **options: Any) -> None:
            Path(path).write_text("half")
            raise RuntimeError("mine")

        def to_json(self) -> str:
            return "{}"

    save_figure(head_map([[0.5]]), tmp_path, "a", {"n": 1}, png=False)
    before = {name: (tmp_path / "figures" / name).read_bytes() for name in names(tmp_path)}
    with pytest.raises(RuntimeError, match="mine"):
        save_figure(Broken(), tmp_path, "a", {"n": 2}, png=False)
    assert {name: (tmp_path / "figures" / name).read_bytes() for name in names(tmp_path)} == before


def test_a_path_below_a_regular_file_is_one_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Cannot write to .*: Not a directory"):
        save_figure(head_map([[0.5]]), tmp_path / "file", "a", {}, png=False)


def test_without_a_browser_the_rest_is_written_and_the_reason_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "none"))
    saved = save_figure(head_map([[0.5]]), tmp_path, "a", {})
    assert saved.png_left_out == "no Chromium or Chrome is installed"
    assert names(tmp_path) == ["a.html", "a.json", "plotly.min.js"]


def test_a_browser_that_hangs_is_ended_and_the_reason_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser(tmp_path, monkeypatch, "exec sleep 20")
    monkeypatch.setattr(figure_files, "BROWSER_START_SECONDS", 2)
    monkeypatch.setattr(figure_files, "RENDER_SECONDS", 1)
    start = time.monotonic()
    saved = save_figure(head_map([[0.5]]), tmp_path, "a", {})
    assert time.monotonic() - start < 10
    assert saved.png_left_out == "the browser took longer than 3 s"
    assert names(tmp_path) == ["a.html", "a.json", "plotly.min.js"]


def test_a_browser_that_dies_is_reported_and_the_rest_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser(tmp_path, monkeypatch, "exit 1")
    saved = save_figure(head_map([[0.5]]), tmp_path, "a", {})
    assert saved.png_left_out.startswith("the browser failed: ")
    assert names(tmp_path) == ["a.html", "a.json", "plotly.min.js"]


@needs_browser
def test_pictures_of_several_figures_come_from_one_start_of_the_browser(tmp_path: Path) -> None:
    figures = {f"map {n}": (head_map(np.full((n, 2), 0.5)), {"n": n}) for n in (2, 30)}
    saved = save_figures(tmp_path, figures)
    assert saved.png_left_out == ""
    assert [path.name for path in saved.files if path.suffix == ".png"] == ["map-2.png", "map-30.png"]
    for path in saved.files:
        if path.suffix == ".png":
            data = path.read_bytes()
            assert data.startswith(PNG_START)
            assert int.from_bytes(data[16:20], "big") == 2 * 900


def test_saving_imports_neither_plotly_nor_torch_nor_kaleido() -> None:
    code = "import sys, site_interp.store; sys.exit(any(m in sys.modules for m in ('plotly', 'torch', 'kaleido')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_older_figures_that_are_not_drawn_anew_go(tmp_path: Path) -> None:
    figure = head_map([[0.5]])
    save_figures(tmp_path, {"overlap_a": (figure, {}), "overlap_b": (figure, {}), "alpha": (figure, {})}, png=False)
    save_figures(tmp_path, {"overlap_a": (figure, {"k": 2})}, png=False, replaces=["overlap_"])
    assert names(tmp_path) == ["alpha.html", "alpha.json", "overlap_a.html", "overlap_a.json", "plotly.min.js"]
    assert json.loads((tmp_path / "figures" / "overlap_a.json").read_text()) == {"k": 2}
