"""The options that set dials, as `recommend` and `scale score` take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cfnade.answer.dials import Dials
from cfnade.cli import options
from cfnade.data.item_lookup import ItemLookup
from cfnade.errors import ConfigError


@dataclass(frozen=True)
class DialOptions:
    """What to prefer in a list, apart from taste."""

    popularity: Annotated[
        float, typer.Option(help="Tilt towards popular items; below 0, towards less known ones.")
    ] = 0.0
    diversity: Annotated[
        float, typer.Option(help="How different the items are, at least 0 and below 1.")
    ] = 0.0
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="ITEM[=PLACE]", help="List an item first, or at a place; repeatable."),
    ] = None
    boost: Annotated[
        list[str] | None,
        typer.Option(metavar="ITEM=NUMBER", help="Add a number to an item's score; repeatable."),
    ] = None
    boost_category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE=NUMBER",
            help="Add a number to the scores of a category; repeatable.",
        ),
    ] = None
    at_most: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=NUMBER", help="Most items of each category in a list; repeatable."
        ),
    ] = None

    def read(self, items: ItemLookup) -> Dials:
        """As dials, given how items are found."""
        return Dials(
            popularity=self.popularity,
            diversity=self.diversity,
            pin=_pins(self.pin or [], items),
            boost=_boosts(self.boost or [], items),
            boost_category=_category_boosts(self.boost_category or []),
            at_most={
                column: _number("--at-most", "COLUMN=NUMBER", f"{column}={text}", text, int)
                for column, text in options.parse_pairs(
                    self.at_most, "--at-most", "genre=2"
                ).items()
            },
        )


def _pins(entries: list[str], items: ItemLookup) -> dict[Any, int]:
    """The place of each pinned item; those without one take the first free places."""
    places: dict[Any, int] = {}
    without = []
    for entry in entries:
        item, equals, text = entry.rpartition("=")
        if not equals or entry in items:  # an id may contain an equals sign
            without.append(items.item(entry))
        else:
            place = _number("--pin", "ITEM or ITEM=PLACE", entry, text, int)
            places[items.item(item)] = place
    if len({*places, *without}) < len(entries):
        raise ConfigError("--pin names an item twice; name each once")
    free = (place for place in range(1, len(entries) + 1) if place not in places.values())
    return {**places, **dict(zip(without, free, strict=False))}


def _boosts(entries: list[str], items: ItemLookup) -> dict[Any, float]:
    boosts: dict[Any, float] = {}
    for entry in entries:
        item, equals, text = entry.rpartition("=")
        if not equals:
            raise ConfigError(f"--boost takes ITEM=NUMBER, got {entry!r}")
        boosts[items.item(item)] = _number("--boost", "ITEM=NUMBER", entry, text, float)
    return boosts


def _category_boosts(entries: list[str]) -> dict[str, dict[str, float]]:
    boosts: dict[str, dict[str, float]] = {}
    form = "COLUMN=VALUE=NUMBER"
    for entry in entries:
        column, _, rest = entry.partition("=")
        value, equals, text = rest.rpartition("=")
        if not equals:
            raise ConfigError(f"--boost-category takes {form}, got {entry!r}")
        number = _number("--boost-category", form, entry, text, float)
        boosts.setdefault(column, {})[value] = number
    return boosts


def _number(option: str, form: str, entry: str, text: str, kind: type[Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{option} takes {form}, got {entry!r}") from None
