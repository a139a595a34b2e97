from __future__ import annotations

import numpy as np
import pytest

from cfnade.beyond.units import LinearUnits, can_be_linear, mean_of
from cfnade.data.feedback import confidence
from cfnade.model.inputs import input_weight, with_values
from cfnade.storage.tensors import wrong_weights
from tests.networks import random_counts, random_numpy_network

N_ITEMS = 20


@pytest.fixture
def ratings():
    counts = random_counts(40, N_ITEMS)
    counts.data = counts.data / counts.data.max()
    return counts


@pytest.mark.parametrize("settings", [{}, {"n_layers": 3}, {"activation": "silu"}])
def test_the_mean_of_networks_is_a_network(ratings, settings):
    networks = [random_numpy_network(n_neighbours=0, seed=s, **settings) for s in range(3)]
    mean = mean_of(networks)
    expected = np.mean([network.logits(ratings) for network in networks], axis=0)
    np.testing.assert_allclose(mean.logits(ratings), expected, atol=1e-5)
    assert mean.config.n_hidden == 3 * networks[0].config.n_hidden
    assert wrong_weights(mean.config, mean.weights) is None


def test_the_mean_of_one_network_is_itself():
    network = random_numpy_network(n_neighbours=0)
    assert mean_of([network]) is network


@pytest.mark.parametrize("activation", ["tanh", "identity"])
def test_linear_units_add_scores_of_the_spread_that_is_asked_for(ratings, activation):
    network = random_numpy_network(activation=activation)
    factors = np.random.default_rng(1).normal(size=(N_ITEMS, 5)).astype(np.float32)
    units = LinearUnits.from_factors(factors, 2.0, ratings, network.config)
    wider = units.beside(network, 1.5)
    assert wrong_weights(wider.config, wider.weights) is None
    added = wider.logits(ratings) - network.logits(ratings)
    assert added.std() == pytest.approx(1.5, rel=0.02)
    context = with_values(ratings, confidence(ratings.data, network.config.alpha))
    x = with_values(ratings, input_weight(context, network.config))
    scores = x @ factors @ np.linalg.inv(factors.T @ factors + 2.0 * np.eye(5)) @ factors.T
    expected = 1.5 * scores / scores.std()
    if activation == "identity":
        np.testing.assert_allclose(added, expected, atol=1e-4)
    assert np.abs(added - expected).max() < 0.05 * np.abs(expected).max()  # a tanh bends a little
    assert np.corrcoef(added.ravel(), expected.ravel())[0, 1] > 0.999


def test_factors_of_nothing_add_nothing(ratings):
    network = random_numpy_network()
    units = LinearUnits.from_factors(
        np.zeros((N_ITEMS, 3), np.float32), 2.0, ratings, network.config
    )
    wider = units.beside(network, 1.0)
    np.testing.assert_allclose(wider.logits(ratings), network.logits(ratings), atol=1e-6)


def test_a_place_for_linear_units_is_one_layer_that_is_straight_at_nothing():
    told = [{}, {"activation": "identity"}, {"activation": "relu"}, {"n_layers": 2}]
    networks = [random_numpy_network(**settings) for settings in told]
    assert [can_be_linear(n.config) for n in networks] == [True, True, False, False]


def test_units_to_start_from_score_as_the_factors_do_in_any_turn(ratings):
    network = random_numpy_network()
    factors = np.random.default_rng(1).normal(size=(N_ITEMS, 5)).astype(np.float32)
    units = LinearUnits.from_factors(factors, 2.0, ratings, network.config)
    one, other = (units.start(8, np.random.default_rng(seed)) for seed in (0, 1))
    assert one[0].shape == one[1].shape == (N_ITEMS, 5)
    assert np.abs(one[0] - other[0]).max() > 0.01
    for into, out in (one, other):
        np.testing.assert_allclose(into @ out.T, units.into @ units.out.T, atol=1e-4)


def test_where_there_is_little_room_the_start_has_the_leading_components(ratings):
    factors = np.random.default_rng(1).normal(size=(N_ITEMS, 5)).astype(np.float32)
    factors[:, :3] *= 10.0  # all but all of the scores
    units = LinearUnits.from_factors(factors, 1e3, ratings, random_numpy_network().config)
    into, out = units.start(4, np.random.default_rng(0))  # three quarters of four units
    assert into.shape == (N_ITEMS, 3)
    whole = units.into @ units.out.T
    assert np.abs(into @ out.T - whole).max() < 0.1 * np.abs(whole).max()


def test_a_narrow_network_starts_no_further_than_where_a_tanh_bends(ratings):
    factors = np.random.default_rng(1).normal(size=(N_ITEMS, 12)).astype(np.float32)
    factors[:, 0] *= 100.0
    config = random_numpy_network().config
    units = LinearUnits.from_factors(factors, 50.0, ratings, config)
    context = with_values(ratings, confidence(ratings.data, config.alpha))
    x = with_values(ratings, input_weight(context, config))
    for n_hidden in (2, 4, 16):
        into, _ = units.start(n_hidden, np.random.default_rng(0))
        assert np.sqrt(np.mean((x @ into) ** 2)) <= 0.5 + 1e-4


def drawn_weights(n_items: int, n_hidden: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"like_weight": (n_items, n_hidden), "output_weight": (n_items, n_hidden)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**weights, "hidden_bias": np.zeros(n_hidden, dtype=np.float32)}


def test_the_first_units_start_from_factors_and_the_others_at_random(rng):
    into, out = rng.normal(size=(2, 12, 5)).astype(np.float32)
    drawn = drawn_weights(12, 8, rng)
    started = LinearUnits(into, out).start_weights(drawn, seed=3)
    W, V = started["like_weight"], started["output_weight"]
    np.testing.assert_allclose(W[:, :5] @ V[:, :5].T, into @ out.T, atol=1e-4, rtol=1e-4)
    np.testing.assert_array_equal(W[:, 5:], drawn["like_weight"][:, 5:])
    np.testing.assert_array_equal(V[:, 5:], drawn["output_weight"][:, 5:])


def test_factors_without_any_score_leave_the_weights_as_drawn(rng):
    into = rng.normal(size=(12, 5)).astype(np.float32)
    drawn = drawn_weights(12, 8, rng)
    started = LinearUnits(into, np.zeros((12, 5), np.float32)).start_weights(drawn, seed=0)
    np.testing.assert_array_equal(started["like_weight"], drawn["like_weight"])
