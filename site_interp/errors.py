"""The exceptions that mean: the user can put this right."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input, settings or files; its text says what was being done, what was wrong and what to do.

    The command line prints the text as one sentence and exits with code 2.
    """


class NotFiniteError(UserError):
    """The model computed nan or an infinity; a run records such a unit as failed, and tries it again."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known ones, or nothing where none is near.

    Example:
        >>> did_you_mean("papper", ["default", "paper"])
        ' Did you mean paper?'
    """
    near = difflib.get_close_matches(name, list(known), n=2, cutoff=0.4)
    return f" Did you mean {' or '.join(near)}?" if near else ""
