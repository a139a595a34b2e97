from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import hold_out
from cfnade.fit import validation as module
from cfnade.fit.settings import FitSettings
from cfnade.fit.validation import Judge, cost_by, hold_out_validation
from cfnade.metrics.evaluate import evaluate
from cfnade.model.inference import NetworkScorer
from tests.networks import group_counts, random_numpy_network


def test_validation_by_events_predicts_what_is_new_to_a_user():
    counts = group_counts().toarray()
    counts[:, 0] = 30.0  # everybody's daily bread: never new
    bread = {}
    counts[:, 1:4] = np.minimum(counts[:, 1:4], 1.0)  # what is new has a single event
    for by in ("pairs", "events", "sessions"):
        train, held_out = hold_out_validation(csr_array(counts), FitSettings(validation_by=by))
        assert held_out is not None
        np.testing.assert_array_equal((train + held_out).toarray(), counts)
        bread[by] = held_out[:, [0]].nnz
    assert bread["pairs"] > bread["events"] == bread["sessions"] == 0


def test_some_users_are_enough_to_hold_out_from(monkeypatch):
    monkeypatch.setattr(module, "VALIDATION_USERS", 7)
    _, held_out = hold_out_validation(group_counts(), FitSettings())
    assert (np.diff(held_out.indptr) > 0).sum() == 7


def test_nothing_is_held_out_where_it_is_not_asked_for_or_there_is_too_little(caplog):
    counts = group_counts()
    train, held_out = hold_out_validation(counts, FitSettings(validation_share=0.0))
    assert held_out is None and train is counts and not caplog.text
    assert hold_out_validation(csr_array(np.eye(3)), FitSettings())[1] is None
    assert "no user has enough items for validation" in caplog.text
    caplog.clear()
    repeated = csr_array(2.0 * np.ones((9, 9)))
    assert hold_out_validation(repeated, FitSettings(validation_by="sessions"))[1] is None
    assert "items with a single event" in caplog.text


def test_the_split_follows_from_the_seed():
    held_out = [
        hold_out_validation(group_counts(), FitSettings(seed=seed))[1].toarray()
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(held_out[0], held_out[1])
    assert (held_out[0] != held_out[2]).any()


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_a_judge_finds_the_metrics_that_evaluation_does(block_size):
    train, held_out = hold_out(group_counts(), share=0.2, rng=0, n_users=30)
    ratings = RelativeRating().fit(train)
    network = random_numpy_network()
    judge = Judge(train, held_out, ratings, block_size)
    logits = judge.logits(network)
    assert logits.shape == (30, 20) == judge.histories.shape
    names = ("mpr", "ndcg@100", "recall@3")
    expected = evaluate(
        NetworkScorer(network, ratings), train, held_out, ratings.transform(held_out),
        metrics=names, n_bootstrap=0,
    ).metrics  # fmt: skip
    assert judge.metrics(logits, names) == pytest.approx(expected)
    assert judge.metrics(-logits, names)["mpr"] != pytest.approx(expected["mpr"])


def test_less_cost_is_better_by_every_metric():
    good, bad = {"mpr": 5.0, "ndcg@100": 0.4}, {"mpr": 6.0, "ndcg@100": 0.3}
    for by in (None, "mpr", "ndcg@100"):
        assert cost_by(good, by) < cost_by(bad, by)
    # One per cent of the one is worth one per cent of the other.
    level = {"mpr": 5.0 * 1.01, "ndcg@100": 0.4 * 1.01}
    assert cost_by(level, None) == pytest.approx(cost_by(good, None))
    assert np.isfinite(cost_by({"mpr": 50.0, "ndcg@100": 0.0}, None))
