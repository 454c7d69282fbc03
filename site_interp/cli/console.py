"""What the verbs print: tables on stdout, progress with time left on stderr; no control characters into a log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from site_interp.experiments.fit_units import Progress


WIDEST = 1000  # characters of a table


@contextmanager
def progress_bar(total: float) -> "Iterator[Progress]":
    """A bar with the time left on a terminal; plain lines elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from site_interp.experiments.fit_units import Progress as Reporter

    console = Console(stderr=True, highlight=False, emoji=False)
    if not console.is_terminal:
        done = 0.0

        def count(work: float) -> None:
            nonlocal done
            done += work

        def say(line: str) -> None:
            console.print(f"[{min(done / max(total, 1e-9), 1):4.0%}] {line}", markup=False, soft_wrap=True)

        yield Reporter(count, say)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        yield Reporter(lambda work: bar.advance(task, work), lambda line: bar.update(task, description=line[:60]))


def table(
    heading: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, *, left: Sequence[int] = (0,)
) -> "Table":
    """A table of plain text, columns `left` aligned on the left; cells are never read as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=None if title is None else Text(title), box=box.SIMPLE_HEAD, title_justify="left")
    for place, word in enumerate(heading):
        made.add_column(Text(word), justify="left" if place in left else "right", no_wrap=place > 0)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def show(*things: "str | Table") -> None:
    """Print tables and lines to stdout, wide enough not to cut a table where the output is no terminal."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, emoji=False, width=200)
    for thing in things:
        if isinstance(thing, str):
            console.print(thing, markup=False, soft_wrap=True)
            continue
        # A table wider than the window runs over its edge: cut-off numbers could be read nowhere.
        needed = console.measure(thing, options=console.options.update(width=WIDEST)).maximum
        wide = Console(highlight=False, emoji=False, width=max(console.width, needed))
        wide.print(thing, markup=False)
