from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.factors import item_scores
from cfnade.beyond.low_rank_start import start_with_neighbours
from tests.networks import random_counts, random_numpy_network

N_ITEMS, N_FACTORS, GAIN = 20, 4, 10.0


@pytest.fixture
def ratings():
    counts = random_counts(40, N_ITEMS, 0.3)
    counts.data = 1.0 - 0.9 * np.random.default_rng(0).random(counts.nnz)
    return counts


def started(ratings, n_hidden: int, seed: int = 0):
    network = random_numpy_network(N_ITEMS, n_hidden, n_neighbours=0, input_scale="history")
    scores = item_scores(
        ratings, network.config, n_factors=N_FACTORS, alpha=10.0, max_users=99, n_iterations=15
    )
    found = NeighbourRegression(ratings, 5, n_threads=1).neighbours(1.0, 5)
    start = start_with_neighbours(network.weights, network.config, scores, found, seed=seed)
    return network.weights, start, scores, found


def wanted(ratings, scores, found) -> np.ndarray:
    """What each like adds to the scores, by plain loops: factors, and neighbours like likes."""
    X, likes = scores.histories.toarray(), (ratings.toarray() > 0).astype(float)
    B = np.zeros((N_ITEMS, N_ITEMS))
    for item in range(N_ITEMS):
        for neighbour, weight in zip(found[0][item], found[1][item], strict=True):
            B[neighbour, item] += weight
    of_factors = scores.into.astype(float) @ scores.items.T
    return of_factors / (X @ of_factors).std() + B * GAIN * (likes @ B).std() / (X @ B).std()


def test_with_enough_units_the_start_has_all_scores(ratings):
    _, start, scores, found = started(ratings, 30)  # 90 % of the units, but no more than items
    product = start["like_weight"][:, :20] @ start["output_weight"][:, :20].T
    M = wanted(ratings, scores, found)
    np.testing.assert_allclose(product, M, atol=2e-2 * np.abs(M).max())


@pytest.mark.parametrize("n_hidden", [2, 5, 10])
def test_with_few_units_no_other_start_is_closer_to_the_scores_of_the_histories(ratings, n_hidden):
    _, start, scores, found = started(ratings, n_hidden)
    n_started = max(1, int(0.9 * n_hidden))
    X = scores.histories.toarray()
    all_scores = X @ wanted(ratings, scores, found)
    kept = X @ start["like_weight"][:, :n_started] @ start["output_weight"][:, :n_started].T
    lost = np.linalg.svd(all_scores, compute_uv=False)[n_started:]
    error = np.linalg.norm(all_scores - kept)
    assert error == pytest.approx(np.sqrt((lost**2).sum()), rel=0.02)


def test_what_enters_a_unit_is_spread_as_planned_and_the_others_stay_as_drawn(ratings):
    drawn, start, scores, _ = started(ratings, 10)
    W = start["like_weight"][:, :9]
    assert np.sqrt(np.mean((scores.histories @ W) ** 2)) == pytest.approx(0.25, rel=1e-3)
    gram = W.T @ W
    np.testing.assert_allclose(gram, gram[0, 0] * np.eye(9), atol=1e-4 * gram[0, 0])
    for name, weight in start.items():
        kept = slice(9, None) if name in ("like_weight", "output_weight") else slice(None)
        np.testing.assert_array_equal(weight[..., kept], drawn[name][..., kept])
        assert weight.dtype == np.float32


def test_other_seeds_turn_the_units_and_keep_their_scores(ratings):
    one, other = (started(ratings, 10, seed)[1] for seed in (0, 1))
    assert np.abs(one["like_weight"][:, :9] - other["like_weight"][:, :9]).max() > 0.01
    products = [s["like_weight"][:, :9] @ s["output_weight"][:, :9].T for s in (one, other)]
    np.testing.assert_allclose(*products, atol=2e-2 * np.abs(products[0]).max())


@pytest.mark.parametrize("counts", [np.ones((10, N_ITEMS)), np.ones((1, N_ITEMS))])
def test_factors_that_do_not_distinguish_users_leave_the_weights_as_drawn(counts):
    drawn, start, _, _ = started(csr_array(counts), 8)
    for name, weight in drawn.items():
        np.testing.assert_array_equal(start[name], weight)
