"""The pieces of HTML that a report is made of; every text that goes in is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from cfnade.evaluation.plot_style import to_svg

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


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> str:
    """A table that scrolls sideways where the screen is too narrow for it."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _row(row: Sequence[Cell | str]) -> str:
    first, *others = (Cell(cell) if isinstance(cell, str) else cell for cell in row)
    return f'<th scope="row">{escape(first.text)}</th>' + "".join(map(_data, others))


def _data(cell: Cell) -> str:
    below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
    return f"<td{_class('' if cell.is_number else 'text')}>{escape(cell.text)}{below}</td>"


def _class(css: str) -> str:
    return f' class="{escape(css)}"' if css else ""
