from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.data.events import EventLog, shown_time
from cfnade.errors import ConfigError, DataError

KINDS = ("buy", "skip", "view")


def log_of(entries) -> EventLog:
    """A log of (user, item, count, time, kind) in any order."""
    user, item, count, time, kind = (
        np.array([entry[place] for entry in sorted(entries, key=lambda e: (e[0], e[3]))])
        for place in range(5)
    )
    return EventLog(
        user.astype(np.int32), item.astype(np.int32), count.astype(float), time.astype(float),
        "number", kind.astype(np.int16), KINDS,
    )  # fmt: skip


ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 4),
        st.integers(1, 3),
        st.integers(0, 9),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=30,
)


@given(entries=ENTRIES, weights=st.tuples(*[st.integers(-2, 3)] * 3))
def test_weighted_counts_and_dislikes_agree_with_a_plain_loop(entries, weights):
    sums: defaultdict = defaultdict(float)
    for user, item, count, _, kind in entries:
        sums[user, item] += count * weights[kind]
    log, by_name = log_of(entries), dict(zip(KINDS, map(float, weights), strict=True))
    found = log.counts((4, 5), by_name).todok()
    assert {k: v for k, v in sums.items() if v > 0} == dict(found.items())
    found = log.dislikes((4, 5), by_name).todok()
    assert {k: -v for k, v in sums.items() if v < 0} == dict(found.items())


def test_events_of_a_kind_count_the_same_on_one_day_or_on_several():
    weights = {"buy": 1.0, "skip": 0.0, "view": 0.1}
    assert 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 != 0.1 * 6
    several = log_of([(0, 0, 1, day, KINDS.index("view")) for day in range(6)])
    once = log_of([(0, 0, 6, 0, KINDS.index("view"))])
    for log in (several, once):
        assert log.counts((1, 1), weights).data.tolist() == [0.1 * 6]


@given(entries=ENTRIES)
def test_without_weights_every_event_counts_once(entries):
    counts = log_of(entries).counts((4, 5))
    assert counts.has_canonical_format
    assert counts.sum() == sum(count for _, _, count, _, _ in entries)


@given(
    entries=ENTRIES, users=st.tuples(*[st.booleans()] * 4), items=st.tuples(*[st.booleans()] * 5)
)
def test_selected_users_and_items_are_numbered_anew(entries, users, items):
    log = log_of(entries)
    users, items = np.array(users), np.array(items)
    expected = log.counts((4, 5))[users][:, items].toarray()
    found = log.select(users, items).counts((users.sum(), items.sum()))
    assert found.toarray().tolist() == expected.tolist()


def test_a_subset_keeps_times_and_kinds_of_its_entries():
    log = log_of([(0, 1, 1, 5, 0), (0, 2, 2, 3, 1), (1, 0, 1, 4, 2)])
    part = log.subset(log.time > 3)
    assert part.time.tolist() == [5, 4]
    assert part.kind.tolist() == [0, 2]
    assert (part.kinds, part.clock, part.n_entries, part.n_events) == (KINDS, "number", 2, 2.0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"buy": 1, "view": 1, "skip": 1, "like": 1}, "no event 'like' to weigh; the events are"),
        ({"buy": 1, "view": 1}, "event 'skip' has no weight"),
        ({"buy": 1, "view": 1, "skip": float("nan")}, "'skip' must be a finite number"),
    ],
)
def test_weights_name_exactly_the_kinds_there_are(weights, message):
    with pytest.raises(ConfigError, match=message):
        log_of([(0, 0, 1, 0, 0)]).counts((1, 1), weights)


def test_weights_need_kinds():
    log = replace(log_of([(0, 0, 1, 0, 0)]), kind=None, kinds=())
    with pytest.raises(ConfigError, match="event_col"):
        log.counts((1, 1), {"buy": 1.0})


@pytest.mark.parametrize(
    "change",
    [
        {"user": np.array([1, 0], dtype=np.int32)},
        {"time": np.array([2.0, 1.0])},
        {"time": np.array([2.0])},
        {"time": None},
        {"clock": None},
        {"kinds": ()},
        {"kind": None},
    ],
)
def test_a_log_that_does_not_fit_together_is_refused(change):
    log = log_of([(0, 0, 1, 1, 0), (0, 1, 1, 2, 0)])
    with pytest.raises(DataError):
        replace(log, **change)


def test_a_log_describes_its_times_and_kinds():
    log = replace(log_of([(0, 0, 1, 86_400, 0), (0, 1, 2, 86_401, 2)]), clock="seconds", unit="s")
    assert log.describe() == {
        "n_events": 3,
        "clock": "seconds",
        "time_unit": "s",
        "first_time": "1970-01-02",
        "last_time": "1970-01-02 00:00:01",
        "events_per_kind": {"buy": 1, "skip": 0, "view": 2},
    }
    assert log.lines() == [
        "times are s: 1970-01-02 to 1970-01-02 00:00:01",
        "events: buy 1, skip 0, view 2",
    ]


def test_times_are_shown_as_dates_or_numbers():
    assert shown_time(1_700_000_000.5, "seconds") == "2023-11-14 22:13:20"
    assert shown_time(17.0, "order") == "17"
    assert shown_time(1e18, "seconds") == "1e+18 seconds since 1970"
