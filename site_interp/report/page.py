"""Putting the page together: one file, its scripts allowed by their hashes, everything else forbidden."""

import hashlib
from base64 import b64encode
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from site_interp.errors import UserError
from site_interp.files import json_line, write_atomically
from site_interp.plots import method_colour
from site_interp.plots.script import drawing_script
from site_interp.report.configuration import configuration_section
from site_interp.report.contents import FLOORS, Contents, read_contents
from site_interp.report.examples import examples_of
from site_interp.report.figures import Drawing, figure_section, read_drawings
from site_interp.report.markup import Html, tag
from site_interp.report.tables import (
    METRIC_WORDS,
    cost_table,
    difference_tables,
    metric_choice,
    missing_table,
    score_tables,
)

REPORT_NAME = "report.html"
NOT_IN_JSON = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}  # so that no text can end the element it stands in
# Styles are inline because plotly sets its own while it draws; with no address to load from they can do no harm.
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(out: Path, to: Path | None = None, *, created: str | None = None) -> Path:
    """Write the page of an output folder; a page that is there is replaced whole.

    Args:
        out: Output folder of a run; it may still be running.
        to: Where to write, a name that ends in .html; by default OUT/report.html.
        created: As in `report_page`.

    Returns:
        The file.

    Raises:
        UserError: The folder has no results, they are damaged, or the file cannot be written.
    """
    path = out / REPORT_NAME if to is None else to
    if path.suffix != ".html":
        raise UserError(f"Cannot write the report to {path}: its name does not end in .html. Use {REPORT_NAME}, say.")
    write_atomically(path, report_page(out, created=created))
    return path


def report_page(out: Path, *, created: str | None = None) -> bytes:
    """The page of an output folder: the same folder gives the same page.

    The page needs no network and no other file, and its policy forbids it to load any. Plotly's script is in it where
    the run has figures (4.8 MB).

    Args:
        out: Output folder of a run.
        created: Date in words; by default when the results were last written, in UTC.

    Returns:
        HTML as UTF-8.

    Raises:
        UserError: The folder has no results, or they are damaged.
    """
    contents = read_contents(out)
    drawings = read_drawings(out)
    examples = examples_of(out, contents)
    scripts = [drawing_script()] if any(drawing.data is not None for drawing in drawings) else []
    scripts = [_clean(script) for script in (*scripts, _asset("page.js"))]
    date = created or f"{datetime.fromtimestamp(contents.modified, UTC):%Y-%m-%d %H:%M} UTC"
    page = Template(_asset("page.html")).substitute(
        policy=POLICY.format(scripts=" ".join(map(_hash, scripts))),
        style=_asset("page.css"),
        model=_text(contents.records[-1].model),
        about=_text(_about(contents, date)),
        notes=_notes(contents).text,
        metrics=metric_choice(contents).text,
        scores=score_tables(contents).text,
        missing=missing_table(contents).text,
        costs=cost_table(contents).text,
        differences=difference_tables(contents).text,
        figures=figure_section(drawings).text,
        configuration=configuration_section(contents).text,
        data=embedded(_data(contents, drawings, examples)),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )
    return page.encode("utf-8", "xmlcharrefreplace")  # half a surrogate pair, which JSON may hold, is no UTF-8


def embedded(value: object) -> str:
    """JSON that may stand in a script element of a page.

    Example:
        >>> embedded("</script>")
        '"\\\\u003c/script\\\\u003e"'
    """
    text = json_line(value)
    for sign, code in NOT_IN_JSON.items():
        text = text.replace(sign, code)
    return text


def _data(contents: Contents, drawings: list[Drawing], examples: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page's script draws and lists."""
    return {
        "figures": [None if d.data is None else {"data": d.data, "layout": d.layout} for d in drawings],
        "tasks": examples,
        "methods": [
            {"label": label, "colour": method_colour(label), "floor": label.split("(", 1)[0] in FLOORS}
            for label in contents.methods
        ],
        "verdicts": {name: name.replace("_", " ") for name in METRIC_WORDS if name != "answer_log_prob"},
    }


def _about(contents: Contents, date: str) -> str:
    n_tasks, n_methods = len(contents.tasks), len(contents.methods)
    seeds = len({record.seed for record in contents.records})
    counts = ((n_tasks, "task"), (n_methods, "method"), (seeds, "seed"))
    return ", ".join(f"{n} {word}{'s' if n != 1 else ''}" for n, word in counts) + f". Results of {date}."


def _notes(contents: Contents) -> Html:
    return tag("ul", *(tag("li", note) for note in contents.notes), _class="notes") if contents.notes else Html("")


def _text(text: str) -> str:
    return tag("span", text).text


def _asset(name: str) -> str:
    return (files("site_interp.report") / name).read_text(encoding="utf-8")


def _clean(script: str) -> str:
    """A script with the line ends that a browser makes of them, so that its hash is the browser's."""
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("Cannot put a script into the page: it would end its own element. Write the text otherwise.")
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
