from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond.factors import (
    als_item_factors,
    can_start_from_factors,
    item_scores,
    largest_singular_value,
    start_from_factors,
)
from cfnade.data.ratings import confidence
from cfnade.errors import MissingExtraError
from cfnade.model.config import ModelConfig
from cfnade.model.inference import input_weight, with_values
from tests.networks import random_counts, random_numpy_network

N_ITEMS, ALPHA = 20, 10.0


def confidences(n_users: int = 30, n_items: int = 12, density: float = 0.3) -> csr_array:
    counts = random_counts(n_users, n_items, density)
    counts.data = 1.0 + counts.data
    return counts


# Alternating least squares ---------------------------------------------------------------------


def best_rows(confidence: np.ndarray, others: np.ndarray, l2: float) -> np.ndarray:
    """Solve the normal equations of each row by itself: (Y' C Y + l2) x = Y' C t."""
    rows = []
    for row in confidence:
        c, t = np.where(row > 0, row, 1.0), (row > 0).astype(float)
        normal = (others.T * c) @ others + l2 * np.eye(others.shape[1])
        rows.append(np.linalg.solve(normal, others.T @ (c * t)))
    return np.array(rows)


def cost(confidence: np.ndarray, users: np.ndarray, items: np.ndarray, l2: float) -> float:
    """What is minimised, as plain loops."""
    total = l2 * float((users**2).sum() + (items**2).sum())
    for user in range(confidence.shape[0]):
        for item in range(confidence.shape[1]):
            observed = confidence[user, item]
            c, t = (observed, 1.0) if observed > 0 else (1.0, 0.0)
            total += c * (t - float(users[user] @ items[item])) ** 2
    return total


@pytest.mark.parametrize("n_factors", [2, 5, 20], ids=["more likes", "as many", "fewer likes"])
def test_in_the_end_each_row_solves_its_normal_equation(n_factors):
    data = confidences()
    items = als_item_factors(data, n_factors, 3.0, 300, n_threads=1).astype(float)
    users = best_rows(data.toarray(), items, 3.0)
    again = best_rows(data.toarray().T, users, 3.0)
    assert np.abs(items).max() > 0.1
    np.testing.assert_allclose(again, items, atol=2e-3 * np.abs(items).max())


def test_iterations_lower_the_cost():
    data = confidences()
    costs = []
    for n_iterations in (1, 2, 5, 20):
        items = als_item_factors(data, 4, 0.5, n_iterations, n_threads=1)
        users = best_rows(data.toarray(), items, 0.5)
        costs.append(cost(data.toarray(), users, items, 0.5))
    assert costs == sorted(costs, reverse=True) and costs[-1] < 0.99 * costs[0]


def test_factors_of_similar_data_are_a_better_beginning_than_random_ones():
    data = confidences()
    known = als_item_factors(data[10:], 4, 0.5, 20, n_threads=1)

    def cost_after_one(**options):
        items = als_item_factors(data, 4, 0.5, 1, n_threads=1, **options)
        return cost(data.toarray(), best_rows(data.toarray(), items, 0.5), items, 0.5)

    kept = known.copy()
    converged = als_item_factors(data, 4, 0.5, 50, n_threads=1)
    best = cost(data.toarray(), best_rows(data.toarray(), converged, 0.5), converged, 0.5)
    assert cost_after_one(first=known) - best < 0.5 * (cost_after_one() - best)
    np.testing.assert_array_equal(known, kept)


def test_no_other_factors_nearby_cost_less(rng):
    data = confidences()
    items = als_item_factors(data, 3, 2.0, 300, n_threads=1)
    users = best_rows(data.toarray(), items, 2.0)
    least = cost(data.toarray(), users, items, 2.0)
    for _ in range(10):
        moved = items + 0.05 * rng.normal(size=items.shape)
        assert cost(data.toarray(), best_rows(data.toarray(), moved, 2.0), moved, 2.0) > least


def test_an_item_that_nobody_has_has_no_factors():
    data = confidences().toarray()
    data[:, 3] = 0.0
    items = als_item_factors(csr_array(data), 4, 0.5, 15, n_threads=1)
    assert not items[3].any() and items[2].any()
    assert items.shape == (12, 4) and items.dtype == np.float32


def test_all_factors_are_nothing_from_the_largest_singular_value_on():
    data = confidences()
    largest = largest_singular_value(data)
    assert largest == pytest.approx(np.linalg.svd(data.toarray())[1][0], rel=1e-4)
    for l2, is_nothing in ((1.2 * largest, True), (0.3 * largest, False)):
        items = als_item_factors(data, 3, l2, 60, n_threads=1)
        assert (np.abs(items).max() < 1e-3) == is_nothing
    assert largest_singular_value(csr_array((3, 4))) == 0.0


