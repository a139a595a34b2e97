from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.model.start import leading_vectors


@pytest.fixture
def likes(rng):
    return csr_array((rng.random((40, 15)) < 0.3).astype(float))


def test_factors_are_the_leading_singular_vectors(likes, rng):
    dense = likes.toarray() / np.sqrt(np.maximum(likes.toarray().sum(axis=1, keepdims=True), 1))
    _, expected, rows = np.linalg.svd(dense, full_matrices=False)
    vectors, singular = leading_vectors(likes, 4, rng)
    np.testing.assert_allclose(singular, expected[:4], rtol=1e-4)
    alignment = np.abs(np.sum(vectors * rows[:4].T, axis=0))
    np.testing.assert_allclose(alignment, 1.0, atol=1e-3)


def test_more_factors_than_items_are_zero(likes, rng):
    vectors, singular = leading_vectors(likes, 20, rng)
    assert vectors.shape == (15, 20) and np.isfinite(vectors).all()
    assert (singular[15:] == 0).all() and (vectors[:, 15:] == 0).all()
