from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond.factors import (
    FACTOR_ALPHAS,
    als_item_factors,
    largest_singular_value,
    n_factors_for,
    solve_rows,
    usual_factor_alpha,
)
from tests.networks import random_counts


def confidences(n_users: int = 30, n_items: int = 12, density: float = 0.3) -> csr_array:
    counts = random_counts(n_users, n_items, density)
    counts.data = 1.0 + counts.data
    return counts


def cost(confidence, users, items, l2: float) -> float:
    """What is minimised, as plain loops."""
    C = confidence.toarray()
    total = l2 * float((users**2).sum() + (items**2).sum())
    for user in range(C.shape[0]):
        for item in range(C.shape[1]):
            c, t = (C[user, item], 1.0) if C[user, item] > 0 else (1.0, 0.0)
            total += c * (t - float(users[user] @ items[item])) ** 2
    return total


@pytest.mark.parametrize("n_factors", [2, 5, 40], ids=["more likes", "as many", "fewer likes"])
def test_rows_are_where_the_cost_is_least(n_factors):
    confidence, rng = confidences(), np.random.default_rng(0)
    others = rng.normal(size=(12, n_factors)).astype(np.float32)
    found = solve_rows(confidence, others, 3.0)
    C = confidence.toarray()
    for user in range(len(C)):
        weight = np.where(C[user] > 0, C[user], 1.0)
        normal = (others.T * weight) @ others + 3.0 * np.eye(n_factors)
        expected = np.linalg.solve(normal, others.T @ (weight * (C[user] > 0)))
        np.testing.assert_allclose(found[user], expected, atol=1e-4)


def test_confidences_of_one_are_solved_as_well():
    confidence = confidences()
    confidence.data[:] = 1.0
    others = np.random.default_rng(0).normal(size=(12, 20)).astype(np.float32)
    likes = confidence.toarray()
    expected = np.linalg.solve(others.T @ others + 2.0 * np.eye(20), others.T @ likes.T).T
    np.testing.assert_allclose(solve_rows(confidence, others, 2.0), expected, atol=1e-4)


def test_iterations_lower_the_cost():
    confidence = confidences()
    costs = []
    for n_iterations in (1, 2, 5, 20):
        items = als_item_factors(confidence, 4, 0.5, n_iterations, np.random.default_rng(0))
        costs.append(cost(confidence, solve_rows(confidence, items, 0.5), items, 0.5))
    assert costs == sorted(costs, reverse=True) and costs[-1] < costs[0]


def test_nobody_s_item_has_no_factors_and_nobody_s_history_neither():
    confidence = confidences().toarray()
    confidence[:, 3] = confidence[5] = 0.0
    items = als_item_factors(csr_array(confidence), 4, 0.5, 5, np.random.default_rng(0))
    assert not items[3].any() and items[2].any()
    assert not solve_rows(csr_array(confidence), items, 0.5)[5].any()


def test_all_factors_are_nothing_from_the_largest_singular_value_on():
    confidence = confidences()
    largest = largest_singular_value(confidence)
    assert largest == pytest.approx(np.linalg.svd(confidence.toarray())[1][0], rel=1e-4)
    for l2, is_nothing in ((1.2 * largest, True), (0.3 * largest, False)):
        items = als_item_factors(confidence, 3, l2, 60, np.random.default_rng(0))
        assert (np.abs(items).max() < 1e-6) == is_nothing
    assert largest_singular_value(csr_array((3, 4))) == 0.0


@pytest.mark.parametrize(
    ("n_watchers", "alpha"), [(300, 10.0), (130, 10.0), (60, 30.0), (35, 100.0), (4, 1000.0)]
)
def test_few_watchers_are_given_more_confidence(n_watchers, alpha):
    assert usual_factor_alpha(50 * n_watchers, 50) == alpha


def test_nobody_at_all_has_a_usual_alpha_as_well():
    assert usual_factor_alpha(0, 0) == FACTOR_ALPHAS[-1]


def test_there_are_more_factors_where_items_have_few_watchers_but_never_more_than_data():
    assert n_factors_for(19_000, 2_000, 1_025) == 512
    assert n_factors_for(40_000, 2_000, 1_024) == 256
    assert n_factors_for(40_000, 100, 1_024) == 50 and n_factors_for(1, 1, 1) == 1
