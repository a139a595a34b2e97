"""Recency against plain loops over the events."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

from cfnade.beyond.recency import (
    SPAN_SHARES,
    STEPS,
    ages_of_users,
    decayed,
    half_lives,
    log_watchers,
    recent_counts,
    rounded,
    share_left,
    trend,
)
from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions
from tests.compare.logs import log_of, random_log

CLOCKS = ("seconds", "number", "order")


def slowly_rounded(count: float) -> float:
    """The largest of 2**-20, ..., 1, 2**.25, 2**.5, 2**.75, 2, ... that is not above it."""
    scale = [2.0 ** (step / 4) for step in range(-80, 80)]
    return max((value for value in scale if value <= count * (1 + 1e-9)), default=scale[0])


def slow_recent_counts(data: Interactions, half_life: float) -> np.ndarray:
    log = data.log
    latest: dict[int, float] = defaultdict(lambda: -math.inf)
    for user, time in zip(log.user, log.time, strict=True):
        latest[user] = max(latest[user], time)
    sums = np.zeros(data.counts.shape)
    for user, item, count, time in zip(log.user, log.item, log.count, log.time, strict=True):
        left = 0.5 ** ((latest[user] - time) / half_life)
        sums[user, item] += count * (0.1 + 0.9 * left)  # a tenth stays
    for place in np.argwhere(sums > 0):
        sums[tuple(place)] = slowly_rounded(sums[tuple(place)])
    return sums


def slow_log_watchers(data: Interactions, half_life: float) -> np.ndarray:
    log = data.log
    ends = {user: max(log.time[log.user == user]) for user in set(log.user.tolist())}
    if log.clock != "order":
        ends = dict.fromkeys(ends, max(log.time))
    weight: dict[tuple[int, int], float] = {}
    for user, item, time in zip(log.user.tolist(), log.item.tolist(), log.time, strict=True):
        own = 1.0 if half_life == 0 else 0.5 ** ((ends[user] - time) / half_life)
        weight[user, item] = max(weight.get((user, item), 0.0), own)
    share = sum(weight.values()) / len(weight)  # of all watchers that are recent
    found = np.zeros(data.n_items)
    for item in range(data.n_items):
        own = [each for (_, other), each in weight.items() if other == item]
        found[item] = len(own) * (sum(own) + 1.0) / (share * len(own) + 1.0)
    return np.log1p(found)


def test_one_recent_watcher_lifts_a_rare_item_less_than_many_lift_a_common_one():
    users = np.arange(404)
    items = np.array([0] * 200 + [1] * 200 + [2, 2, 3, 3])
    time = np.array([0.0] * 200 + [100.0] * 200 + [0.0, 100.0, 0.0, 0.0])
    log = log_of(users, items, time, 404, 4, "number").log
    rise = log_watchers(log, 4, 1.0) - log_watchers(log, 4)
    assert rise[1] > 0.65 > 0.35 > rise[2] > rise[3] > rise[0]  # log 2 for twice as many as usual
    assert rise[0] < -4


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("half_life", [0.5, 3.0, 40.0])
def test_recent_counts_are_sums_of_events_that_lose_weight(clock, half_life):
    data = random_log(n_users=15, clock=clock)
    found = recent_counts(data.log, data.counts.shape, half_life)
    np.testing.assert_allclose(found.toarray(), slow_recent_counts(data, half_life))
    assert (found.toarray() > 0).tolist() == (data.counts.toarray() > 0).tolist()


def test_events_with_several_counts_weigh_as_often():
    one, three = (
        EventLog(np.zeros(2, np.int32), np.arange(2, dtype=np.int32), np.array([n, 1.0]),
                 np.array([0.0, 4.0]), "number")
        for n in (1.0, 4.0)
    )  # fmt: skip
    first, second = (recent_counts(log, (1, 2), 2.0).toarray() for log in (one, three))
    assert first.tolist() == [[2.0**-1.75, 1.0]]  # 0.1 + 0.9 / 4, on the scale
    assert second.tolist() == [[2.0**0.25, 1.0]]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_half_life_of_0_weighs_all_events_the_same(clock):
    data = random_log(clock=clock)
    found = recent_counts(data.log, data.counts.shape, 0.0)
    np.testing.assert_array_equal(found.toarray(), data.counts.toarray())
    watchers = np.log1p(np.count_nonzero(data.counts.toarray(), axis=0))
    np.testing.assert_allclose(log_watchers(data.log, data.n_items), watchers, rtol=1e-6)


def test_a_pause_after_the_last_event_makes_no_difference():
    """Of the histories: ages are those at the user's own latest event."""
    data = random_log(n_users=10)
    later = log_of(data.log.user, data.log.item, data.log.time + 1e4 * data.log.user, 10, 20,
                   "number")  # fmt: skip
    pairs = [recent_counts(each.log, (10, 20), 7.0).toarray() for each in (data, later)]
    slow = [slow_recent_counts(each, 7.0) for each in (data, later)]
    np.testing.assert_allclose(pairs, slow)
    ages = ages_of_users(later.log)
    assert ages.min() == 0.0 and ages.max() < 100.0


