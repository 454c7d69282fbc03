"""The figures of a run, read back from the pages that `figure_files` saved, to be drawn again in the report."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from site_interp.report.markup import Html, tag

CALL = "Plotly.newPlot("
GROUPS = {
    "Scores and fitting": ("accuracy", "fitting"),
    "Alpha of each head": ("alpha_",),
    "Patching: are the heads enough, are they needed": ("patching_",),
    "Effect of each head alone": ("effects_",),
    "Transfer: heads of one task on another": ("transfer_",),
    "Overlap: which heads tasks share": ("overlap_", "stability", "head_catalogue"),
    "Further figures": ("",),
}
"""Headings, with the beginnings of the names of their figures."""
BEHIND = ", \n\t\r"  # what stands between the arguments of the call


@dataclass(frozen=True)
class Drawing:
    """One figure: what plotly draws, or a picture, or the reason why there is neither.

    Args:
        name: Name of its files.
        data, layout: Arguments of `Plotly.newPlot`; None where the page is missing or cannot be read.
        picture: PNG, where there is nothing to draw.
        reason: Why it is not drawn; empty where it is.
    """

    name: str
    data: list[Any] | None = None
    layout: dict[str, Any] | None = None
    picture: bytes | None = None
    reason: str = ""


def read_drawings(out: Path) -> list[Drawing]:
    """Every figure of OUT/figures, by what it shows and by name; none where there is no such folder."""
    folder = out / "figures"
    found = {path.stem for ending in ("html", "png") for path in folder.glob(f"*.{ending}")}
    stems = sorted(found, key=lambda stem: (list(GROUPS).index(_group(stem)), stem))
    return [_read_drawing(folder, stem) for stem in stems]


def _group(stem: str) -> str:
    return next(heading for heading, starts in GROUPS.items() if stem.startswith(starts))


def _read_drawing(folder: Path, stem: str) -> Drawing:
    try:
        data, layout = drawn_by((folder / f"{stem}.html").read_text(encoding="utf-8"))
    except FileNotFoundError:
        reason = f"{stem}.html is not there"
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{stem}.html cannot be read: {error}"
    else:
        return Drawing(stem, data, layout)
    picture = folder / f"{stem}.png"
    return Drawing(stem, picture=picture.read_bytes() if picture.is_file() else None, reason=reason)


def drawn_by(page: str) -> tuple[list[Any], dict[str, Any]]:
    """The traces and the layout that a page written by plotly draws.

    The page calls `Plotly.newPlot("id", traces, layout, ...)` with arguments that are plain JSON. They are read, never
    run: what else the page holds does not reach the report.

    Raises:
        ValueError: There is no such call.
    """
    start = page.find(CALL)
    if start < 0:
        raise ValueError("it draws nothing with plotly")
    decoder, place, arguments = json.JSONDecoder(), start + len(CALL), []
    for _ in range(3):
        while page[place : place + 1] in BEHIND and place < len(page):
            place += 1
        argument, place = decoder.raw_decode(page, place)
        arguments.append(argument)
    _, data, layout = arguments
    if not isinstance(data, list) or not isinstance(layout, dict):
        raise ValueError("it draws nothing with plotly")
    return data, layout


def figure_section(drawings: list[Drawing]) -> Html:
    """A place for every figure, in order; the page's script draws in those with a number."""
    if not drawings:
        return tag("p", "The run's folder holds no figures.")
    parts = []
    for number, drawing in enumerate(drawings):
        heading = _group(drawing.name)
        if not number or heading != _group(drawings[number - 1].name):
            parts.append(tag("h3", heading).text)
        parts.append(_figure(drawing, number).text)
    return Html("".join(parts))


def _figure(drawing: Drawing, number: int) -> Html:
    caption = tag("figcaption", drawing.name)
    if drawing.data is not None:
        return tag("figure", caption, tag("div", "", _class="drawing", data_number=str(number)))
    if drawing.picture is None:
        return tag("figure", caption, tag("p", f"Not drawn: {drawing.reason}."))
    source = "data:image/png;base64," + base64.b64encode(drawing.picture).decode()
    return tag("figure", caption, Html(f'<img alt="" src="{source}">'), tag("small", f"A picture: {drawing.reason}."))
