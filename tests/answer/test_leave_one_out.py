"""Leaving an entry out by subtracting its term equals scoring the history without it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.answer.leave_one_out import leave_one_out, logits_without_each
from cfnade.model.inference import ACTIVATIONS, NumpyNetwork
from tests.networks import random_numpy_network

N_ITEMS, ITEM = 12, 5


def row(values: dict[int, float]) -> csr_array:
    columns = sorted(values)
    return csr_array(([values[c] for c in columns], columns, [0, len(columns)]), (1, N_ITEMS))


def without(values: dict[int, float], left_out: int) -> csr_array:
    return row({item: value for item, value in values.items() if item != left_out})


def check(network: NumpyNetwork, liked: dict[int, float], disliked: dict[int, float]) -> None:
    dislikes = row(disliked) if disliked else None
    found = leave_one_out(network, row(liked), ITEM, dislikes)
    assert found.logit == pytest.approx(network.logits(row(liked), dislikes)[0, ITEM], abs=1e-5)
    expected = [network.logits(without(liked, j), dislikes)[0, ITEM] for j in sorted(liked)]
    np.testing.assert_allclose(found.without_liked, expected, atol=2e-5)
    expected = [network.logits(row(liked), without(disliked, j))[0, ITEM] for j in sorted(disliked)]
    np.testing.assert_allclose(found.without_disliked, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("activation", "n_layers", "input_scale", "n_neighbours"),
    list(product(ACTIVATIONS, [1, 3], ["none", "alpha", "history"], [0, 4])),
)
def test_equals_really_leaving_it_out(activation, n_layers, input_scale, n_neighbours):
    network = random_numpy_network(
        N_ITEMS,
        activation=activation,
        n_layers=n_layers,
        input_scale=input_scale,
        n_neighbours=n_neighbours,
    )
    liked = {0: 0.1, 3: 1.0, 5: 0.5, 7: 0.33, 11: 0.9}  # the item asked for is among them
    check(network, liked, {})
    check(network, liked, {2: 31.0, 6: 1.0, 9: 4.0})


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("liked", [{}, {3: 0.4}, {3: 0.4, 5: 0.01}])
def test_short_histories_are_left_out_exactly_too(input_scale, liked):
    check(random_numpy_network(N_ITEMS, input_scale=input_scale), liked, {})
    check(random_numpy_network(N_ITEMS, input_scale=input_scale), liked, {2: 7.0})


def test_one_strong_item_among_many_weak_ones_loses_no_digits():
    network = random_numpy_network(N_ITEMS, alpha=300.0, input_scale="history")
    check(network, {j: 1.0 if j == 4 else 1e-3 for j in range(N_ITEMS)}, {})


@pytest.mark.parametrize("n_neighbours", [0, 4])
def test_many_items_at_once_are_the_same_as_one_after_the_other(n_neighbours):
    network = random_numpy_network(n_items=N_ITEMS, n_neighbours=n_neighbours)
    liked, disliked = row({0: 0.4, 3: 1.0, 7: 0.2}), row({1: 5.0, 9: 2.0})
    items = np.array([5, 0, 11, 9])
    together = logits_without_each(network, liked, items, disliked)
    assert together.shape == (1 + 3 + 2, 4)
    for place, item in enumerate(items):
        found = leave_one_out(network, liked, int(item), disliked)
        alone = [found.logit, *found.without_liked, *found.without_disliked]
        np.testing.assert_allclose(together[:, place], alone, rtol=1e-6, atol=1e-6)
