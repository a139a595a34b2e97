"""A history at request time decays as the same events of a table do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from cfnade import DataError, ImplicitCFNADE
from cfnade.beyond.history_reader import HistoryReader
from cfnade.beyond.recency import recent_counts
from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions, with_dislikes
from tests.compare.logs import random_log
from tests.networks import random_model


def history_of(data: Interactions, user: int) -> dict[int, list[list[float]]]:
    """The events of a user as one would send them."""
    log, history = data.log, {}
    for entry in np.flatnonzero(log.user == user)[::-1]:
        pair = [float(log.count[entry]), float(log.time[entry])]
        history.setdefault(int(log.item[entry]), []).append(pair)
    return history


@pytest.mark.parametrize("clock", ["seconds", "number", "order"])
@pytest.mark.parametrize("half_life", [0.0, 0.7, 20.0])
def test_events_at_request_time_are_those_of_a_table(clock, half_life):
    data = random_log(n_users=8, clock=clock)
    expected = recent_counts(data.log, data.counts.shape, half_life).toarray()
    for user in range(8):
        found = HistoryReader(half_life, clock).counts(history_of(data, user))
        row = np.zeros(data.n_items)
        row[list(found)] = list(found.values())
        np.testing.assert_array_equal(row, expected[user])


DECAY = HistoryReader(10.0, "number")


def test_the_count_is_decayed_relative_to_the_latest_time():
    # After three half-lives 0.1 + 0.9 / 8 are left: 1.7 of 8, which is 2**0.75 on the scale.
    assert DECAY.counts({"a": [8, 0], "b": [2, 30]}) == {"a": 2**0.75, "b": 2.0}
    assert DECAY.counts({"a": [8, 1000], "b": (2, 1030)}) == {"a": 2**0.75, "b": 2.0}
    found = DECAY.counts({"a": [[1, 20], [1, 30], [4, 0]], "b": [1, 30]})  # 0.55 + 1 + 0.85
    assert found == {"a": 2**1.25, "b": 1.0}


def test_an_entry_without_a_time_counts_as_the_latest():
    found = DECAY.counts({"a": [8, 0], "b": [2, 30], "c": 4})
    assert found == {"a": 2**0.75, "b": 2.0, "c": 4.0}
    assert DECAY.counts({"a": [8, None], "b": [2, None]}) == {"a": 8.0, "b": 2.0}
    assert DECAY.counts({"a": [8, -5]}) == {"a": 8.0}


def test_what_did_not_happen_makes_nothing_older():
    found = DECAY.counts({"a": [4, 0], "b": [0, 1000], "c": [], "d": [[0, 5]]})
    assert found == {"a": 4.0, "b": 0.0, "c": 0.0, "d": 0.0}
    assert DECAY.counts({"b": [0, 1000]}) == {"b": 0.0}


def test_without_a_half_life_times_make_no_difference_but_must_be_readable():
    for clock in (None, "seconds"):
        decay = HistoryReader(0.0, clock)
        assert decay.counts({"a": [3, "2024-01-01"], "b": [5, 1.0]}) == {"a": 3.0, "b": 5.0}
        with pytest.raises(DataError, match="a time must be "):
            decay.counts({"a": [3, "soon"]})


@pytest.mark.parametrize(
    "plain", [{"a": 2}, ["a", "b"], {}, pd.Series({"a": 3.0}), {"a": -1}, {"a": "x"}]
)
def test_a_history_without_times_is_left_as_it_is(plain):
    assert DECAY.counts(plain) is plain


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"a": [1]}, r"a list of such pairs.*; got \[1\]"),
        ({"a": [1, 2, 3]}, "a list of such pairs"),
        ({"a": [[1, 2], [3]]}, "a list of such pairs"),
        ({"a": [-1, 2]}, "must be finite and at least 0"),
        ({"a": [1, 2], "b": float("nan")}, "must be finite and at least 0"),
        ({"a": ["x", 2]}, "must be numbers"),
        ({"a": [1, "soon"]}, "a time must be a number.*'soon'"),
        ({"a": [1, float("inf")]}, "a time must be a number"),
    ],
)
def test_bad_entries_are_refused_in_one_line(wrong, why):
    with pytest.raises(DataError, match=why) as error:
        DECAY.counts(wrong)
    assert "\n" not in str(error.value)


def dated_model() -> ImplicitCFNADE:
    """A random network whose histories decay with a half-life of 10 days."""
    plain = random_model()
    info = {"training": {"readout": {"history_half_life": 864_000.0}, "clock": "seconds"}}
    return ImplicitCFNADE.from_parts(plain.scorer_, plain.catalogue_, info=info)


def test_every_question_takes_times():
    model, plain = dated_model(), random_model()
    dated = {"i3": [8, "2024-05-01T00:00Z"], "i7": [2, "2024-05-31T00:00:00Z"], "i9": 4}
    same = {"i3": 1.0, "i7": 2.0, "i9": 4.0}
    for ask in (
        lambda m, h: m.recommend_for(h, 5)[1].tolist(),
        lambda m, h: [effect.score for effect in m.explain(h, "i15").effects],
        lambda m, h: m.similar_users(h, m.catalogue_.history(["i3"]))[1].tolist(),
    ):
        assert ask(model, dated) == ask(plain, same) != ask(plain, {**same, "i3": 8.0})
        assert ask(model, same) == ask(plain, same)
        undated = {"i3": 8.0, "i7": 2.0, "i9": 4.0}
        assert ask(plain, dated) == ask(plain, undated)  # accepted, without effect
    for wrong in ({"i3": [1, "soon"]}, {"stranger": [1, "soon"]}):
        with pytest.raises(DataError, match="a date or time such as 2024-05-31"):
            model.recommend_for(wrong)


def test_times_with_and_without_a_zone_do_not_mix():
    mixed = {"i3": [[1, "2024-05-01T10:00:00"]], "i7": [2, "2024-05-31T00:00:00+02:00"]}
    for model in (dated_model(), random_model()):
        with pytest.raises(DataError, match="some times of the history have a time zone"):
            model.recommend_for(mixed)
    kinds = HistoryReader(864_000.0, "seconds", {"view": 1.0, "buy": 5.0}, "buy")
    with pytest.raises(DataError, match="some times of the history have a time zone"):
        kinds.counts({"a": {"view": [1, "2024-05-01"], "buy": [1, "2024-05-02T00:00:00Z"]}})


def test_an_unknown_item_can_be_the_latest():
    model = dated_model()
    history = {"i3": [8, "2024-05-01"], "stranger": [1, "2024-05-31"]}
    found = model.recommend_for(history, unknown="ignore")[1]
    np.testing.assert_array_equal(found, model.recommend_for({"i3": 1.0})[1])


def test_kinds_and_times_weigh_as_in_a_table():
    weights = {"buy": 4.0, "skip": -3.0, "view": 0.0}
    entries = [  # item, kind, count, time
        (0, "buy", 1, 0.0), (0, "skip", 1, 50.0), (1, "skip", 2, 10.0), (2, "buy", 2, 20.0),
        (3, "view", 5, 60.0), (4, "skip", 1, 0.0), (4, "buy", 1, 55.0),
    ]  # fmt: skip
    order = sorted(range(len(entries)), key=lambda place: entries[place][3])
    item, kind, count, time = ([entries[place][column] for place in order] for column in range(4))
    kinds = tuple(sorted(weights))
    log = EventLog(
        np.zeros(len(entries), np.int32), np.int32(item), np.float64(count), np.float64(time),
        "number", np.int16([kinds.index(each) for each in kind]), kinds,
    )  # fmt: skip
    data = Interactions.from_log(log, np.arange(1), np.arange(5)).weighed(weights)
    recent = recent_counts(log, (1, 5), 10.0, weights)
    expected = with_dislikes(recent, data.dislikes).toarray()[0]
    history: dict[int, dict[str, list[list[float]]]] = {}
    for one, named, n, when in entries:
        history.setdefault(one, {}).setdefault(named, []).append([n, when])
    found = HistoryReader(10.0, "number", weights).counts(history)
    signs = [max(value, -1.0) if value < 0 else value for value in found.values()]
    np.testing.assert_allclose(signs, expected)


@pytest.mark.parametrize(
    "history", [["a", "b", "a"], np.array(["a", "b", "a"]), pd.Series({"a": 2, "b": 1})]
)
def test_ids_alone_weigh_as_the_event_to_predict(history):
    reader = HistoryReader(weights={"buy": 4.0, "view": 1.0}, target="buy")
    assert reader.counts(history) == reader.counts({"a": 2, "b": 1}) == {"a": 8.0, "b": 4.0}
    row = csr_array([[2.0, 1.0]])  # weighed already
    assert reader.counts(row) is row
    with pytest.raises(DataError, match="must be numbers"):
        reader.counts(pd.Series({"a": "many"}))


def test_kinds_may_be_named_by_numbers():
    reader = HistoryReader(weights={"1": 1.0, "4": 9.0}, target="4")
    assert reader.counts({"a": {4: 2, 1: 1}}) == {"a": 19.0}
    assert reader.owned({"a": {4: 2}, "b": {1: 1}}) == ["a"]
