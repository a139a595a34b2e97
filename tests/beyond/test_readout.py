from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.beyond.direct import NeighbourRegression, direct_weight
from cfnade.beyond.factors import als_item_factors
from cfnade.beyond.readout import GRID, Readout, ReadoutConfig, ReadoutMaker
from cfnade.data.feedback import popularity_logit
from cfnade.data.splitting import hold_out
from cfnade.errors import ConfigError
from cfnade.metrics.evaluate import evaluate
from tests.networks import random_counts, random_numpy_network

N_ITEMS = 20


@pytest.fixture
def ratings():
    counts = random_counts(40, N_ITEMS)
    counts.data = counts.data / counts.data.max()
    return counts


@pytest.fixture
def network():
    return random_numpy_network(N_ITEMS, n_neighbours=0)


def test_a_readout_adds_scaled_neighbours_and_popularity(ratings, network):
    direct = {"direct_l2": 7.0, "direct_neighbours": 4, "direct_gain": 3.0}
    readout = Readout(**direct, popularity_tilt=-0.25, factor_gain=0.0)
    actual = (
        ReadoutMaker(ReadoutConfig(), ratings, network.config).add(network, readout).logits(ratings)
    )
    neighbours, weight = NeighbourRegression(ratings).neighbours(7.0, 4)
    likes = (ratings.toarray() > 0).astype(float)
    expected = network.logits(ratings) + 3.0 * likes @ direct_weight(neighbours, weight).toarray()
    expected -= 0.25 * popularity_logit(ratings)
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_factors_add_the_scores_of_a_new_user_in_a_factorisation(ratings, network):
    maker = ReadoutMaker(ReadoutConfig(direct=False), ratings, network.config)
    readout = Readout(direct_neighbours=0, factor_alpha=50.0, factor_gain=2.0)
    added = maker.add(network, readout).logits(ratings) - network.logits(ratings)

    C = np.where(ratings.toarray() > 0, 1.0 + 50.0 * ratings.toarray(), 0.0)
    l2 = min(28.0 * 51.0**0.5, 0.1 * np.linalg.svd(C)[1][0])
    Y = als_item_factors(csr_array(C), N_ITEMS // 2, l2, 10, np.random.default_rng(0))
    scale = ratings.toarray() * network.config.alpha + (ratings.toarray() > 0)
    x = scale / np.sqrt(np.maximum(scale.sum(axis=1, keepdims=True), 1e-9))
    expected = x @ Y @ np.linalg.inv(Y.T @ Y + 0.1 * l2 * np.eye(Y.shape[1])) @ Y.T
    expected *= 2.0 / expected.std()
    # A tanh bends what enters by a hundredth or two.
    np.testing.assert_allclose(added, expected, atol=0.05 * np.abs(expected).max())
    assert np.corrcoef(added.ravel(), expected.ravel())[0, 1] > 0.999


@pytest.mark.parametrize("changes", [{"n_layers": 2}, {"activation": "relu"}])
def test_units_that_bend_at_once_are_given_no_factors(ratings, changes):
    network = random_numpy_network(N_ITEMS, n_neighbours=0, **changes)
    maker = ReadoutMaker(ReadoutConfig(direct=False), ratings, network.config)
    readout = maker.choose(network, lambda tried: 1.0)
    assert readout.factor_gain == 0.0 and readout.settings()["factors"] is False
    assert maker.add(network, Readout(direct_neighbours=0)).config == network.config


def test_the_network_itself_is_not_changed(ratings, network):
    before = network.logits(ratings)
    ReadoutMaker(ReadoutConfig(), ratings, network.config).add(
        network, Readout(popularity_tilt=0.5)
    )
    np.testing.assert_array_equal(network.logits(ratings), before)


def test_what_is_fixed_stays_and_the_rest_is_found(ratings, network):
    wanted = Readout(
        direct_l2=30.0,
        direct_neighbours=7,
        direct_gain=40.0,
        popularity_tilt=-0.2,
        factor_alpha=1000.0,
        factor_gain=0.0,
    )

    class Told(ReadoutMaker):
        def add(self, network, readout):
            return readout  # the judge below looks at it alone

    def judge(tried):  # a smooth bowl around what is wanted
        far = abs(tried.popularity_tilt - wanted.popularity_tilt)
        far += abs(tried.factor_gain - wanted.factor_gain)
        for name in ("direct_l2", "direct_gain", "factor_alpha"):
            far += abs(np.log(getattr(tried, name) / getattr(wanted, name)))
        return far

    maker = Told(ReadoutConfig(direct_neighbours=7), ratings, network.config)
    assert maker.choose(network, judge) == wanted


def test_all_fixed_means_one_look(ratings, network):
    fixed = {"direct_l2": 5.0, "direct_neighbours": 2, "direct_gain": 1.5, "popularity_tilt": 0.3}
    fixed |= {"factor_alpha": 30.0, "factor_gain": 0.7}
    looks = []
    readout = ReadoutMaker(ReadoutConfig(**fixed), ratings, network.config).choose(
        network, lambda tried: float(len(looks.append(tried) or looks))
    )
    assert readout == Readout(**fixed) and len(looks) == 1


def test_without_paths_popularity_alone_is_looked_for(ratings, network):
    maker = ReadoutMaker(ReadoutConfig(direct=False, factors=False), ratings, network.config)
    tried = []

    def judge(candidate):
        tried.append(candidate)
        return 1.0

    readout = maker.choose(network, judge)
    assert readout.settings() == {"direct": False, "factors": False, "popularity_tilt": 0.0}
    assert all(candidate.config.n_neighbours == 0 for candidate in tried)
    assert 1 < len(tried) <= len(GRID["popularity_tilt"])


@pytest.mark.parametrize(
    "readout",
    [Readout(), Readout(direct_neighbours=0), Readout(factor_gain=0.0, popularity_tilt=0.2)],
)
def test_a_readout_is_told_by_its_settings(readout):
    again = Readout.from_settings(readout.settings())
    assert again.settings() == readout.settings()
    assert again.direct_neighbours == readout.direct_neighbours
    assert again.factor_gain == readout.factor_gain


def test_settings_of_a_readout_make_the_same_model_again():
    counts = random_counts(60, N_ITEMS, seed=1)
    small = {"n_hidden": 4, "max_epochs": 4, "refit": False}
    found = ImplicitCFNADE(**small).fit(counts)
    again = ImplicitCFNADE(**small, **found.readout_).fit(counts)
    np.testing.assert_array_equal(found.scores(counts), again.scores(counts))
    assert again.readout_ == found.readout_


@pytest.mark.parametrize(
    "wrong",
    [
        {"direct_l2": 0.0},
        {"direct_gain": -1.0},
        {"direct_neighbours": 0},
        {"direct_neighbours": 2.5},
        {"direct_dropout": 1.0},
        {"factor_gain": 0.0},
        {"factor_alpha": -1.0},
        {"factors": "no"},
    ],
)
def test_settings_without_meaning_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ReadoutConfig(**wrong)


def test_the_readout_is_chosen_by_mpr_and_ndcg_alike():
    counts = random_counts(200, N_ITEMS, seed=1)
    train, held_out = hold_out(counts, share=0.2, rng=0)
    small = {"n_hidden": 4, "max_epochs": 4, "item_l2": 0.1, "direct": False, "factors": False}
    metrics = {}
    for tilt in (None, *GRID["popularity_tilt"]):
        model = ImplicitCFNADE(**small, popularity_tilt=tilt).fit(train, validation=held_out)
        relevance = model.scorer_.relative_rating.transform(held_out)
        judged = evaluate(model, train, held_out, relevance, n_bootstrap=0).metrics
        assert judged["mpr"] == pytest.approx(model.validation_mpr_)
        metrics[tilt] = judged["mpr"] / judged["ndcg@100"]
        if tilt is None:
            found = model.readout_["popularity_tilt"]
    assert metrics[found] == metrics[None]
    near = [t for t in GRID["popularity_tilt"] if abs(t - found) < 0.21]
    assert metrics[found] == min(metrics[tilt] for tilt in near)
