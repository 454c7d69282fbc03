"""The answers among which one is right, for tasks of multiple choice."""

import re
from dataclasses import dataclass

LISTED = re.compile(r"^(?:(\([A-Z]\)) |([A-Z])\. |- (.+)$)", re.MULTILINE)
HEADING = "\nOptions:\n"


@dataclass(frozen=True)
class Options:
    """Where the options of an input are found.

    Args:
        words: The same for every input; empty where each input lists its own, behind a line `Options:`.

    Example:
        >>> Options().of("Which is red?\\nOptions:\\n(A) sky\\n(B) blood")
        ('(A)', '(B)')
        >>> Options().of("Well?\\nOptions:\\n- Yes\\n- No "), Options(("True", "False")).of("1 < 2 is")
        (('Yes', 'No'), ('True', 'False'))
    """

    words: tuple[str, ...] = ()

    def of(self, text: str) -> tuple[str, ...]:
        """The options of an input as they are answered: `(A)` or `A` of lettered ones, the words of others."""
        if self.words:
            return self.words
        _, heading, listed = text.rpartition(HEADING)
        found = ("".join(parts).strip() for parts in LISTED.findall(listed if heading else ""))
        return tuple(dict.fromkeys(found))
