"""HTML out of Python values: what is not markup already is escaped, so that no text of a file can become any."""

import base64
import html
from collections.abc import Iterable

from spatialpdvi.plotting.labels import printable

__all__ = ["Markup", "data_uri", "escaped", "join", "table", "tag"]

_VOID = {"img", "meta"}  # elements that are never closed


class Markup(str):
    """Text that is HTML already; everything that is made of it by `str`'s own methods is plain text again."""

    __slots__ = ()


def escaped(text: str, *, keep: str = "") -> Markup:
    """Plain text as markup, with ``?`` for what no font can draw but the characters to ``keep``."""
    shown = "".join(sign if sign in keep else printable(sign) for sign in text) if keep else printable(text)
    return Markup(html.escape(shown, quote=True))


def tag(name: str, *children: str | None, **attributes: str | int | None) -> Markup:
    """An element with its children, which are escaped unless they are `Markup`.

    Parameters
    ----------
    name
        Of the element.
    children
        In order; None for nothing.
    attributes
        Values are always escaped. ``class_`` is written as ``class``, and ``_`` within a name as ``-``.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str | None], *, between: str = "") -> Markup:
    """Children one after the other, escaped unless they are `Markup`; plain text ``between`` them."""
    parts = (child if isinstance(child, Markup) else escaped(child) for child in children if child is not None)
    return Markup(escaped(between).join(parts))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], *, texts: int = 1) -> Markup:
    """A table that can be scrolled sideways; the first ``texts`` columns are words, all others numbers."""

    def row(cells: Iterable[str], kind: str) -> Markup:
        return tag("tr", *(tag(kind, cell, class_=None if i < texts else "number") for i, cell in enumerate(cells)))

    body = tag("tbody", *(row(cells, "td") for cells in rows))
    return tag("div", tag("table", tag("thead", row(heads, "th")), body), class_="wide")


def data_uri(png: bytes) -> str:
    """A picture as an address that holds all of it."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
