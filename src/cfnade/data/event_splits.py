"""Hold out the last events, by one point in time or for each user; or random pairs of a log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.checks import check_number
from cfnade.data.events import EventLog, shown_time
from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix
from cfnade.data.splitting import hold_out, overlap, sample_users, without_overlap
from cfnade.errors import ConfigError, DataError

SplitBy: TypeAlias = Literal["random", "time", "last"]
"""Events to hold out: of random pairs, all after one point in time, or the last of each user."""


@dataclass(frozen=True, eq=False)
class EventSplit:
    """A training part, and later or other events to test on, with the same rows and columns."""

    train: Interactions
    """The events that a model may see, with their log if there is one."""

    test: CountMatrix
    """Counts of the held-out events, (n_users, n_items), of users and items that occur in train; of
    the kind to predict, if the data name one."""

    n_born_users: int = 0
    """Users whose events are all held out; their pairs are left out of the test."""

    n_born_items: int = 0
    """Items whose events are all held out; their pairs are left out of the test."""

    n_born_pairs: int = 0
    """Held-out pairs that are left out because of their user, their item or both."""

    at: float | None = None
    """The point in time: events at this time or later are held out; None without one."""

    @cached_property
    def new(self) -> CountMatrix:
        """The test counts of pairs that are not in train, (n_users, n_items).

        With a kind to predict: of pairs without such an event in train.
        """
        return without_overlap(self.train.unranked, self.test)

    @cached_property
    def repeated(self) -> CountMatrix:
        """The test counts of all other pairs, (n_users, n_items)."""
        return overlap(self.train.unranked, self.test)


def split_by_time(
    data: Interactions, *, share: float | None = None, at: float | None = None
) -> EventSplit:
    """Hold out all events from one point in time on, so that no model sees the future.

    Args:
        data: With a log whose times can be compared across users.
        share: Of all events, the last; the point in time that comes closest is taken, as events of
            the same time stay together.
        at: The point in time itself, in terms of the log's clock, instead of a share.

    Raises:
        ConfigError: If neither or both of share and at are given, or the share is not in (0, 1).
        DataError: If there are no times to compare, or nothing is earlier or later.
    """
    log, times = _timed(data)
    if log.clock == "order":
        raise DataError(
            "the log has an order of each user's events, which cannot be compared across users; "
            "split by the last events of each user instead, or name a column of times as time_col"
        )
    if (share is None) == (at is None):
        raise ConfigError("a split by time needs either a share of the events or a point in time")
    if share is not None:
        _check_open_share(share)
        at = _time_of_last(share, times, log.count)
    assert at is not None
    is_later = times >= at
    if is_later.all() or not is_later.any():
        where = "earlier than" if is_later.any() else "later than"
        facts, shown = log.describe(), shown_time(at, log.clock or "number")
        raise DataError(
            f"no event is {where} the split at {shown}; choose a point between "
            f"{facts['first_time']} and {facts['last_time']}"
        )
    return _split(data, log, is_later, at)


def split_last(data: Interactions, *, share: float | None = None) -> EventSplit:
    """Hold out the last events of each user.

    Events of a user at the same time, such as a basket, stay together, and at least one earlier
    time stays in train: users with a single time keep all their events.

    Args:
        data: With a log that has times of any clock.
        share: Of each user's events; the number of times that comes closest is taken, at least
            one. None takes exactly the last time of each user.

    Raises:
        ConfigError: If the share is not in (0, 1).
        DataError: If there are no times, or every user has a single one.
    """
    log, times = _timed(data)
    if share is not None:
        _check_open_share(share)
    is_first = _first_of_each(log.user, times)  # of the entries of a user at one time
    group_of = np.cumsum(is_first) - 1  # (n_entries,)
    user_of = log.user[is_first]  # of each group, (n_groups,)
    is_last = np.append(user_of[1:] != user_of[:-1], True)
    is_only = is_last & np.append(True, user_of[1:] != user_of[:-1])
    is_held = is_last & ~is_only
    if not is_held.any():
        raise DataError("every user has events at one time only, so there are no last ones")
    if share is not None:
        sizes: NDArray[np.float64] = np.bincount(group_of, log.count).astype(np.float64)
        is_held |= _closest(share, user_of, sizes)
        is_held &= np.append(False, user_of[1:] == user_of[:-1])  # the first of each user stays
    return _split(data, log, is_held[group_of])


def split_random(data: Interactions, **options: Any) -> EventSplit:
    """Hold out random pairs with all their events; the options are those of `hold_out`.

    With a kind to predict, only its events are held out; those of other kinds stay.
    """
    if data.target_event is None:
        _, held_out = hold_out(data.counts, **options)
    else:
        held_out = _random_targets(data, **options)
    return EventSplit(data.without_targets(held_out), held_out)


def _random_targets(
    data: Interactions,
    *,
    share: float = 0.1,
    n_users: int | None = None,
    among: NDArray[np.bool_] | None = None,
    rng: int | np.random.Generator = 0,
    **unused: Any,
) -> CountMatrix:
    """A share of all pairs with a target event, whose user and item have other events.

    Many users have a single target event, so pairs are drawn from all, not a share of each user's.
    """
    rng = np.random.default_rng(rng)
    targets = data.target_counts.tocoo()
    n_drawn = max(1, round(share * targets.nnz))
    targets.data[rng.permutation(targets.nnz)[n_drawn:]] = 0.0
    drawn = as_count_matrix(targets)
    left = data.without_targets(drawn).counts
    has_user = np.diff(left.indptr) > 0
    has_item = np.bincount(left.indices, minlength=data.n_items) > 0
    kept = as_count_matrix(drawn.multiply(has_user[:, None]).multiply(has_item[None, :]))
    return sample_users(kept, data.n_users if n_users is None else n_users, rng, among=among)


def _split(
    data: Interactions, log: EventLog, is_held: NDArray[np.bool_], at: float | None = None
) -> EventSplit:
    """Split by entries; users and items that only occur in the held-out part are left out of it."""
    train = data.with_events(~is_held)
    later = log.subset(is_held)
    if data.target_event is None:
        held_out = later.counts(data.counts.shape, data.event_weights).tocoo()
    else:
        held_out = later.of_kind(data.target_event).counts(data.counts.shape).tocoo()
    has_user = np.diff(train.counts.indptr) > 0
    has_item = np.bincount(train.counts.indices, minlength=data.n_items) > 0
    is_known = has_user[held_out.row] & has_item[held_out.col]
    n_pairs = held_out.nnz
    held_out.data[~is_known] = 0.0
    return EventSplit(
        train,
        as_count_matrix(held_out),
        n_born_users=np.unique(held_out.row[~has_user[held_out.row]]).size,
        n_born_items=np.unique(held_out.col[~has_item[held_out.col]]).size,
        n_born_pairs=n_pairs - int(is_known.sum()),
        at=at,
    )


def _time_of_last(share: float, times: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """The time from which on about this share of the events are, never the first of all."""
    distinct, place = np.unique(times, return_inverse=True)
    if distinct.size < 2:
        raise DataError("all events are at the same time, so none is later; use split 'random'")
    per_time = np.bincount(place, counts)
    from_there = np.cumsum(per_time[::-1])[::-1][1:]  # events at each time or later
    return float(distinct[1:][np.abs(from_there - share * per_time.sum()).argmin()])


def _closest(
    share: float, user_of: NDArray[np.int32], counts: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which groups, sorted by user and time, make up about this share of their user, (n_groups,).

    A group is held out if more than half of it is within the share at the end.
    """
    total = np.bincount(user_of, counts)
    up_to = np.cumsum(counts)
    end = np.cumsum(total)[user_of]  # of all groups up to the user's last
    return (end - up_to) + counts / 2 < share * total[user_of]


def _first_of_each(user: NDArray[np.int32], times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which entries are the first of their user and time, (n_entries,)."""
    differs = (user[1:] != user[:-1]) | (times[1:] != times[:-1])
    return np.append(np.ones(min(len(user), 1), dtype=np.bool_), differs)


def _timed(data: Interactions) -> tuple[EventLog, NDArray[np.float64]]:
    if data.log is None or data.log.time is None:
        raise DataError("the data have no times to split by; name a column of times as time_col")
    return data.log, data.log.time


def _check_open_share(share: float) -> None:
    if not 0 < check_number("share", share) < 1:
        raise ConfigError(f"share must be above 0 and below 1, got {share}")
