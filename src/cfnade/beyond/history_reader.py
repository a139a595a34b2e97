"""How a model reads the times and kinds of events, of a table and of a history at request time."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from cfnade.beyond.recency import decayed, rounded
from cfnade.data.catalogue import counted_items
from cfnade.data.events import Clock, Weights
from cfnade.data.moments import as_time, check_zones
from cfnade.errors import DataError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HistoryReader:
    """How a model reads the times and kinds of the events of a history."""

    half_life: float = 0.0
    """In which an event loses half of its weight, down to a tenth; 0 weighs all the same."""

    clock: Clock | None = None
    """What the times are; None if the model was fitted without."""

    weights: Weights | None = None
    """Of each kind of event; None if the model counts all alike."""

    target: str | None = None
    """The kind that the model predicts; None for any."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of events that a history may name."""
        return frozenset(self.weights or ()) | ({self.target} if self.target else set())

    def half_life_for(self, clock: Clock | None) -> float:
        """The half-life for a table with times of this clock; 0, with a warning, if it has none.

        Raises:
            DataError: If the half-life of the model makes no sense for such times.
        """
        if not self.half_life:
            return 0.0
        if clock is None:
            logger.warning("the data have no times: all events of a history weigh the same")
            return 0.0
        self.check_clock(clock)
        return self.half_life

    def check_clock(self, clock: Clock) -> None:
        """Refuse times in which the half-lives of the model make no sense, with a `DataError`."""
        if "seconds" in (clock, self.clock) and clock != self.clock:
            words = {"seconds": "dates or seconds since 1970", "order": "places in an order"}
            found, own = (words.get(each or "", "numbers") for each in (clock, self.clock))
            raise DataError(
                f"the times of the data are {found}, the model was fitted on {own}; give times "
                "of the same kind, or none (time_col='none')"
            )

    def weights_for(self, kinds: Sequence[str]) -> tuple[Weights | None, str | None]:
        """The weights of a table's kinds of events, and the one to predict if it is among them.

        Both are None, with a warning, if the table has no kinds but the model needs them.

        Raises:
            DataError: If the model does not know a kind.
        """
        if not self.kinds:
            return None, None
        if not kinds:
            logger.warning("the data have no kinds of events: all events count alike")
            return None, None
        weights = self.weights
        if weights is not None:
            for kind in kinds:
                if kind not in weights:
                    known = ", ".join(map(repr, weights))
                    raise DataError(f"the model knows no event {kind!r}; its events are {known}")
            weights = {kind: weights[kind] for kind in kinds}
        return weights, self.target if self.target in kinds else None

    def counts(self, history: Any) -> Any:
        """Counts by item id of a history with times or kinds; a plain history as it is.

        Ages are those at the latest event of the history, and an entry without a time is as late.
        Without a half-life times make no difference, but must be readable. Events without a kind
        count as the one to predict, and so do ids alone. A sum below 0 is a dislike.

        Args:
            history: As for `ImplicitCFNADE.recommend_for`. A value of a mapping may be
                `[count, when]`, a list of these, or a mapping of these by kind.

        Raises:
            DataError: If an entry cannot be read, or times are written with and without a zone.
        """
        if not isinstance(history, Mapping):
            if self.weights is None or issparse(history):
                return history
            history = _counts_by_item(history)
        if self.weights is None and not any(map(_is_detailed, history.values())):
            return history
        owners: list[int] = []
        whens: list[Any] = []
        entries: list[tuple[float, float, float]] = []  # counts, weights and times
        for place, value in enumerate(history.values()):
            for kind, count, when in self._events(value):
                owners.append(place)
                time = math.nan if when is None else as_time(when, self.clock)
                entries.append((count, self._weight(kind), time))
                whens.append(when)
        if self.clock in ("seconds", None):
            check_zones(whens)
        counts, weights, times = np.array(entries, dtype=np.float64).reshape(-1, 3).T
        sums = np.zeros(len(history))
        np.add.at(sums, owners, counts * weights)
        if self.half_life:
            is_dated = ~np.isnan(times)
            latest = times[is_dated & (counts > 0)].max(initial=-np.inf)
            ages = np.where(is_dated, np.maximum(latest - times, 0.0), 0.0)
            recent = np.zeros(len(history))
            np.add.at(recent, owners, decayed(counts * weights, ages, self.half_life))
            sums = np.where(recent > 0, rounded(recent), np.minimum(sums, 0.0))
        return dict(zip(history, sums.tolist(), strict=True))

    def owned(self, history: Any) -> list[Hashable] | None:
        """The items that already have an event of the kind to predict; None without such a kind."""
        if self.target is None or not isinstance(history, Mapping):
            return None
        return [
            item
            for item, value in history.items()
            if any(c > 0 and kind in (None, self.target) for kind, c, _ in self._events(value))
        ]

    def _weight(self, kind: str | None) -> float:
        if kind is None:
            kind = self.target
        return 1.0 if kind is None or self.weights is None else self.weights[kind]

    def _events(self, value: Any) -> Iterator[tuple[str | None, float, Any]]:
        """Kind, count and time of each part of one entry."""
        if not isinstance(value, Mapping):
            yield from ((None, count, when) for count, when in _counts_and_times(value))
            return
        for kind, events in value.items():
            kind = kind if kind is None else str(kind)  # as a table's kinds are
            if kind is not None and kind not in self.kinds:
                names = ", ".join(map(repr, sorted(self.kinds)))
                raise DataError(
                    f"the model knows no event {kind!r:.60}; "
                    + (f"its events are {names}" if names else "it was fitted without kinds")
                )
            yield from ((kind, count, when) for count, when in _counts_and_times(events))


def _counts_by_item(history: Any) -> dict[Hashable, float]:
    """Counts of a pandas Series, or of ids alone; those of repeated items add up."""
    counts: dict[Hashable, float] = {}
    for item, value in counted_items(history):
        counts[item] = counts.get(item, 0.0) + _count(value)
    return counts


def _is_detailed(value: Any) -> bool:
    return isinstance(value, list | tuple | Mapping)


def _counts_and_times(value: Any) -> list[tuple[float, Any]]:
    if not isinstance(value, list | tuple):
        return [(_count(value), None)]
    pairs = value if all(isinstance(each, list | tuple) for each in value) else [value]
    if any(len(pair) != 2 for pair in pairs):
        raise DataError(
            "an entry of a history is a count, [count, when] or a list of such pairs, perhaps by "
            f"kind of event; got {value!r:.60}"
        )
    return [(_count(count), when) for count, when in pairs]


def _count(value: Any) -> float:
    try:
        count = float(value)
    except (TypeError, ValueError):
        raise DataError("the counts in a history must be numbers") from None
    if not 0 <= count < math.inf:
        raise DataError("the counts in a history must be finite and at least 0")
    return count
