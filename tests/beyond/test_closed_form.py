from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond.closed_form import item_item_weights


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_weights_equal_the_closed_form_in_float64(counts, dropout):
    X = (counts.toarray() > 0).astype(float)
    gram = X.T @ X
    penalty = 7.0 + np.diag(gram) * dropout / (1 - dropout)
    P = np.linalg.inv(gram + np.diag(penalty))
    expected = -P / np.diag(P)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(item_item_weights(counts, 7.0, dropout), expected, atol=1e-5)


def test_without_dropout_no_other_weights_with_a_zero_diagonal_fit_better(counts, rng):
    X = (counts.toarray() > 0).astype(float)

    def cost(B):
        return ((X - X @ B) ** 2).sum() + 7.0 * (B**2).sum()

    best = item_item_weights(counts, 7.0).astype(float)
    for _ in range(20):
        other = best + 0.01 * rng.normal(size=best.shape)
        np.fill_diagonal(other, 0.0)
        assert cost(best) < cost(other)


def test_items_without_watchers_get_no_weight():
    weights = item_item_weights(csr_array(np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 1.0]])), 1.0)
    assert (weights[1] == 0).all() and (weights[:, 1] == 0).all()
