"""Dials at request time: popularity, boosts, pins, diversity, and limits by category.

They change which items are listed and in which order (`cfnade.answer.rerank`). The probability of
an item stays its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.rerank import Reranking
from cfnade.checks import check_number, check_share, check_whole
from cfnade.data.catalogue import Catalogue, Unknown, as_ids
from cfnade.data.item_features import ItemFeatures
from cfnade.errors import ConfigError, DataError

MOST = 1e6
"""Largest tilt or boost: larger ones would drown the scores in rounding."""


@dataclass(frozen=True, kw_only=True)
class Dials:
    """What to prefer in a list of recommendations, apart from the user's taste.

    A list is changed in this order: popularity and boosts change the scores; then places are
    filled one after the other. Filters come first: an item that they leave out is never pinned.
    """

    popularity: float = 0.0
    """Tilt towards popular items: `popularity * log(1 + users who have the item)` is added to each
    score. Below 0, lesser known items rise. Values from -1 to 1 are useful."""

    diversity: float = 0.0
    """How different the items of a list are, at least 0 and below 1 (maximal marginal relevance).
    Each place goes to the item with the largest `(1 - diversity) * relevance - diversity *
    similarity`: its score over the range of the candidates' scores, and its largest cosine to an
    item listed already, by output weights (and by features, if the items have any)."""

    pin: Mapping[Any, int] | Iterable[Any] = ()
    """Items to list at given places, from 1, by item id; or ids to list first, in this order."""

    boost: Mapping[Any, float] = field(default_factory=dict)
    """Numbers to add to the scores of some items, by item id."""

    boost_category: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Numbers to add to the scores of all items of a category, such as
    `{"genre": {"Drama": 0.5}}`."""

    at_most: Mapping[str, int] = field(default_factory=dict)
    """Most items of each category in a list: `{"genre": 2}` lists at most two dramas, two comedies
    and so on. An item of several genres counts for each; one of none is not limited."""

    def __post_init__(self) -> None:
        _check_size("popularity", self.popularity)
        check_share(diversity=self.diversity)
        object.__setattr__(self, "pin", _places(self.pin))
        for name in ("boost", "boost_category", "at_most"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"{name} must be a mapping, got {getattr(self, name)!r}")
        for item, number in self.boost.items():
            _check_size(f"the boost of {item!r}", number)
        for column, numbers in self.boost_category.items():
            if not isinstance(numbers, Mapping):
                raise ConfigError(
                    f"boost_category takes numbers by value, such as {{{column!r}: {{'Drama': "
                    f"0.5}}}}; got {numbers!r}"
                )
            for value, number in numbers.items():
                _check_size(f"the boost of {column}={value}", number)
        for column, most in self.at_most.items():
            check_whole(f"at_most of {column!r}", most, 1)


def _check_size(name: str, value: Any) -> None:
    if abs(check_number(name, value)) > MOST:
        raise ConfigError(f"{name} must be from {-MOST:g} to {MOST:g}, got {value!r}")


def _places(pin: Mapping[Any, int] | Iterable[Any]) -> dict[Any, int]:
    """The place of each pinned item, from 1."""
    if isinstance(pin, str):
        raise ConfigError(f"pin takes a list of item ids, got the text {pin!r}")
    if isinstance(pin, Mapping):
        places = dict(pin)
        for item, place in places.items():
            check_whole(f"the place of the pinned item {item!r}", place, 1)
    else:
        try:
            items = as_ids("pin", pin)
        except DataError as error:
            raise ConfigError(str(error)) from None
        places = {item: place for place, item in enumerate(items, start=1)}
        if len(places) < len(items):
            raise ConfigError("an item is pinned twice; name each once")
    if len(set(places.values())) < len(places):
        raise ConfigError("two items are pinned to the same place; choose another for one of them")
    return places


def read_dials(
    dials: Dials | None,
    n: int,
    catalogue: Catalogue,
    n_watchers: NDArray[np.integer],
    unknown: Unknown = "raise",
) -> Reranking | None:
    """Read dials for lists of at most n items; None if they change nothing.

    Args:
        dials: By item id and category.
        n: Most items of a list.
        catalogue: The items, with their features if a category is named.
        n_watchers: Users who have each item, (n_items,).
        unknown: What to do about unknown items.

    Raises:
        DataError: If an item or a category is unknown.
        ConfigError: If a pin has a place beyond n, or the pins exceed a limit.
    """
    if dials is None:
        return None
    if not isinstance(dials, Dials):
        raise ConfigError(f"dials must be Dials(...), got {dials!r}")
    shift = _shift(dials, catalogue, n_watchers, unknown)
    pins = _pins(dials, n, catalogue, unknown)
    if shift is None and not (dials.diversity or pins or dials.at_most):
        return None
    if not dials.at_most:
        return Reranking(shift, float(dials.diversity), pins)
    features = _features(catalogue)
    room = np.full(features.n_features, np.inf)
    for column, most in dials.at_most.items():
        room[features.of_column(column)] = most
    _check_pins(pins, features, room)
    return Reranking(shift, float(dials.diversity), pins, features.matrix, room)


def _shift(
    dials: Dials, catalogue: Catalogue, n_watchers: NDArray[np.integer], unknown: Unknown
) -> NDArray[np.float32] | None:
    """What popularity and boosts add to each score, (n_items,); None for nothing."""
    shift = np.zeros(len(catalogue))
    if dials.popularity:
        shift += dials.popularity * np.log1p(n_watchers)
    for item, number in dials.boost.items():
        shift[catalogue.columns([item], unknown=unknown)] += number
    for column, numbers in dials.boost_category.items():
        for value, number in numbers.items():
            shift[_features(catalogue).members(column, value)] += number
    return shift.astype(np.float32) if shift.any() else None


def _pins(dials: Dials, n: int, catalogue: Catalogue, unknown: Unknown) -> dict[int, int]:
    """Column of the item at each pinned place, from 0, in the order of places."""
    pins = {}
    for item, place in sorted(dict(dials.pin).items(), key=lambda pin: pin[1]):
        if place > n:
            raise ConfigError(
                f"an item is pinned to place {place} of a list of {n}; ask for more items, or "
                "choose an earlier place"
            )
        for column in catalogue.columns([item], unknown=unknown):
            pins[place - 1] = column
    return pins


def _features(catalogue: Catalogue) -> ItemFeatures:
    if catalogue.features is None:
        raise DataError(
            "this model knows no categories of its items; fit it with a table of items, or leave "
            "out at_most and boost_category"
        )
    return catalogue.features


def _check_pins(pins: dict[int, int], features: ItemFeatures, room: NDArray[np.float64]) -> None:
    pinned = features.matrix[list(pins.values())].indices
    n_pinned = np.bincount(pinned, minlength=features.n_features)
    over = np.flatnonzero(n_pinned > room)
    if over.size:
        column, value = features.columns[features.column[over[0]]], features.values[over[0]]
        raise ConfigError(
            f"{n_pinned[over[0]]} pinned items have {column}={value}, and at_most allows "
            f"{room[over[0]]:g}; pin fewer, or allow more"
        )
