"""Kinds of events: the weights against a regression written out, the features against loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cfnade.beyond.event_kinds import find_weights, target_features
from cfnade.beyond.logistic import logistic_regression
from cfnade.data.event_splits import split_random
from tests.planted import N_ITEMS, N_SHOPPERS, window_shopping


@pytest.fixture(scope="module")
def split():
    return split_random(window_shopping().weighed(None, "buy"), share=0.3, rng=0)


def test_a_cart_says_more_than_a_view_and_the_target_as_much_as_the_most(split):
    weights = find_weights(split.train, split.test)
    assert list(weights) == ["buy", "cart", "skip", "view"]
    assert weights["cart"] > weights["view"] >= 1.0
    assert weights["buy"] == max(weights.values())
    assert min(w for w in weights.values() if w > 0) == 1.0


def test_the_weights_are_the_odds_of_a_regression_over_all_pairs_written_out(split):
    train, later = split.train, split.test.toarray()
    kinds = {k: train.log.of_kind(k).counts(train.counts.shape).toarray() for k in train.log.kinds}
    users, kinds_asked = np.flatnonzero(later.sum(axis=1)), ("cart", "skip", "view")
    X, y = [], []
    for user in users:
        for item in range(N_ITEMS):
            has_target = kinds["buy"][user, item] > 0
            if not has_target:
                own = [math.log1p(kinds[k][user, item]) for k in kinds_asked]
                X.append(own)
                y.append(later[user, item] > 0)
    X += [[0.0] * 3] * 2  # half an item without events that is bought, and half that is not
    y += [True, False]
    weight = np.append(np.ones(len(y) - 2), [0.5, 0.5])
    slopes = logistic_regression(np.array(X), np.array(y), weight)[1:]
    raised = np.maximum(np.exp2(slopes) - 1.0, 0.0)
    least = raised[raised > 0].min()
    expected = {k: float(f"{w / least:.2g}") for k, w in zip(kinds_asked, raised, strict=True)}
    found = find_weights(train, split.test)
    assert {k: found[k] for k in kinds_asked} == pytest.approx(expected)


def test_a_kind_that_does_not_raise_the_odds_is_ignored():
    data = window_shopping()
    log = data.log
    is_bought = {(u, i) for u, i, k in zip(log.user, log.item, log.kind, strict=True) if k == 0}
    kind = log.kind.copy()
    for place in np.flatnonzero(kind == 1):  # carts only of what is never bought
        if (log.user[place], log.item[place]) in is_bought:
            kind[place] = 3
    data = replace(data, log=replace(log, kind=kind)).weighed(None, "buy")
    found = split_random(data, share=0.3, rng=0)
    weights = find_weights(found.train, found.test)
    assert weights["cart"] == 0.0 < weights["view"]


def test_the_features_are_the_smoothed_odds_of_the_target_and_its_users():
    data = window_shopping().weighed(None, "buy")
    watchers, buyers = [set() for _ in range(N_ITEMS)], [set() for _ in range(N_ITEMS)]
    log = data.log
    for user, item, kind in zip(log.user, log.item, log.kind, strict=True):
        watchers[item].add(user)
        if kind == 0:
            buyers[item].add(user)
    n_bought, n_watched = sum(map(len, buyers)), sum(map(len, watchers))
    usual = (n_bought + 0.5) / (n_watched + 1.0)
    expected = [
        [
            math.log((len(b) + 5 * usual) / (len(w) - len(b) + 5 * (1 - usual))),
            math.log1p(len(b)),
        ]
        for w, b in zip(watchers, buyers, strict=True)
    ]
    np.testing.assert_allclose(target_features(data), expected, rtol=1e-12)
    assert data.n_users == N_SHOPPERS


def test_with_the_target_alone_there_is_nothing_to_weigh():
    data = window_shopping()
    bought = data.with_events(data.log.kind == 0)
    only = replace(bought, log=replace(bought.log, kinds=("buy",))).weighed(None, "buy")
    found = split_random(only, share=0.3, rng=0)
    assert find_weights(found.train, found.test) == {"buy": 1.0}


def test_what_was_bought_before_says_nothing_about_untouched_items(split):
    again = split.train.target_counts + split.test
    assert find_weights(split.train, again) == find_weights(split.train, split.test)
