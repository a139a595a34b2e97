"""Recency: recent events of a user weigh more, and items that are popular now score higher.

Not in the paper. Both are found on validation after training, as part of the readout: the network
is trained on plain counts, so another half-life costs one look (docs/decisions/0033).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.events import Clock, EventLog, Weights
from cfnade.data.interactions import CountMatrix, as_count_matrix

SPAN_SHARES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Half-lives to try, as shares of the time between the first and the last event."""

STEPS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
"""Half-lives to try if times are an order, in steps such as baskets."""

OLD_SHARE = 0.1
"""What an event counts when it is old: how often something was done still says whether it will be
done again (docs/decisions/0034)."""

PER_DOUBLING = 4
"""Values that a recent count may have between a number and its double."""

LEAST = 2.0**-20
"""The smallest recent count, for events with tiny weights."""

TOLERANCE = 1e-9
"""Of the logarithm, in these values, so that a number on the scale stays."""

MOST_HALF_LIVES = 1000.0
"""An age counts as at most this many half-lives."""

_PRIOR = 1.0  # recent watchers, as many as usual, that every item has in addition


def half_lives(log: EventLog) -> Sequence[float]:
    """Half-lives to try on this log, longest first, in the unit of its clock."""
    assert log.time is not None
    assert log.clock is not None
    return half_lives_of(log.clock, float(np.ptp(log.time)) if log.n_entries else 0.0)


def half_lives_of(clock: Clock, span: float) -> Sequence[float]:
    """The same by the time from the first to the last event."""
    if clock == "order":
        return STEPS
    return tuple(share * max(span, 1e-9) for share in SPAN_SHARES)


def recent_counts(
    log: EventLog, shape: tuple[int, int], half_life: float, weights: Weights | None = None
) -> CountMatrix:
    """Counts in which recent events weigh more, see `decayed`, (n_users, n_items).

    Ages are those at the user's latest event, so a pause makes no difference. Sums are rounded to
    a few distinct values: the saved distributions stay small. A half-life of 0 weighs old events as
    much as recent ones. Kinds of events have their weights; sums below 0 are left out.
    """
    if half_life == 0:
        return log.counts(shape, weights)
    recent = decayed(log.weighed(weights), ages_of_users(log), half_life)
    sums = csr_array((recent, (log.user, log.item)), shape)  # adds up the entries of a pair
    sums.data = np.where(sums.data > 0, rounded(sums.data), 0.0)
    return as_count_matrix(sums)


def decayed(
    counts: NDArray[np.floating], ages: NDArray[np.floating], half_life: float
) -> NDArray[np.float64]:
    """Counts at these ages, (n_entries,) each.

    A tenth of a count stays, and the rest is worth half as much after each half-life.
    """
    kept = OLD_SHARE + (1.0 - OLD_SHARE) * share_left(ages, half_life)
    return np.asarray(counts * kept, dtype=np.float64)


def share_left(ages: NDArray[np.floating], half_life: float) -> NDArray[np.float64]:
    """What is left at these ages of something that halves in each half-life."""
    return np.asarray(np.exp2(-np.minimum(ages / half_life, MOST_HALF_LIVES)), dtype=np.float64)


def rounded(counts: NDArray[np.floating]) -> NDArray[np.float64]:
    """Counts on a scale of few values, four between a number and its double, and above 0.

    They are rounded down: among rounded counts, a count has the same rank as itself rounded.
    """
    return on_scale(np.floor(PER_DOUBLING * np.log2(np.maximum(counts, LEAST)) + TOLERANCE))


def on_scale(steps: NDArray[Any]) -> NDArray[np.float64]:
    """The recent counts at these places of their scale, whole numbers; 1 is at 0."""
    return np.asarray(np.exp2(steps / PER_DOUBLING), dtype=np.float64)


def ages_of_users(log: EventLog) -> NDArray[np.float64]:
    """Time from each entry to the latest one of its user, (n_entries,)."""
    assert log.time is not None
    if not log.n_entries:
        return np.empty(0)
    ends = np.flatnonzero(np.diff(log.user, append=-1))  # sorted by user, then time
    latest = np.repeat(log.time[ends], np.diff(ends, prepend=-1))
    return latest - log.time


def log_watchers(log: EventLog, n_items: int, half_life: float = 0.0) -> NDArray[np.float32]:
    """Logarithm of each item's recent watchers, on the scale of all its watchers, (n_items,).

    A watcher counts as their latest event with the item does, from 1 at the end of the log down by
    half for each half-life; 0 counts all alike. If times are an order, the end is the user's own.
    Of n watchers, e would be recent if all items were alike, and r are: the item's watchers count
    as `n (r + 1) / (e + 1)`. So an item with few watchers needs more than one of them to rise.
    """
    assert log.time is not None
    ages = ages_of_users(log) if log.clock == "order" else log.time.max(initial=0.0) - log.time
    weight = np.ones(log.n_entries) if half_life == 0 else share_left(ages, half_life)
    pair = log.user.astype(np.int64) * n_items + log.item
    order = np.lexsort((weight, pair))  # the latest of each pair last
    last = order[np.flatnonzero(np.diff(pair[order], append=-1))]
    watchers = np.bincount(log.item[last], minlength=n_items)
    recent = np.bincount(log.item[last], weight[last], minlength=n_items)
    return log_of_watchers(watchers, recent)


def log_of_watchers(watchers: NDArray[np.integer], recent: NDArray[Any]) -> NDArray[np.float32]:
    """The same from each item's watchers and how many of them are recent, (n_items,) each."""
    usual = watchers * (float(recent.sum()) / max(int(watchers.sum()), 1))
    rise = (recent + _PRIOR) / (usual + _PRIOR)
    return np.asarray(np.log1p(watchers * rise), dtype=np.float32)


def trend(
    now: NDArray[np.float32],
    ever: NDArray[np.float32],
    trend_gain: float,
    popularity_gain: float,
) -> NDArray[np.float32]:
    """What recency adds to the scores of all users, (n_items,).

    Args:
        now: Logarithm of recent watchers, (n_items,).
        ever: Logarithm of all watchers, (n_items,).
        trend_gain: Strength of the rise from all to recent watchers.
        popularity_gain: Strength of the recent watchers themselves.
    """
    return np.asarray(trend_gain * (now - ever) + popularity_gain * now, dtype=np.float32)
