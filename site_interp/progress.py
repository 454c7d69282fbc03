"""Progress of long work in scripts and notebooks: a bar where someone is looking, nothing in a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

Advance = Callable[[int], None]
"""Called with the number of steps done since the last call."""


@contextmanager
def advancing(total: int, what: str, given: Advance | None) -> Iterator[Advance]:
    """The callback a caller gave, or a bar of our own on a terminal or in a notebook.

    The bar is plain text, so that a notebook needs no widgets; it is cleared at the end.

    Args:
        total: Steps in all.
        what: What is being done, in a word or two.
        given: The caller's callback; no bar is drawn then.
    """
    if given is not None:
        yield given
        return
    from tqdm import tqdm

    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    with tqdm(total=total, desc=what, leave=False, disable=not watched, mininterval=0.5) as bar:
        yield lambda n: _update(bar, n)


def _update(bar: "tqdm[Any]", n: int) -> None:
    bar.update(n)
