"""How the test part of a comparison is, or was, split off: at random, by time, or the last events.

Validation is made the same way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfnade.data.event_splits import EventSplit, SplitBy, split_by_time, split_last
from cfnade.data.events import EventLog
from cfnade.data.interactions import CountMatrix, Interactions, places_among
from cfnade.data.splitting import HoldOutBy

A_FEW = 0.01  # share of users or pairs that may be exceptions when a fixed test part is classified

SPLIT_NOTES = {
    "events": "the test part repeats pairs of train, so validation is split by events too; use "
    "--validation-by pairs if your counts are not events",
    "sessions": "the test part looks like the last session of each user, so validation is split by "
    "sessions too; use --validation-by events if it is a longer period, or pairs if your counts "
    "are not events",
}

OWN_NOTES = {
    "time": "the data have times: the last {share:.0%} of the events, from {time} on, are the test "
    "part, and validation is made the same way; --split random or last chooses otherwise",
    "last": "the data have an order: the last {share:.0%} of each user's events are the test part, "
    "and validation is made the same way; --split random chooses otherwise",
}

FIXED_NOTES = {
    "time": "the test part is later than all of train, so validation is the last {share:.0%} of "
    "the training events; --split random or last chooses otherwise",
    "last": "the test part looks like the last events of each user, so validation is the last ones "
    "in train, {share:.0%} of the events; --split random or time chooses otherwise",
}

_MOST_IN_ONE = 1.5  # times the events at a user's last time: a test part of more holds several


def usual_split(data: Interactions) -> SplitBy:
    """By one point in time if there are times to compare, by order if there is one, or random."""
    clock = None if data.log is None else data.log.clock
    return "random" if clock is None else "last" if clock == "order" else "time"


def split_later(data: Interactions, by: SplitBy, share: float | None) -> EventSplit:
    """Hold out a share of the events, by time or the last of each user (None: at the last time)."""
    return split_by_time(data, share=share) if by == "time" else split_last(data, share=share)


def split_of_fixed(train: Interactions, test: Interactions, *, repeats: bool) -> SplitBy:
    """How a fixed test part was split from train, judging by times.

    If the test part has none, its events count as the last of each user if pairs of train are
    repeated in it, or if no place is missing in the order of any user in train.
    """
    known, later = train.log, test.log
    if known is None or known.time is None or known.clock is None:
        return "random"
    if later is None or later.time is None or later.clock != known.clock:
        return "last" if repeats or known.is_gapless else "random"
    if known.clock != "order" and later.time.min() >= known.time.max():
        return "time"
    row_of = places_among(test.user_ids, train.user_ids, train.user_index)[later.user]
    is_known = row_of >= 0
    first = np.full(train.n_users, np.inf)
    np.minimum.at(first, row_of[is_known], later.time[is_known])
    last = _last_times(known, train.n_users)
    is_tested = np.isfinite(first) & np.isfinite(last)
    is_earlier = first[is_tested] < last[is_tested]
    return "last" if is_earlier.size and is_earlier.mean() <= A_FEW else "random"


def share_like_fixed(
    train: Interactions, test: Interactions, n_tested: int, by: SplitBy
) -> float | None:
    """The share of the training events to validate on, so that validation is like the test.

    As large as the share of the test events in all, at most a half. None stands for the last
    time of each user, if the test part has no more events than that for each of `n_tested` users.
    """
    n_train, n_test = float(train.counts.sum()), float(test.counts.sum())
    if by == "last" and (log := train.log) is not None:
        last = _last_times(log, train.n_users)
        n_at_last = log.count[log.time == last[log.user]].sum() / np.isfinite(last).sum()
        if n_test / max(n_tested, 1) <= _MOST_IN_ONE * n_at_last:
            return None
    return min(n_test / (n_train + n_test), 0.5)


def _last_times(log: EventLog, n_users: int) -> NDArray[np.float64]:
    """The last time of each user, (n_users,); -inf for one without events."""
    last = np.full(n_users, -np.inf)
    last[log.user] = log.time  # sorted by time: the last one stays
    return last


def held_out_by(train: CountMatrix, test: CountMatrix, n_overlap: int) -> HoldOutBy:
    """How a fixed test part was split from train, judging by repeated pairs."""
    if n_overlap <= A_FEW * test.nnz:
        return "pairs"
    repeated = [float((part.data > 1).mean()) for part in (train, test)]
    has_single_events = repeated[0] < 1.0 - A_FEW
    return "sessions" if has_single_events and repeated[0] > A_FEW >= repeated[1] else "events"
