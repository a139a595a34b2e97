"""The pieces of HTML that a report is made of; every text that goes in is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from cfnade.compare.plot_style import to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure with what it shows in words."""

    figure: Figure
    alt: str
    """For those who do not see it."""


@dataclass(frozen=True)
class Cell:
    """What stands in a table."""

    text: str
    below: str = ""
    """In small print under it."""

    is_number: bool = True
    is_strong: bool = False


def section(title: str, *content: str) -> str:
    """A part of the page with its heading; the content is HTML already."""
    return f"<section><h2>{escape(title)}</h2>\n{''.join(content)}</section>"


def paragraph(text: str, css: str = "") -> str:
    """A paragraph, of a style if one is named."""
    return f"<p{_class(css)}>{escape(text)}</p>"


def definitions(values: Mapping[str, str]) -> str:
    """Names and what they stand for; those without a value are left out."""
    listed = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items() if v)
    return f"<dl>{''.join(listed)}</dl>"


def picture(shown: Picture, name: str, caption: str = "", css: str = "") -> str:
    """A figure as inline SVG under a name that is unique on the page."""
    svg = to_svg(shown.figure, name)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(shown.alt)}"', 1)
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{_class(css)}>{svg}{told}</figure>"


def table(caption: str, heads: Sequence[Cell | str], rows: Iterable[Sequence[Cell | str]]) -> str:
    """A table that scrolls sideways where the screen is too narrow for it.

    The caption stands before it, where it does not scroll away.
    """
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
