from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines.rating_baselines import BiasedFactors, BiasedMeans
from cfnade.data.rating_table import read_ratings
from tests.planted_ratings import planted_ratings


def rmse(model, test):
    return float(np.sqrt(np.mean((model.expected(*test.pairs) - test.values) ** 2)))


@pytest.fixture
def parts():
    return read_ratings(planted_ratings()).split(0.1, 0)


def test_biases_of_a_hand_worked_table():
    """Two users who differ by 2, two items that differ by 1: without a penalty nothing is left."""
    table = read_ratings(csr_array(np.array([[1.0, 2.0], [3.0, 4.0]])))
    model = BiasedMeans(l2=0.0, n_iterations=50).fit(table)
    np.testing.assert_allclose(model.expected(*table.pairs), table.values, atol=1e-6)
    assert BiasedMeans(math.inf).fit(table).expected(*table.pairs) == pytest.approx([2.5] * 4)


def test_factors_find_what_biases_cannot(parts):
    train, test = parts
    factors = BiasedFactors(n_factors=3, l2=0.05).fit(train)
    assert rmse(factors, test) < 0.8 * rmse(BiasedMeans().fit(train), test)
    found = factors.expected(*test.pairs)
    assert ((found >= 1) & (found <= 5)).all()


def test_a_user_without_ratings_gets_the_items_mean():
    ratings = planted_ratings().tolil()
    ratings[7] = 0
    table = read_ratings(csr_array(ratings))
    columns = np.arange(40)
    for model in (BiasedMeans().fit(table), BiasedFactors(n_factors=2).fit(table)):
        assert np.isfinite(model.expected(np.full(40, 7), columns)).all()
