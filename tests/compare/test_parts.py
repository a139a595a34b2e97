from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.compare.parts import ProtocolConfig, Splitter, own_split
from cfnade.data.event_splits import split_by_time, split_last
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError
from tests.compare.logs import log_of, random_log
from tests.planted import window_shopping


def parts_of(data, test=None, **config):
    splitter = Splitter(ProtocolConfig(**config))
    parts = splitter.own(data) if test is None else splitter.fixed(data, test)
    return parts, splitter.facts


def differ(left, right) -> bool:
    return (left != right).nnz > 0


def of_tested_users(counts, parts) -> csr_array:
    is_tested = np.diff(parts.test.indptr) > 0
    return csr_array(counts.toarray() * is_tested[:, None])


def test_with_times_the_last_events_of_all_are_the_test_and_those_before_are_validation(caplog):
    data = random_log()
    parts, facts = parts_of(data, test_share=0.2, validation_share=0.25)
    held_out = split_by_time(data, share=0.2)
    again = split_by_time(held_out.train, share=0.25)
    assert not differ(parts.test, held_out.new)
    assert not differ(parts.known.counts, held_out.train.counts)
    assert not differ(parts.train.counts, again.train.counts)
    assert not differ(parts.validation, again.new)
    assert parts.train.log.time.max() < again.at <= parts.known.log.time.max() < held_out.at
    assert (facts["split"], facts["validation_by"]) == ("time", "time")
    assert facts["split_time"] == f"{held_out.at:g}"
    assert facts["n_overlap_pairs"] == held_out.repeated.nnz
    (line,) = [text for text in caplog.messages if "test part" in text]
    assert f"the last 20% of the events, from {held_out.at:g} on, are the test part" in line


def test_with_an_order_the_last_events_of_each_user_are_the_test(caplog):
    data = random_log(clock="order")
    parts, facts = parts_of(data)
    held_out = split_last(data, share=0.1)
    assert not differ(parts.test, held_out.new)
    assert not differ(parts.validation, split_last(held_out.train, share=0.1).new)
    assert (facts["split"], facts["split_time"]) == ("last", None)
    assert "the last 10% of each user's events are the test part" in caplog.text


def test_a_split_that_was_asked_for_needs_no_note(caplog):
    data = random_log()
    assert parts_of(data, split="last")[1]["split"] == "last"
    parts, facts = parts_of(data, split="random")
    assert facts["split"] == "random"
    assert parts.test.multiply(parts.known.counts).nnz == 0
    assert not differ(parts.known.log.counts(data.counts.shape), parts.known.counts)
    assert not differ(parts.train.log.counts(data.counts.shape), parts.train.counts)
    assert "test part" not in caplog.text


def test_the_log_makes_no_difference_to_a_random_split():
    data = random_log()
    with_log, _ = parts_of(data, split="random")
    without, facts = parts_of(replace(data, log=None))
    assert facts["split"] == "random"
    for part in ("validation", "test"):
        assert not differ(getattr(with_log, part), getattr(without, part))
    assert not differ(with_log.train.counts, without.train.counts)


def test_holding_validation_out_by_events_is_a_matter_of_random_splits():
    data = random_log()
    assert own_split(data, ProtocolConfig(validation_by="events")) == "random"
    with pytest.raises(ConfigError, match=r"split like the test, by time; leave out validation_by"):
        ProtocolConfig(split="time", validation_by="pairs")
    with pytest.raises(ConfigError, match="split"):
        ProtocolConfig(split="newest")


def test_all_candidates_keep_the_pairs_that_are_repeated():
    data = random_log()
    held_out = split_by_time(data, share=0.1)
    parts, facts = parts_of(data, candidates="all")
    assert not differ(parts.test, held_out.test)
    share = facts["validation_share"]
    assert not differ(parts.validation, split_by_time(held_out.train, share=share).test)
    assert parts.validation.multiply(parts.train.counts).nnz > 0


