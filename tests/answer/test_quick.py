"""The network by torch: hidden layers of the plain one, and products within their bound."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from cfnade.answer.quick import QuickNetwork
from tests.networks import network_of, random_counts, random_numpy_network

pytest.importorskip("torch")
N_ITEMS, N_HIDDEN = 90, 24


def exact(hidden, V):
    return hidden.astype(np.float64) @ V.astype(np.float64).T


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 30),
    n_users=st.integers(1, 9),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
    outlier=st.sampled_from([0.0, 1.0, 1e3]),
)
def test_no_product_is_further_off_than_its_error(seed, n_users, scale, outlier):
    rng = np.random.default_rng(seed)
    V = (scale * rng.standard_normal((N_ITEMS, N_HIDDEN))).astype(np.float32)
    V[0], V[1, 0] = 0.0, outlier
    hidden = rng.standard_normal((n_users, N_HIDDEN)).astype(np.float32)
    hidden[0] *= outlier
    n_units, unit, error = QuickNetwork(network_of(V)).products(hidden)
    assert n_units.shape == (n_users, N_ITEMS) and n_units.dtype == np.int32
    off = np.abs(n_units * unit.astype(np.float64) - exact(hidden, V))
    slack = 1e-6 * np.linalg.norm(hidden, axis=1)[:, None] * np.linalg.norm(V, axis=1)  # float32
    assert (off <= error[:, None] + slack).all()


def test_the_error_is_a_hundredth_of_the_norms_or_so(rng):
    V = rng.standard_normal((N_ITEMS, N_HIDDEN)).astype(np.float32)
    hidden = np.tanh(rng.standard_normal((5, N_HIDDEN))).astype(np.float32)
    error = QuickNetwork(network_of(V)).products(hidden).error
    norms = np.linalg.norm(hidden, axis=1) * np.linalg.norm(V, axis=1).max()
    assert (error < 0.02 * norms).all()


def test_the_largest_numbers_do_not_overflow():
    V = np.ones((N_ITEMS, 2048), dtype=np.float32)
    hidden = np.array([[1.0], [-1.0]], dtype=np.float32).repeat(2048, axis=1)
    n_units, unit, _ = QuickNetwork(network_of(V)).products(hidden)
    np.testing.assert_allclose(n_units * unit, exact(hidden, V), rtol=1e-6)


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_hidden_layers_are_those_of_the_plain_network(input_scale, index):
    network = random_numpy_network(N_ITEMS, input_scale=input_scale, n_layers=2)
    ratings = random_counts(n_users=30, n_items=N_ITEMS)
    ratings.data = 1.0 / (1.0 + ratings.data)
    ratings.data[::4] = -1.0  # dislikes
    ratings = csr_array(ratings * (np.arange(30) != 4)[:, None])  # one is empty
    ratings.indices = ratings.indices.astype(index)
    hidden = QuickNetwork(network).hidden(ratings)
    assert hidden.dtype == np.float32
    np.testing.assert_allclose(hidden, network.hidden(ratings), rtol=1e-5, atol=1e-6)


def test_weights_that_cannot_be_written_are_read_without_a_warning():
    network = random_numpy_network(N_ITEMS)
    for weight in network.weights.values():
        weight.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        QuickNetwork(network)
