"""The events behind the counts: when they were, and of which kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.errors import ConfigError, DataError

Clock: TypeAlias = Literal["seconds", "number", "order"]
"""What times are: seconds since 1970 (UTC); numbers in a unit of the file's own, such as a week; or
places in the order of a user's events, which cannot be compared across users."""

Weights: TypeAlias = Mapping[str, float]
"""Weight of each kind of event."""


@dataclass(frozen=True, eq=False)
class EventLog:
    """The events behind the counts, sorted by user, then time.

    An entry stands for the events with the same user, item, time and kind.
    """

    user: NDArray[np.int32]
    """Row of each entry, (n_entries,)."""

    item: NDArray[np.int32]
    """Column of each entry, (n_entries,)."""

    count: NDArray[np.float64]
    """Number of events in each entry, above 0, (n_entries,)."""

    time: NDArray[np.float64] | None = None
    """Time of each entry, (n_entries,), in terms of `clock`; None if times are unknown."""

    clock: Clock | None = None
    """What the times are; None if they are unknown."""

    kind: NDArray[np.int16] | None = None
    """Place of each entry's kind among `kinds`, (n_entries,); None if kinds are unknown."""

    kinds: tuple[str, ...] = ()
    """The kinds of events, such as "view" and "purchase", in alphabetical order."""

    unit: str = ""
    """How the times were written, for people to read."""

    def __post_init__(self) -> None:
        n_entries = len(self.user)
        for name in ("item", "count", "time", "kind"):
            values = getattr(self, name)
            if values is not None and len(values) != n_entries:
                raise DataError(f"log has {n_entries} users but {len(values)} values of {name}")
        if (self.time is None) != (self.clock is None):
            raise DataError("a log with times needs a clock, one without times has none")
        if (self.kind is None) != (not self.kinds):
            raise DataError("a log with a kind for each entry needs the names of its kinds")
        is_later = self.user[1:] > self.user[:-1]
        if self.time is not None:
            is_later |= (self.user[1:] == self.user[:-1]) & (self.time[1:] >= self.time[:-1])
        else:
            is_later |= self.user[1:] == self.user[:-1]
        if not is_later.all():
            raise DataError("the entries of a log must be sorted by user, then time")

    @property
    def n_entries(self) -> int:
        """Number of entries."""
        return len(self.user)

    @property
    def n_events(self) -> float:
        """Number of events."""
        return float(self.count.sum())

    @property
    def is_gapless(self) -> bool:
        """Whether the times of every user are 0, 1, 2, ... or those of every user 1, 2, 3, ..."""
        if self.time is None or not self.n_entries:
            return False
        is_first = np.diff(self.user, prepend=-1) > 0
        starts, steps = self.time[is_first], np.diff(self.time, prepend=0.0)[~is_first]
        same_start = starts[0] in (0.0, 1.0) and (starts == starts[0]).all()
        return bool(same_start and np.isin(steps, (0.0, 1.0)).all())

    def subset(self, keep: NDArray[np.bool_]) -> EventLog:
        """The entries to keep, (n_entries,), with the same users, items and kinds."""
        return replace(
            self,
            user=self.user[keep],
            item=self.item[keep],
            count=self.count[keep],
            time=None if self.time is None else self.time[keep],
            kind=None if self.kind is None else self.kind[keep],
        )

    def select(self, users: NDArray[np.bool_], items: NDArray[np.bool_]) -> EventLog:
        """The entries of some users, (n_users,), and items, (n_items,), numbered anew."""
        kept = self.subset(users[self.user] & items[self.item])
        row, column = (np.cumsum(chosen, dtype=np.int32) - 1 for chosen in (users, items))
        return replace(kept, user=row[kept.user], item=column[kept.item])

    def of_kind(self, kind: str) -> EventLog:
        """The entries of one kind of event.

        Raises:
            ConfigError: If there is no such kind.
        """
        if kind not in self.kinds:
            raise ConfigError(_no_event(kind, "predict", self.kinds))
        return self.subset(np.asarray(self.kind == self.kinds.index(kind)))

    def counts(self, shape: tuple[int, int], weights: Weights | None = None) -> csr_array:
        """Sum of events per pair, each weighted by its kind, (n_users, n_items).

        Pairs whose sum is not above 0 are left out; `dislikes` has those below.

        Raises:
            ConfigError: If the weights do not name exactly the kinds of events there are.
        """
        return _positive(self._sums(shape, weights))

    def dislikes(self, shape: tuple[int, int], weights: Weights) -> csr_array:
        """Size of the negative weighted sums per pair, (n_users, n_items); see `counts`."""
        return _positive(-self._sums(shape, weights))

    def weighed(self, weights: Weights | None) -> NDArray[np.float64]:
        """The count of each entry times the weight of its kind, (n_entries,)."""
        if weights is None:
            return self.count
        return self.count * self.weight_of_kinds(weights)[self.kind]

    def _sums(self, shape: tuple[int, int], weights: Weights | None) -> csr_array:
        """Events of a kind are counted before they are weighed: their times change no digit."""
        if weights is None:
            return csr_array((self.count, (self.user, self.item)), shape)  # sums duplicates
        sums = csr_array(shape)
        for code, weight in enumerate(self.weight_of_kinds(weights)):
            of_kind = self.subset(np.asarray(self.kind == code))
            sums = sums + weight * of_kind._sums(shape, None)
        return sums

    def weight_of_kinds(self, weights: Weights) -> NDArray[np.float64]:
        """The weights in the order of `kinds`, (n_kinds,).

        Raises:
            ConfigError: If the weights do not name exactly the kinds of events there are, or are
                not finite.
        """
        if self.kind is None:
            raise ConfigError(
                "event weights need a column with the kind of each event; name it as event_col"
            )
        return np.array(list(weights_of_kinds(weights, self.kinds).values()))

    def describe(self) -> dict[str, Any]:
        """What is known about the events: clock, unit, first and last time, events per kind."""
        facts: dict[str, Any] = {"n_events": _as_whole(self.n_events)}
        if self.time is not None and self.clock is not None:
            facts |= {"clock": self.clock, "time_unit": self.unit}
            if self.n_entries:
                facts |= {
                    "first_time": shown_time(self.time.min(), self.clock),
                    "last_time": shown_time(self.time.max(), self.clock),
                }
        if self.kind is not None:
            events = np.bincount(self.kind, self.count, minlength=len(self.kinds))
            facts["events_per_kind"] = dict(
                zip(self.kinds, map(_as_whole, events.tolist()), strict=True)
            )
        return facts

    def lines(self) -> list[str]:
        """What is known about the events, a line for times and one for kinds."""
        facts, lines = self.describe(), []
        if "first_time" in facts:
            lines.append(f"times are {self.unit}: {facts['first_time']} to {facts['last_time']}")
        if self.kinds:
            kinds = (f"{kind} {n:,}" for kind, n in facts["events_per_kind"].items())
            lines.append(f"events: {', '.join(kinds)}")
        return lines


