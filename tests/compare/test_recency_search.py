"""Every model of a comparison gets the recency that helps it, and none where it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfnade.baselines import EASE, IALS, IMF, ItemKNN, Popularity, WithoutNetwork
from cfnade.beyond.recency import log_watchers, recent_counts, trend
from cfnade.compare.comparison import compare
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.recency_search import find_recency
from cfnade.compare.registry import contender
from cfnade.data.ratings import RelativeRating
from cfnade.metrics.evaluate import evaluate
from tests.compare.logs import random_log
from tests.planted import changing_tastes, fashion


def cost_of(model, protocol: Protocol) -> float:
    validation = protocol.validation
    data = validation.train_data
    histories = model.histories(data) if hasattr(model, "histories") else data.counts
    found = evaluate(
        model, histories, validation.held_out, validation.ratings.transform(validation.held_out),
        metrics=("mpr", "ndcg@100"), n_bootstrap=0,
    ).metrics  # fmt: skip
    return found["mpr"] / found["ndcg@100"]


@pytest.mark.parametrize(
    ("make", "split", "field", "model"),
    [
        (fashion, "time", "trend_gain", EASE()),
        (changing_tastes, "last", "history_half_life", ItemKNN(weigh_counts=True)),
    ],
)
def test_what_is_planted_is_found_for_another_model(make, split, field, model):
    protocol = Protocol(make(), config=ProtocolConfig(split=split))
    data = protocol.validation.train_data
    model = model.fit(data.counts)
    recency = find_recency(model, protocol.validation)
    assert getattr(recency.readout, field) > 0 and recency.n_looks > 5
    assert cost_of(recency.add_to(model, data), protocol) < cost_of(model, protocol)


def test_a_model_with_recency_scores_decayed_histories_and_adds_the_trend():
    data = random_log()
    protocol = Protocol(data)
    train = protocol.validation.train_data
    model = EASE().fit(train.counts)
    found = find_recency(model, protocol.validation)
    readout = replace(found.readout, history_half_life=9.0, trend_half_life=5.0, trend_gain=0.5,
                      popularity_gain=2.0)  # fmt: skip
    dated = replace(found, readout=readout).add_to(model, train)
    now, ever = log_watchers(train.log, 20, 5.0), log_watchers(train.log, 20)
    histories = recent_counts(train.log, train.counts.shape, 9.0)
    np.testing.assert_array_equal(dated.histories(train).toarray(), histories.toarray())
    expected = model.scores(histories) + found.scale * trend(now, ever, 0.5, 2.0)
    np.testing.assert_allclose(dated.scores(histories), expected, rtol=1e-5)
    plain = replace(found, readout=replace(readout, history_half_life=0.0)).add_to(model, train)
    assert plain.histories(train) is train.counts


@pytest.mark.parametrize(
    "model",
    [
        ItemKNN(weigh_counts=True),
        IMF(factors=4),
        IALS(factors=4, weigh_counts=True),
        WithoutNetwork(factors=4),
    ],
)
def test_a_model_that_weighs_counts_gets_the_distributions_of_recent_ones(model):
    data = random_log()
    protocol = Protocol(data)
    train = protocol.validation.train_data
    fitted = model.fit(train.counts)
    before = fitted.relative_rating_
    found = find_recency(fitted, protocol.validation)
    dated = replace(found, readout=replace(found.readout, history_half_life=9.0)).add_to(
        fitted, train
    )
    recent = recent_counts(train.log, train.counts.shape, 9.0)
    expected = RelativeRating().fit(recent).transform(recent).toarray()
    np.testing.assert_array_equal(
        dated.model.relative_rating_.transform(recent).toarray(), expected
    )
    assert fitted.relative_rating_ is before


def test_strengths_are_on_the_scale_of_the_models_scores():
    """A model with scores ten times as large has the same ranking with the same readout."""
    protocol = Protocol(fashion())
    data = protocol.validation.train_data
    model = EASE().fit(data.counts)

    class TenTimes:
        def scores(self, histories):
            return 10 * model.scores(histories)

    one, ten = (find_recency(each, protocol.validation) for each in (model, TenTimes()))
    assert one.readout == ten.readout and ten.scale == pytest.approx(10 * one.scale, rel=1e-4)


def test_recency_that_does_not_help_is_left_out():
    """If nothing changes over time, it is never worse on validation than without."""
    for seed in range(3):
        protocol = Protocol(random_log(seed))
        data = protocol.validation.train_data
        model = Popularity().fit(data.counts)
        dated = find_recency(model, protocol.validation).add_to(model, data)
        assert cost_of(dated, protocol) <= cost_of(model, protocol) + 1e-9


def test_a_comparison_gives_all_models_recency_unless_told_not_to():
    models = {name: contender(name) for name in ("popularity", "ease")}
    with_it, without = (
        compare(fashion(), models, max_trials=1, config=ProtocolConfig(recency=recency))
        for recency in (True, False)
    )
    for found, plain in zip(with_it.results, without.results, strict=True):
        assert found.settings["trend_gain"] + found.settings["popularity_gain"] > 0
        assert "trend_gain" not in plain.settings and found.n_looks > plain.n_looks
        assert found.metrics["mpr"] < plain.metrics["mpr"]


def test_without_times_there_is_nothing_to_search(data):
    found = compare(data, {"popularity": contender("popularity")}, max_trials=1)
    assert "trend_gain" not in found.results[0].settings
