from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfnade.compare.split_choice import (
    held_out_by,
    share_like_fixed,
    split_later,
    split_of_fixed,
    usual_split,
)
from cfnade.data.event_splits import split_by_time, split_last, split_random
from cfnade.data.interactions import Interactions
from tests.compare.logs import random_log


def apart(data: Interactions, is_test) -> tuple[Interactions, Interactions]:
    """Train and test files of one log."""
    return data.with_events(~is_test), data.with_events(is_test)


def without_times(data: Interactions) -> Interactions:
    return replace(data, log=None)


def is_last(data: Interactions, n_times: int = 1):
    """Events at the last times of each user."""
    log = data.log
    held = np.zeros(log.n_entries, dtype=bool)
    for user in range(data.n_users):
        times = np.unique(log.time[log.user == user])
        held |= (log.user == user) & (log.time >= times[-n_times])
    return held


def test_times_are_split_by_time_and_an_order_by_its_last_events():
    assert usual_split(random_log()) == "time"
    assert usual_split(random_log(clock="order")) == "last"
    assert usual_split(without_times(random_log())) == "random"


def test_later_events_are_split_off_as_by_the_functions_themselves():
    data = random_log()
    by_time, last = split_later(data, "time", 0.2), split_later(data, "last", 0.2)
    assert (by_time.test != split_by_time(data, share=0.2).test).nnz == 0
    assert (last.test != split_last(data, share=0.2).test).nnz == 0


def test_a_test_file_later_than_all_of_train_was_split_by_time():
    data = random_log()
    assert split_of_fixed(*apart(data, data.log.time >= 80), repeats=True) == "time"


@pytest.mark.parametrize("clock", ["number", "order"])
def test_a_test_file_with_later_events_of_each_user_holds_the_last(clock):
    data = random_log(clock=clock)
    train, test = apart(data, is_last(data))
    assert split_of_fixed(train, test, repeats=True) == "last"
    some = np.arange(data.n_users) >= 20  # users of the test file have other rows
    fewer = test.log.select(some, np.ones(data.n_items, dtype=bool))
    others = Interactions.from_log(fewer, data.user_ids[some], data.item_ids)
    assert split_of_fixed(train, others, repeats=True) == "last"


def test_a_test_file_of_random_events_was_split_at_random():
    for clock in ("number", "order"):
        data = random_log(clock=clock)
        is_test = np.random.default_rng(0).random(data.log.n_entries) < 0.2
        assert split_of_fixed(*apart(data, is_test), repeats=True) == "random"


def test_a_test_file_without_times_is_judged_by_repeats_and_gaps():
    data = random_log(clock="order")
    train, test = apart(data, is_last(data))
    assert split_of_fixed(train, without_times(test), repeats=False) == "last"  # no gap in train
    is_test = np.random.default_rng(0).random(data.log.n_entries) < 0.5
    train, test = apart(data, is_test)
    assert split_of_fixed(train, without_times(test), repeats=True) == "last"
    assert split_of_fixed(train, without_times(test), repeats=False) == "random"
    assert split_of_fixed(without_times(train), test, repeats=True) == "random"


def test_validation_is_as_large_as_the_test_or_one_basket_if_the_test_is_one():
    data = random_log(clock="order")
    train, basket = apart(data, is_last(data))
    assert share_like_fixed(train, basket, data.n_users, "last") is None
    train, baskets = apart(data, is_last(data, n_times=4))
    assert share_like_fixed(train, baskets, data.n_users, "last") == pytest.approx(0.4)
    data = random_log()
    train, period = apart(data, data.log.time >= 30)
    assert share_like_fixed(train, period, data.n_users, "time") == 0.5  # not more
    train, period = apart(data, data.log.time >= 80)
    share = period.counts.sum() / data.counts.sum()
    assert share_like_fixed(train, period, data.n_users, "time") == pytest.approx(share)


def test_repeated_pairs_show_how_a_test_part_without_times_was_held_out():
    data = random_log()
    split = split_random(data, share=0.2)
    assert held_out_by(split.train.counts, split.test, 0) == "pairs"
    later = split_by_time(data, share=0.3)
    n_overlap = later.repeated.nnz
    assert held_out_by(later.train.counts, later.test, n_overlap) == "events"
    once = later.test.copy()
    once.data[:] = 1.0
    assert held_out_by(later.train.counts, once, n_overlap) == "sessions"