def weights_of_kinds(weights: Weights, kinds: Sequence[str]) -> dict[str, float]:
    """The weights in the order of the kinds of events.

    Raises:
        ConfigError: If they do not name exactly these kinds, or are not finite.
    """
    for name, weight in weights.items():
        if name not in kinds:
            raise ConfigError(_no_event(name, "weigh", kinds))
        if not isinstance(weight, int | float | np.number) or not np.isfinite(weight):
            raise ConfigError(f"weight of event {name!r} must be a finite number, got {weight!r}")
    for kind in kinds:
        if kind not in weights:
            raise ConfigError(
                f"event {kind!r} has no weight; name one for each of "
                f"{', '.join(map(repr, kinds))} (0 ignores events)"
            )
    return {kind: float(weights[kind]) for kind in kinds}


def shown_time(time: float, clock: Clock) -> str:
    """A time for people to read: a date and time (UTC) if it is seconds, else the number."""
    if clock != "seconds":
        return f"{time:g}"
    try:
        moment = datetime.fromtimestamp(time, UTC)
    except (ValueError, OverflowError, OSError):  # before the year 1 or after 9999
        return f"{time:g} seconds since 1970"
    has_time = time % 86_400 != 0
    return f"{moment:%Y-%m-%d %H:%M:%S}" if has_time else f"{moment:%Y-%m-%d}"


def _no_event(name: str, purpose: str, kinds: Sequence[str]) -> str:
    if not kinds:
        return (
            f"to {purpose} event {name!r} takes a column with the kind of each event; name it as "
            "event_col"
        )
    return f"there is no event {name!r} to {purpose}; the events are " + ", ".join(map(repr, kinds))


def _as_whole(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def _positive(sums: csr_array) -> csr_array:
    """The sums above 0, in the form of `CountMatrix`."""
    sums.data[sums.data < 0] = 0.0
    sums.eliminate_zeros()
    sums.sort_indices()
    return sums
