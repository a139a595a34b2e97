"""Repeats: the features against loops over events, and what comes of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.beyond.recency import log_watchers
from cfnade.beyond.repeats import (
    Repeats,
    fit_repeats,
    item_features,
    repeat_logit,
)
from cfnade.data.event_splits import split_by_time
from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions
from cfnade.metrics.evaluate import evaluate

N_USERS, N_ITEMS, N_STAPLES = 120, 30, 10


def shopping(seed: int = 0) -> Interactions:
    """Everybody buys their own three staples every week, and once each some of the other items."""
    rng = np.random.default_rng(seed)
    user, item, time = [], [], []
    for shopper in range(N_USERS):
        staples = rng.choice(N_STAPLES, 3, replace=False)
        others = N_STAPLES + rng.permutation(N_ITEMS - N_STAPLES)
        for week in range(10):
            basket = [*staples[rng.random(3) < 0.8], others[week]]
            user += [shopper] * len(basket)
            item += [int(each) for each in basket]
            time += [float(week)] * len(basket)
    ones = np.ones(len(user))
    log = EventLog(np.int32(user), np.int32(item), ones, np.array(time), "number")
    return Interactions.from_log(log, np.arange(N_USERS), np.arange(N_ITEMS))


def test_the_repeat_logit_counts_watchers_who_came_back_at_another_time():
    rng = np.random.default_rng(0)
    n = 200
    order = np.lexsort((time := rng.integers(0, 4, n).astype(float), user := rng.integers(0, 9, n)))
    item = rng.integers(0, 5, n)
    log = EventLog(
        user[order].astype(np.int32),
        item[order].astype(np.int32),
        np.ones(n),
        time[order],
        "number",
    )
    times: dict[tuple[int, int], set[float]] = {}
    for u, i, t in zip(log.user.tolist(), log.item.tolist(), time[order].tolist(), strict=True):
        times.setdefault((u, i), set()).add(t)
    watchers = [sum(i == item for _, i in times) for item in range(6)]
    back = [sum(i == item and len(ts) > 1 for (_, i), ts in times.items()) for item in range(6)]
    usual = (sum(back) + 0.5) / (sum(watchers) + 1.0)
    expected = [
        math.log((b + 5 * usual) / (w - b + 5 * (1 - usual)))
        for w, b in zip(watchers, back, strict=True)
    ]
    np.testing.assert_allclose(repeat_logit(log, 6), expected)


def test_a_log_without_entries_has_the_same_logit_everywhere():
    log = EventLog(np.int32([]), np.int32([]), np.empty(0), np.empty(0), "number")
    assert np.unique(repeat_logit(log, 3)).size == 1


def test_scores_are_the_regression_of_each_pair():
    of_items = np.array([[0.0, 1.0], [2.0, 3.0]])
    repeats = Repeats.of([0.5, 2.0, 1.0, -1.0], of_items)
    np.testing.assert_allclose(repeats.bias, [0.5 + 0.0 - 1.0, 0.5 + 2.0 - 3.0])
    assert repeats.weight == 2.0


def test_what_is_bought_every_week_gets_a_higher_score():
    split = split_by_time(shopping(), share=0.2)
    log = split.train.log
    assert log is not None
    features = item_features(log, N_ITEMS)
    np.testing.assert_allclose(features[:, 1], log_watchers(log, N_ITEMS))
    weights = fit_repeats(split.train.counts, split.repeated, features)
    bias = Repeats.of(weights, features).bias
    assert weights[1] > 0
    assert bias[:N_STAPLES].min() > bias[N_STAPLES:].max()


@pytest.fixture(scope="module")
def shopper() -> tuple[ImplicitCFNADE, Interactions, csr_array]:
    split = split_by_time(shopping(), share=0.1)
    model = ImplicitCFNADE(n_hidden=8, max_epochs=3, random_state=0, validation_share=0.2)
    return model.fit(split.train), split.train, split.test


def test_repeats_are_predicted_better_than_by_own_counts(shopper):
    model, known, test = shopper
    assert len(model.readout_.repeats) == 4
    relevance = test.copy()
    relevance.data[:] = 1.0

    class OwnCounts:
        def scores(self, histories):
            return histories.toarray().astype(np.float32)

    found = [
        evaluate(scorer, histories, test, relevance, candidates="all", n_bootstrap=0).metrics
        for scorer, histories in ((model, model.histories(known)), (OwnCounts(), known.counts))
    ]
    assert found[0]["mpr"] < found[1]["mpr"]


def test_recommending_seen_items_merges_repeats_and_new_items_by_score(shopper):
    model, known, _ = shopper
    histories = model.histories(known)
    scores = model.scorer_.scores(histories)
    users = np.arange(5)
    ids, ranked = model.recommend(users, histories[:5], N=8, filter_already_liked_items=False)
    for user in users:
        order = np.lexsort((np.arange(N_ITEMS), -scores[user]))[:8]
        assert ids[user].tolist() == order.tolist()
        np.testing.assert_allclose(ranked[user], scores[user, order], rtol=1e-5, atol=1e-5)
    history = dict(zip(histories[[0]].indices.tolist(), histories[[0]].data.tolist(), strict=True))
    alone, _ = model.recommend_for(history, n=8, filter_already_liked_items=False)
    assert alone.tolist() == ids[0].tolist()


def test_filters_hold_for_repeats(shopper):
    model, known, _ = shopper
    row = model.histories(known)[[0]]
    top = model.recommend(0, row, N=3, filter_already_liked_items=False)[0]
    again = model.recommend(0, row, N=3, filter_already_liked_items=False, filter_items=top)[0]
    assert not set(top) & set(again)


def test_repeats_survive_saving(shopper, tmp_path):
    model, known, _ = shopper
    model.save(tmp_path / "model")
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    assert loaded.readout_ == model.readout_
    histories = model.histories(known)
    np.testing.assert_array_equal(loaded.scorer_.scores(histories), model.scorer_.scores(histories))


def test_without_times_there_is_no_model_of_repeats():
    model = ImplicitCFNADE(n_hidden=4, max_epochs=1).fit(shopping().counts)
    assert model.readout_.repeats == ()
    assert "repeat_bias" not in model.scorer_.network.weights