def test_very_old_events_are_still_events():
    log = log_of([0, 0], [0, 1], [0.0, 1e9], 1, 2, "seconds").log
    found = recent_counts(log, (1, 2), 1e-3)
    assert found.toarray().tolist() == [[slowly_rounded(0.1), 1.0]]
    assert np.isfinite(log_watchers(log, 2, 1e-3)).all()


def test_recent_counts_have_few_distinct_values():
    counts = np.random.default_rng(0).random(10_000) * 100 + 1e-3
    scale = rounded(counts)
    assert len(np.unique(scale)) <= 4 * math.ceil(math.log2(1e5)) + 1
    np.testing.assert_allclose(scale, [slowly_rounded(count) for count in counts])
    np.testing.assert_array_equal(rounded(scale), scale)  # once is enough
    assert (scale <= counts * (1 + 1e-9)).all() and (counts / scale).max() < 2**0.25 + 1e-6
    assert (np.diff(rounded(np.sort(counts))) >= 0).all()


def test_a_plain_count_has_the_rank_of_itself_rounded():
    """So a history without times is read as one whose events are all of now."""
    whole, scale = np.arange(1.0, 200.0), np.unique(rounded(np.arange(1.0, 200.0)))
    ranks = [np.searchsorted(scale, counts, side="right") for counts in (whole, rounded(whole))]
    np.testing.assert_array_equal(*ranks)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("half_life", [0.0, 1.0, 25.0])
def test_watchers_count_as_their_latest_event_with_the_item_does(clock, half_life):
    data = random_log(n_users=12, clock=clock)
    found = log_watchers(data.log, data.n_items, half_life)
    np.testing.assert_allclose(found, slow_log_watchers(data, half_life), rtol=1e-5)


def test_an_item_without_watchers_has_none_and_an_empty_log_too():
    data = log_of([0, 1], [0, 0], [1.0, 2.0], 2, 3, "number")
    assert log_watchers(data.log, 3, 1.0).tolist()[1:] == [0.0, 0.0]
    nothing = data.log.subset(np.zeros(2, bool))
    assert log_watchers(nothing, 3, 1.0).tolist() == [0.0, 0.0, 0.0]
    assert recent_counts(nothing, (2, 3), 1.0).nnz == 0
    assert min(half_lives(nothing)) > 0


def test_the_trend_is_the_rise_and_the_level_of_recent_popularity():
    now, ever = np.log1p([8.0, 1.0]), np.log1p([4.0, 4.0])
    found = trend(now.astype(np.float32), ever.astype(np.float32), 2.0, 0.5)
    expected = 2.0 * np.log([9 / 5, 2 / 5]) + 0.5 * np.log([9.0, 2.0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert trend(now, ever, 0.0, 0.0).tolist() == [0.0, 0.0]


def test_half_lives_follow_the_clock():
    assert half_lives(random_log(clock="order").log) == STEPS
    log = random_log().log
    span = log.time.max() - log.time.min()
    assert list(half_lives(log)) == pytest.approx([share * span for share in SPAN_SHARES])
    assert list(half_lives(log)) == sorted(half_lives(log), reverse=True)


def test_a_count_halves_in_each_half_life_but_for_a_tenth_that_stays():
    ages = np.array([0.0, 5.0, 15.0, 1e9])
    assert share_left(ages, 5.0).tolist() == pytest.approx([1.0, 0.5, 0.125, 0.0])
    found = decayed(np.full(4, 80.0), ages, 5.0)
    assert found.tolist() == pytest.approx([80.0, 8.0 + 36.0, 8.0 + 9.0, 8.0])