def test_the_same_data_have_the_same_factors():
    one, other = (als_item_factors(confidences(), 4, 0.5, 15, n_threads=1) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_without_implicit_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'cfnade\[train\]'"):
        als_item_factors(confidences(), 4, 0.5, 15)


# The start -------------------------------------------------------------------------------------


def drawn(n_hidden: int, **settings):
    network = random_numpy_network(N_ITEMS, n_hidden, n_neighbours=0, **settings)
    return network.weights, network.config


def started(ratings, n_hidden: int, n_factors: int, seed: int = 0, max_users=1000, **settings):
    weights, config = drawn(n_hidden, **settings)
    options = {"n_factors": n_factors, "alpha": ALPHA, "max_users": max_users, "n_iterations": 15}
    scores = item_scores(ratings, config, n_threads=1, **options)
    return start_from_factors(weights, scores, seed=seed), config


def entering(ratings, config) -> csr_array:
    """What multiplies W of each liked item."""
    context = with_values(ratings, confidence(ratings.data, config.alpha))
    return with_values(ratings, input_weight(context, config))


def factor_scores(ratings, config, n_factors: int, n_leading: int | None = None) -> np.ndarray:
    """Scores of the factorisation for each history, of which all have a spread of 1."""
    C = np.where(ratings.toarray() > 0, 1.0 + ALPHA * ratings.toarray(), 0.0)
    l2 = min(28.0 * (1.0 + ALPHA) ** 0.5, 0.1 * np.linalg.svd(C)[1][0])
    Y = als_item_factors(csr_array(C), n_factors, l2, 15, n_threads=1).astype(float)
    into = Y @ np.linalg.inv(Y.T @ Y + l2 * np.eye(n_factors))
    for item in range(N_ITEMS):
        into[item] /= np.sqrt(into[item] @ Y[item])
    leading = np.linalg.svd(Y, full_matrices=False)[2][:n_leading].T  # (n_factors, n_leading)
    x = entering(ratings, config).toarray()
    return (x @ into @ leading @ leading.T @ Y.T) / (x @ into @ Y.T).std()


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_the_first_units_have_the_scores_of_the_factorisation(ratings, input_scale):
    start, config = started(ratings, 8, 5, input_scale=input_scale)
    W, V = start["like_weight"][:, :5], start["output_weight"][:, :5]
    scores = entering(ratings, config) @ W @ V.T
    np.testing.assert_allclose(scores, factor_scores(ratings, config, 5), atol=2e-2)


def test_the_other_units_and_weights_stay_as_drawn(ratings):
    weights, _ = drawn(8)
    before = {name: weight.copy() for name, weight in weights.items()}
    start, _ = started(ratings, 8, 5)
    for name, weight in start.items():
        is_started = name in ("like_weight", "output_weight")
        kept = slice(5, None) if is_started else slice(None)
        np.testing.assert_array_equal(weight[..., kept], before[name][..., kept])
        assert weight.dtype == np.float32
        if is_started:
            assert (weight[:, :5] != before[name][:, :5]).all()
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, before[name])  # what is given is not changed


def test_other_seeds_turn_the_factors_and_keep_their_scores(ratings):
    one, other = (started(ratings, 8, 5, seed)[0] for seed in (0, 1))
    assert np.abs(one["like_weight"][:, :5] - other["like_weight"][:, :5]).max() > 0.01
    products = [s["like_weight"][:, :5] @ s["output_weight"][:, :5].T for s in (one, other)]
    np.testing.assert_allclose(products[0], products[1], atol=1e-3)


def test_a_narrow_network_starts_with_the_leading_components(ratings):
    start, config = started(ratings, 8, 10)  # six of ten: three quarters of the units
    weights, _ = drawn(8)
    is_started = (start["like_weight"] != weights["like_weight"]).any(axis=0)
    assert is_started.tolist() == [True] * 6 + [False] * 2
    W, V = start["like_weight"][:, :6], start["output_weight"][:, :6]
    expected = factor_scores(ratings, config, 10, n_leading=6)
    np.testing.assert_allclose(entering(ratings, config) @ W @ V.T, expected, atol=2e-2)


@pytest.mark.parametrize("max_users", [41, 40, 39, 30, 20, 7])
def test_of_many_users_the_factors_are_made_from_some_evenly_spaced(ratings, max_users):
    assert ratings.shape[0] == 40
    n_used = min(max_users, 40)
    rows = [40 * number // n_used for number in range(n_used)]
    (some, _), (expected, _) = (
        started(ratings, 8, 5, max_users=max_users),
        started(ratings[rows], 8, 5),
    )
    for name, weight in expected.items():
        np.testing.assert_array_equal(some[name], weight)


@pytest.mark.parametrize("n_hidden", [1, 2, 4, 16])
def test_no_unit_starts_where_a_tanh_bends(ratings, n_hidden):
    start, config = started(ratings, n_hidden, 10)
    n_started = max(1, min(10, int(0.75 * n_hidden)))
    entered = entering(ratings, config) @ start["like_weight"][:, :n_started]
    assert np.sqrt(np.mean(entered**2)) <= 0.5 + 1e-4


@pytest.mark.parametrize("counts", [np.ones((10, N_ITEMS)), np.ones((1, N_ITEMS))])
def test_factors_that_do_not_distinguish_users_leave_the_weights_as_drawn(counts):
    start, _ = started(csr_array(counts), 8, 5)
    weights, _ = drawn(8)
    for name, weight in weights.items():
        np.testing.assert_array_equal(start[name], weight)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, True), ({"activation": "identity"}, True), ({"activation": "relu"}, False),
     ({"activation": "sigmoid"}, False), ({"n_layers": 2}, False)],
)  # fmt: skip
def test_only_one_layer_that_is_straight_at_zero_can_start_from_factors(settings, expected):
    assert can_start_from_factors(ModelConfig(N_ITEMS, **settings)) is expected
