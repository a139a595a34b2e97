"""The HTML elements of a report; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from cfnade.compare.plots import to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure and its description in words."""

    figure: Figure
    alt: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `below` is in small print."""

    text: str
    below: str = ""
    is_number: bool = True
    is_strong: bool = False


def section(title: str, *content: str) -> str:
    """A section with its heading; the content is HTML."""
    return f"<section><h2>{escape(title)}</h2>\n{''.join(content)}</section>"


def paragraph(text: str, css: str = "") -> str:
    """A paragraph with an optional style."""
    return f"<p{_class(css)}>{escape(text)}</p>"


def definitions(values: Mapping[str, str]) -> str:
    """A list of names and values; empty values are left out."""
    listed = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items() if v)
    return f"<dl>{''.join(listed)}</dl>"


def picture(shown: Picture, name: str, caption: str = "", css: str = "") -> str:
    """A figure as inline SVG; the name must be unique on the page."""
    svg = to_svg(shown.figure, name)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(shown.alt)}"', 1)
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{_class(css)}>{svg}{below}</figure>"


def table(caption: str, heads: Sequence[Cell | str], rows: Iterable[Sequence[Cell | str]]) -> str:
    """A table that scrolls sideways on narrow screens; its caption does not scroll."""
    head = "".join(_tag("th", cell, ' scope="col"') for cell in heads)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        f'<p class="caption">{escape(caption)}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _row(row: Sequence[Cell | str]) -> str:
    first, *others = row
    return _tag("th", first, ' scope="row"') + "".join(_tag("td", cell) for cell in others)


def _tag(name: str, cell: Cell | str, attributes: str = "") -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
    css = _class("" if cell.is_number else "text")
    text = f"<strong>{escape(cell.text)}</strong>" if cell.is_strong else escape(cell.text)
    return f"<{name}{attributes}{css}>{text}{below}</{name}>"


def _class(css: str) -> str:
    return f' class="{escape(css)}"' if css else ""
