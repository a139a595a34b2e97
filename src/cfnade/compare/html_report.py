"""What the HTML reports have in common: their style, facts, and a history with a list for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

COLOURS = "serve/page/colours.css"
"""Colours and type of the page of the service, which the reports share."""


@dataclass(frozen=True)
class Row:
    """A recommended item as it is shown."""

    name: str
    note: str
    value: str
    bar: float | None
    """Share of a full bar; None shows no bar."""


def fill(template: str, blocks: Mapping[str, str]) -> str:
    """A template of this package with its blocks, which are HTML, and the style of all reports."""
    package = files("cfnade")
    own = package / "compare"
    style = (package / COLOURS).read_text("utf-8") + (own / "report.css").read_text("utf-8")
    return Template((own / template).read_text("utf-8")).substitute(blocks, style=style)


def facts_list(facts: Mapping[str, str]) -> str:
    """The inside of a `dl`."""
    return "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())


def card(title: str, note: str, history: Iterable[tuple[str, float]], rows: Iterable[Row]) -> str:
    """A history as a line of items with their counts, and what is recommended for it."""
    chips = "".join(
        f"<li>{escape(name)}&nbsp;<small>&times;&nbsp;{count:g}</small></li>"
        for name, count in history
    )
    listed = "".join(
        f"<li><span>{escape(row.name)} <small>{escape(row.note)}</small></span>"
        f"<b>{escape(row.value)}</b>"
        + ("" if row.bar is None else f'<i style="width:{100 * row.bar:.1f}%"></i>')
        + "</li>"
        for row in rows
    )
    return (
        f'<article><h3>{escape(title)}</h3><p class="note">{escape(note)}</p>'
        f'<ul class="chips">{chips}</ul><ol class="list">{listed}</ol></article>'
    )
