from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from cfnade.data.event_splits import split_by_time, split_last, split_random
from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError

N_USERS, N_ITEMS = 4, 5


def interactions_of(entries, clock="number") -> Interactions:
    """From (user, item, count, time), in any order."""
    entries = sorted(entries, key=lambda entry: (entry[0], entry[3]))
    user, item, count, time = (np.array(column) for column in zip(*entries, strict=True))
    log = EventLog(
        user.astype(np.int32), item.astype(np.int32), count.astype(float), time.astype(float), clock
    )
    return Interactions.from_log(log, np.arange(N_USERS), np.arange(N_ITEMS))


ENTRIES = st.lists(
    st.tuples(
        st.integers(0, N_USERS - 1),
        st.integers(0, N_ITEMS - 1),
        st.integers(1, 3),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=30,
)
SHARES = st.floats(0.01, 0.99)


def has_two_times(entries) -> bool:
    return len({entry[3] for entry in entries}) > 1


def some_user_has_two_times(entries) -> bool:
    return len({(entry[0], entry[3]) for entry in entries}) > len({entry[0] for entry in entries})


def check_parts_add_up(data, split, is_held) -> None:
    """The parts of a split against plain loops over the entries; `is_held` decides for each."""
    train, held = defaultdict(float), defaultdict(float)
    entries = list(
        zip(*(getattr(data.log, n) for n in ("user", "item", "count", "time")), strict=True)
    )
    for user, item, count, time in entries:
        (held if is_held(user, time) else train)[user, item] += count
    users, items = {pair[0] for pair in train}, {pair[1] for pair in train}
    known = {pair: n for pair, n in held.items() if pair[0] in users and pair[1] in items}
    assert dict(split.train.counts.todok().items()) == train
    assert dict(split.test.todok().items()) == known
    assert split.n_born_pairs == len(held) - len(known)
    assert split.n_born_users == len({user for user, _ in held} - users)
    assert split.n_born_items == len({item for _, item in held} - items)
    assert dict(split.new.todok().items()) == {p: n for p, n in known.items() if p not in train}
    assert dict(split.repeated.todok().items()) == {p: n for p, n in known.items() if p in train}
    assert (split.train.log.counts((N_USERS, N_ITEMS)) != split.train.counts).nnz == 0
    assert sum(train.values()) + sum(held.values()) == data.log.n_events


@given(entries=ENTRIES.filter(has_two_times), share=SHARES)
def test_a_split_by_time_adds_up_and_nothing_in_train_is_as_late_as_the_split(entries, share):
    data = interactions_of(entries)
    split = split_by_time(data, share=share)
    assert split.train.log.time.max() < split.at
    check_parts_add_up(data, split, lambda user, time: time >= split.at)
    # No other point in time comes closer to the share.
    total = data.log.n_events
    distance = {
        at: abs(
            sum(n for n, t in zip(data.log.count, data.log.time, strict=True) if t >= at)
            - share * total
        )
        for at in sorted(set(data.log.time))[1:]
    }
    assert distance[split.at] == min(distance.values())


@given(entries=ENTRIES.filter(has_two_times), at=st.integers(1, 9))
def test_a_split_at_a_point_in_time_holds_out_that_time_and_later(entries, at):
    data = interactions_of(entries)
    times = data.log.time
    if times.max() < at or times.min() >= at:
        with pytest.raises(DataError, match="choose a point between"):
            split_by_time(data, at=float(at))
    else:
        check_parts_add_up(data, split_by_time(data, at=float(at)), lambda user, time: time >= at)


@given(entries=ENTRIES.filter(some_user_has_two_times), share=st.none() | SHARES)
def test_the_last_times_of_each_user_are_held_out_together_and_an_earlier_one_stays(entries, share):
    data = interactions_of(entries, clock="order")
    by_user: defaultdict = defaultdict(lambda: defaultdict(float))
    for user, _, count, time in entries:
        by_user[user][time] += count
    held = set()
    for user, per_time in by_user.items():
        later, last_first = 0.0, sorted(per_time, reverse=True)
        for place, time in enumerate(last_first[:-1]):  # the first time of all stays
            within = share is not None and later + per_time[time] / 2 < share * sum(
                per_time.values()
            )
            if place == 0 or within:
                held.add((user, time))
            later += per_time[time]
    check_parts_add_up(data, split_last(data, share=share), lambda user, time: (user, time) in held)


@given(entries=ENTRIES, seed=st.integers(0, 5))
def test_random_pairs_are_held_out_with_all_their_events(entries, seed):
    data = interactions_of(entries)
    split, again = (split_random(data, share=0.4, min_items=2, rng=seed) for _ in range(2))
    assert (split.test != again.test).nnz == 0
    assert split.train.log.n_entries == again.train.log.n_entries
    together = split.train.counts + split.test
    assert (together != data.counts).nnz == 0
    assert split.repeated.nnz == split.n_born_pairs == 0
    assert (split.train.log.counts((N_USERS, N_ITEMS)) != split.train.counts).nnz == 0


def test_a_split_keeps_ids_names_and_kinds():
    data = interactions_of([(0, 0, 1, 1), (0, 1, 1, 2), (1, 1, 1, 1), (1, 0, 1, 2)])
    log = replace(data.log, kind=np.array([0, 1, 0, 1], dtype=np.int16), kinds=("buy", "view"))
    data = replace(data, log=log, item_names=np.array(list("abcde"), dtype=object))
    for split in (split_by_time(data, share=0.5), split_last(data)):
        assert split.train.item_names is data.item_names
        assert split.train.user_ids is data.user_ids
        assert split.train.log.kinds == ("buy", "view")
        assert split.train.log.kind.tolist() == [0, 0]


def test_what_cannot_be_split_is_refused():
    order = interactions_of([(0, 0, 1, 1), (0, 1, 1, 2)], clock="order")
    with pytest.raises(DataError, match="cannot be compared across users"):
        split_by_time(order, share=0.1)
    plain = Interactions.from_matrix(csr_array(np.ones((2, 2))))
    for split in (split_by_time, split_last):
        with pytest.raises(DataError, match="no times to split by"):
            split(plain, share=0.1)
        with pytest.raises(ConfigError, match="share must be above 0 and below 1"):
            split(interactions_of([(0, 0, 1, 1), (0, 1, 1, 2)]), share=1.0)
    once = interactions_of([(0, 0, 1, 1), (0, 1, 1, 1)])
    with pytest.raises(DataError, match="so none is later; use split 'random'"):
        split_by_time(once, share=0.1)
    with pytest.raises(DataError, match="every user has events at one time only"):
        split_last(once)
    with pytest.raises(ConfigError, match="either a share of the events or a point in time"):
        split_by_time(order_free := interactions_of([(0, 0, 1, 1), (0, 1, 1, 2)]))
    with pytest.raises(ConfigError, match="either a share"):
        split_by_time(order_free, share=0.1, at=2.0)
