from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.model import direct
from cfnade.model.direct import (
    add_direct,
    direct_weight,
    item_item_weights,
    strongest_neighbours,
)


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


def test_neighbours_are_the_largest_weights_above_0_of_each_column(rng, monkeypatch):
    monkeypatch.setattr(direct, "_COLUMNS", 3)  # several blocks
    B = rng.normal(size=(8, 8)).astype(np.float32)
    B[:, 5] = -1.0  # nothing speaks for it
    np.fill_diagonal(B, 0.0)
    neighbours, weight = strongest_neighbours(B, 3)
    for item in range(8):
        expected = sorted((value for value in B[:, item] if value > 0), reverse=True)[:3]
        assert weight[item].tolist() == expected + [0.0] * (3 - len(expected))
        for neighbour, value in zip(neighbours[item], weight[item], strict=True):
            assert value == (B[neighbour, item] if neighbour != item else 0.0)


def test_more_neighbours_than_items_are_filled_up_with_nothing(rng):
    B = np.abs(rng.normal(size=(3, 3))).astype(np.float32)
    np.fill_diagonal(B, 0.0)
    neighbours, weight = strongest_neighbours(B, 5)
    assert neighbours.shape == weight.shape == (3, 5)
    np.testing.assert_array_equal(direct_weight(neighbours, weight).toarray(), B)


def test_items_without_watchers_get_no_weight():
    weights = item_item_weights(csr_array(np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 1.0]])), 1.0)
    assert (weights[1] == 0).all() and (weights[:, 1] == 0).all()


@pytest.mark.parametrize("n_users", [0, 1, 5])
def test_what_is_added_to_the_logits_is_the_product_with_the_likes(rng, n_users):
    neighbours = rng.integers(9, size=(9, 4))  # one may be there twice: both weights count
    weight = direct_weight(neighbours, rng.random((9, 4)).astype(np.float32))
    liked = csr_array(rng.random((n_users, 9)) * (rng.random((n_users, 9)) < 0.4))
    before = rng.normal(size=(n_users, 9)).astype(np.float32)
    logits = before.copy()
    add_direct(logits, liked, weight)
    expected = before + (liked.toarray() > 0) @ weight.toarray()
    np.testing.assert_allclose(logits, expected, atol=1e-5)
