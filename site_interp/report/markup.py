"""HTML as a type of its own: plain text is always escaped on its way into a page."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Html:
    """Finished markup; texts that are not of this type are escaped wherever they are put in."""

    text: str


def tag(name: str, *inside: str | Html, **attributes: str) -> Html:
    """An element with its content.

    Args:
        name: Name of the element.
        inside: Texts, escaped here, and finished markup.
        attributes: Values, escaped here; an underscore in front of a name that Python reserves is left out, and one
            inside stands for a hyphen.

    Example:
        >>> tag("p", "a < b ", tag("b", "&"), _class="x").text
        '<p class="x">a &lt; b <b>&amp;</b></p>'
    """
    named = ((key.strip("_").replace("_", "-"), value) for key, value in attributes.items())
    texts = "".join(f' {key}="{html.escape(value)}"' for key, value in named)
    return Html(f"<{name}{texts}>{joined(inside).text}</{name}>")


def joined(parts: Iterable[str | Html]) -> Html:
    """Texts and markup one after the other."""
    return Html("".join(part.text if isinstance(part, Html) else html.escape(part) for part in parts))


def grid(heading: Sequence[str | Html], rows: Iterable[Sequence[Html]], caption: str = "") -> Html:
    """A table whose wide content scrolls; the rows hold finished cells."""
    head = tag("thead", tag("tr", *(tag("th", word, scope="col") for word in heading)))
    body = tag("tbody", *(tag("tr", *row) for row in rows))
    made = tag("table", *([tag("caption", caption)] if caption else []), head, body)
    return tag("div", made, _class="wide", tabindex="0", role="region", aria_label=caption or "table")
