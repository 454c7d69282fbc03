"""Figures on disk: the page, the numbers it was drawn from, and a picture where a Chromium is installed.

Works on any object that writes itself the way plotly's figures do; plotly itself is not imported here.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from site_interp.files import json_line, safe_name, writing

BROWSER_START_SECONDS = 60
RENDER_SECONDS = 5  # per figure, on top of the start
PICTURE_SCALE = 2  # picture pixels per layout pixel
NO_BROWSER = 3  # exit status of the rendering process
RENDER = "import sys; from site_interp.figure_files import render_pictures; sys.exit(render_pictures(sys.argv[1]))"


@runtime_checkable
class Figure(Protocol):
    """The part of a plotly figure that is needed to save it."""

    def write_html(self, *args: Any, **kwargs: Any) -> Any: ...

    def to_json(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True)
class SavedFigures:
    """What was written.

    Args:
        files: Every file written, sorted: pages, numbers, pictures and the script the pages share.
        png_left_out: Why there are no PNG files; empty where there are.
    """

    files: tuple[Path, ...]
    png_left_out: str


def save_figure(
    figure: Figure, out: Path, name: str, numbers: Mapping[str, object], *, png: bool = True
) -> SavedFigures:
    """Save one figure; see `save_figures`, which is quicker for several."""
    return save_figures(out, {name: (figure, numbers)}, png=png)


def save_figures(
    out: Path,
    figures: Mapping[str, tuple[Figure, Mapping[str, object]]],
    *,
    png: bool = True,
    replaces: Sequence[str] = (),
) -> SavedFigures:
    """Save figures as OUT/figures/<name>.html, .json (the numbers) and, where a browser is installed, .png.

    The pages share one script file in the folder and need no network. Pictures are made in a process of its own that
    starts the browser once and is ended after 60 s and 5 s per figure. Files of the same name are replaced; a picture
    that cannot be replaced is removed, so that none disagrees with its numbers.

    Args:
        out: Output folder.
        figures: For each name the figure and the numbers it was drawn from.
        png: Whether to try to make pictures.
        replaces: Beginnings of names: older figures with such a name that are not among these are removed, so that a
            folder never shows two settings side by side.

    Raises:
        UserError: The folder cannot be written.
        ValueError: Two names that are the same as file names.
    """
    stems = {name: safe_name(name) for name in figures}
    if len(set(stems.values())) != len(stems):
        raise ValueError(f"Cannot save the figures {', '.join(figures)}: two have one file name. Rename one of them.")
    folder = out / "figures"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as name:
            temporary = Path(name)
            for title, (figure, numbers) in figures.items():
                page = temporary / f"{stems[title]}.html"
                figure.write_html(page, include_plotlyjs="directory", div_id=stems[title])
                page.with_suffix(".json").write_text(_numbers_text(numbers), encoding="utf-8")
            drawings = {stems[title]: str(figure.to_json()) for title, (figure, _) in figures.items()}
            left_out = _make_pictures(drawings, temporary) if png else "not asked for"
            for stem in stems.values():
                (folder / f"{stem}.png").unlink(missing_ok=True)
            names = sorted(path.name for path in temporary.iterdir())
            for file_name in names:
                os.replace(temporary / file_name, folder / file_name)
        old = [path for path in folder.iterdir() if path.suffix in (".html", ".json", ".png")]
        for path in old:
            if path.stem not in stems.values() and path.name.startswith(tuple(map(safe_name, replaces))):
                path.unlink()
    return SavedFigures(tuple(folder / file_name for file_name in names), left_out)


def render_pictures(folder: str) -> int:
    """Render every `*.json` drawing in a folder to a PNG beside it; runs in the process that `save_figures` starts.

    Returns:
        Exit status: 0 if all were made, 3 if no browser is installed.
    """
    import kaleido
    from choreographer.errors import ChromeNotFoundError

    drawings = sorted(Path(folder).glob("*.json"))
    jobs = [
        {
            "fig": json.loads(drawing.read_text(encoding="utf-8")),
            "path": drawing.with_suffix(".png"),
            "opts": {"format": "png", "scale": PICTURE_SCALE},
        }
        for drawing in drawings
    ]
    try:
        # MathJax would be fetched from the network.
        kaleido.write_fig_from_object_sync(jobs, kopts={"mathjax": False}, cancel_on_error=True)
    except ChromeNotFoundError:
        return NO_BROWSER
    return 0


def find_browser() -> str | None:
    """The browser that makes pictures, or None where there is none."""
    from choreographer.browsers.chromium import Chromium

    found: str | None = Chromium.find_browser(skip_local=False)
    return found


def _make_pictures(drawings: Mapping[str, str], destination: Path) -> str:
    """Put a PNG of each drawing into a folder, all or none; returns why there are none, or an empty text."""
    seconds = BROWSER_START_SECONDS + RENDER_SECONDS * len(drawings)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile() as log:
        for stem, drawing in drawings.items():
            (Path(name) / f"{stem}.json").write_text(drawing, encoding="utf-8")
        try:
            status = subprocess.run(
                [sys.executable, "-c", RENDER, name],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"the browser took longer than {seconds} s"
        pictures = {stem: Path(name) / f"{stem}.png" for stem in drawings}
        if status == NO_BROWSER:
            return "no Chromium or Chrome is installed"
        if status or not all(path.is_file() and path.stat().st_size for path in pictures.values()):
            log.seek(0)
            lines = log.read().decode(errors="replace").split("\n")
            return f"the browser failed: {next((line for line in reversed(lines) if line.strip()), 'no message')}"
        for stem, picture in pictures.items():
            (destination / f"{stem}.png").write_bytes(picture.read_bytes())
    return ""


def _numbers_text(numbers: Mapping[str, object]) -> str:
    """The numbers as JSON, one top-level key a line."""
    lines = (f"{json.dumps(key)}: {json_line(value)}" for key, value in numbers.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
