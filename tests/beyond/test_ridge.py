"""Conjugate gradients against the closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond.ridge import ridge


def solved(X, Y, weight, l2):
    """The closed form: (X' D X + l2 I)^-1 X' D Y."""
    D = np.diag(weight)
    return np.linalg.solve(X.T @ D @ X + l2 * np.eye(X.shape[1]), X.T @ D @ Y)


def some_rows(rng, n_items=60, n_features=25):
    """Rows of length 1, of which the last is empty, as is the last feature."""
    X = np.where(rng.random((n_items, n_features)) < 0.2, rng.random((n_items, n_features)), 0.0)
    X[-1, :] = X[:, -1] = 0.0
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize("l2", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("n_targets", [1, 40])
def test_coefficients_are_those_of_the_closed_form(rng, l2, n_targets):
    X, Y = some_rows(rng), rng.normal(size=(60, n_targets))
    weight = rng.random(60)
    found = ridge(csr_array(X), Y.astype(np.float32), weight.astype(np.float32), l2, n_threads=2)
    expected = solved(X, Y, weight, l2)
    assert found.shape == (25, n_targets) and found.dtype == np.float32
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    assert (found[-1] == 0).all()  # a feature that no item has


def test_items_without_weight_are_not_learnt_from(rng):
    X, Y = some_rows(rng), rng.normal(size=(60, 3)).astype(np.float32)
    weight = np.ones(60, dtype=np.float32)
    weight[30:] = 0.0
    other = Y.copy()
    other[30:] = 1e3
    some, same = (ridge(csr_array(X), y, weight, 1.0) for y in (Y, other))
    np.testing.assert_array_equal(some, same)


def test_without_any_feature_nothing_is_predicted():
    nothing = csr_array((5, 3), dtype=np.float32)
    found = ridge(nothing, np.ones((5, 2), np.float32), np.ones(5, np.float32), 1.0)
    assert found.shape == (3, 2) and (found == 0).all()