def test_users_and_items_first_seen_after_the_split_are_counted_and_left_out(caplog):
    data = random_log()
    log = data.log
    is_new_user = (log.user == 7) & (log.time < 50)  # user 7 and item 3 appear late
    is_new_item = (log.item == 3) & (log.time < 95)
    data = data.with_events(~is_new_user & ~is_new_item)
    held_out = split_by_time(data, at=95.0)
    share = 1 - held_out.train.counts.sum() / data.counts.sum()
    parts, facts = parts_of(data, test_share=float(share))
    assert facts["split_time"] == "95"
    assert facts["n_born_items"] == 1
    assert facts["n_born_pairs"] == held_out.n_born_pairs > 0
    assert parts.test[:, [3]].nnz == 0
    assert "0 users and 1 item are first seen after the split" in caplog.text


def test_few_users_are_judged_but_nothing_of_the_future_is_trained_on():
    data = random_log()
    few, _ = parts_of(data, validation_users=5)
    everyone, _ = parts_of(data)
    assert np.count_nonzero(np.diff(few.validation.indptr)) == 5
    assert not differ(few.train.counts, everyone.train.counts)
    assert not differ(few.known.counts, everyone.known.counts)


def test_validation_mirrors_a_fixed_test_part_that_is_later(caplog):
    data = random_log()
    train, test = data.with_events(data.log.time < 80), data.with_events(data.log.time >= 80)
    parts, facts = parts_of(train, test)
    assert (facts["split"], facts["validation_by"]) == ("time", "time")
    share = test.counts.sum() / data.counts.sum()
    expected = split_by_time(train, share=float(share))
    assert not differ(parts.validation, of_tested_users(expected.new, parts))
    assert not differ(parts.train.counts, expected.train.counts)
    assert facts["validation_share"] == pytest.approx(share, abs=0.02)
    assert parts.known is train
    assert "the test part is later than all of train" in caplog.text
    assert parts_of(train, test, split="random")[1]["validation_by"] == "events"


def test_the_last_basket_is_validation_if_the_test_is_one_more_basket(caplog):
    data = random_log(clock="order")
    is_test = data.log.time == data.log.time.max()
    train, test = data.with_events(~is_test), replace(data.with_events(is_test), log=None)
    parts, facts = parts_of(train, test)
    assert facts["split"] == "last"
    assert parts.train.log.time.max() == train.log.time.max() - 1
    assert not differ(parts.validation, of_tested_users(split_last(train).new, parts))
    assert "looks like the last events of each user" in caplog.text


def test_only_users_who_are_tested_are_validated_unless_there_are_none(caplog):
    data = random_log(clock="order")
    is_test = (data.log.time == 9) & (data.log.user < 20)
    train = data.with_events(data.log.time < 9)
    parts, _ = parts_of(train, replace(data.with_events(is_test), log=None))
    assert not np.diff(parts.validation.indptr)[20:].any()
    assert np.diff(parts.validation.indptr)[:20].any()
    # User 0 has one basket in train and so no last one.
    one = data.with_events((data.log.user > 0) | (data.log.time == 0))
    first = data.with_events((data.log.user == 0) & (data.log.time > 0))
    parts, _ = parts_of(one, replace(first, log=None), split="last")
    assert parts.validation.nnz > 0
    assert "no tested user has enough items" in caplog.text


def test_nothing_new_to_test_on_is_refused_with_a_way_out():
    user, time = np.repeat(np.arange(4), 6), np.tile(np.arange(6), 4)
    same = log_of(user, np.zeros(24, dtype=int), time, 4, 2, "number")
    with pytest.raises(DataError, match=r"nothing is left to test on.*use candidates 'all'"):
        parts_of(same)
    plain = Interactions.from_matrix(csr_array(np.ones((3, 6))))
    for split in ("time", "last"):
        with pytest.raises(DataError, match="no times to split by"):
            parts_of(plain, split=split)


def test_a_target_event_is_not_held_out_by_sessions():
    data = window_shopping().weighed(None, "buy")
    config = ProtocolConfig(split="random", validation_by="sessions")
    with pytest.raises(ConfigError, match="held out by pairs; leave out validation_by 'sessions'"):
        Splitter(config).own(data)
