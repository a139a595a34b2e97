from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.sparse import csr_array

from cfnade.baselines.ease import item_item_weights
from cfnade.beyond import direct as module
from cfnade.beyond.direct import NeighbourRegression, non_negative_weights, regression_bytes
from cfnade.model.inference import direct_weight

L2 = 7.0
TINY = 1e-4


def regressed_one_by_one(counts, n_candidates):
    """Each item's candidates and their weights, one system at a time in float64."""
    X = (counts.toarray() > 0).astype(float)
    gram = X.T @ X
    found = []
    for item in range(len(gram)):
        others = [other for other in range(len(gram)) if other != item]
        explained = {o: gram[o, item] ** 2 / (gram[o, o] + L2) for o in others}
        best = sorted(others, key=lambda other: -explained[other])[:n_candidates]
        system = gram[np.ix_(best, best)] + L2 * np.eye(len(best))
        root = np.linalg.cholesky(system)  # b A b - 2 b y is |root' b - inv(root) y|^2 and a rest
        weights, _ = nnls(root.T, np.linalg.solve(root, gram[best, item]))
        found.append({o: w for o, w in zip(best, weights, strict=True) if w > TINY})
    return found


def as_dicts(neighbours, weight):
    rows = zip(neighbours, weight, strict=True)
    return [{o: w for o, w in zip(*row, strict=True) if w > TINY} for row in rows]


@pytest.fixture
def many_counts(rng):
    """Likes with different numbers of watchers, so that no two candidates explain as much."""
    shares = rng.uniform(0.1, 0.6, size=14)
    return csr_array((rng.random((400, 14)) < shares).astype(float))


@pytest.mark.parametrize("max_users", [None, 1000], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_candidates", [3, 8, 50])
def test_equals_one_small_regression_for_each_item(
    many_counts, n_candidates, max_users, monkeypatch
):
    monkeypatch.setattr(module, "_ITEMS", 5)  # several blocks
    regression = NeighbourRegression(many_counts, n_candidates, max_users)
    assert regression.n_candidates == min(n_candidates, 13)
    found = as_dicts(*regression.neighbours(L2, 13))
    expected = regressed_one_by_one(many_counts, n_candidates)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, abs=TINY)


def test_where_no_weight_would_be_negative_it_is_the_closed_form(rng):
    taste = rng.random((400, 1)) < 0.5  # all items of one taste: each speaks for all others
    counts = csr_array((rng.random((400, 9)) < np.where(taste, 0.8, 0.2)).astype(float))
    neighbours, weight = NeighbourRegression(counts).neighbours(L2, 8)
    closed = item_item_weights(counts, L2)
    assert (closed >= 0.0).all()
    np.testing.assert_allclose(direct_weight(neighbours, weight).toarray(), closed, atol=TINY)


def test_the_strongest_come_first_and_the_rest_is_cut(many_counts):
    regression = NeighbourRegression(many_counts)
    neighbours, weight = regression.neighbours(L2, 13)
    assert (np.diff(weight, axis=1) <= 0).all()
    few, few_weights = regression.neighbours(L2, 4)
    np.testing.assert_array_equal(few, neighbours[:, :4])
    np.testing.assert_array_equal(few_weights, weight[:, :4])


def test_a_large_catalogue_is_counted_on_some_of_many_users(many_counts):
    regression = NeighbourRegression(many_counts, max_users=200)  # of 400: every other one
    found = regression.neighbours(L2, 13)
    expected = regressed_one_by_one(many_counts[::2], 100)
    for mine, theirs in zip(as_dicts(*found), expected, strict=True):
        assert mine == pytest.approx(theirs, abs=TINY)


def test_no_other_weights_would_be_better(rng):
    watched = (rng.random((20, 60, 12)) < 0.4).astype(np.float32)
    systems = watched.transpose(0, 2, 1) @ watched + 0.5 * np.eye(12, dtype=np.float32)
    wanted = rng.normal(size=(20, 12)).astype(np.float32) * 10
    wanted[0] = 0.0
    weights = non_negative_weights(systems, wanted)
    slope = np.einsum("sij,sj->si", systems, weights) - wanted
    assert (weights[0] == 0.0).all() and (weights >= 0.0).all()
    assert (slope[weights == 0.0] > -1e-2).all()  # rising would cost
    np.testing.assert_allclose(slope[weights > 0.0], 0.0, atol=1e-3)
    assert 0.2 < (weights > 0.0).mean() < 0.8


def test_items_with_the_same_watchers_share_the_weight_whatever_the_penalty():
    counts = csr_array(np.repeat((np.arange(20_000) % 2 == 0)[:, None], 6, axis=1).astype(float))
    _, weight = NeighbourRegression(counts).neighbours(1e-6, 5)
    np.testing.assert_allclose(weight, 0.2, atol=1e-3)


@pytest.mark.parametrize("max_users", [None, 1000], ids=["dense", "sparse"])
def test_items_without_neighbours_have_themselves_with_weight_0(max_users):
    counts = csr_array([[1.0, 0.0, 2.0], [3.0, 0.0, 1.0], [1.0, 0.0, 4.0], [1.0, 0.0, 0.0]])
    regression = NeighbourRegression(counts, max_users=max_users)
    neighbours, weight = regression.neighbours(1.0, 5)  # more than there are
    assert neighbours.shape == weight.shape == (3, 5)
    assert neighbours[1].tolist() == [1] * 5 and (weight[1] == 0).all()
    assert neighbours[0].tolist() == [2, 0, 0, 0, 0] and weight[0, 0] > 0
    assert direct_weight(neighbours, weight).toarray()[2, 0] == weight[0, 0]


@pytest.mark.parametrize("max_users", [None, 1000], ids=["dense", "sparse"])
def test_items_with_one_or_two_watchers_have_no_neighbours_and_are_nobodys(many_counts, max_users):
    all_counts = many_counts.toarray()
    all_counts[:, [4, 9]] = 0.0
    all_counts[:2, 4] = all_counts[:1, 9] = 1.0
    neighbours, weight = NeighbourRegression(csr_array(all_counts), 50, max_users).neighbours(L2, 6)
    for rare in (4, 9):
        assert neighbours[rare].tolist() == [rare] * 6 and not weight[rare].any()
    others = [item for item in range(14) if item not in (4, 9)]
    assert not np.isin(neighbours[others], [4, 9]).any()
    kept, kept_weight = NeighbourRegression(csr_array(all_counts[:, others]), 50).neighbours(L2, 6)
    np.testing.assert_array_equal(neighbours[others], np.array(others)[kept])
    np.testing.assert_allclose(weight[others], kept_weight, atol=1e-6)
    all_counts[2, 4] = 1.0  # a third watcher
    _, weight = NeighbourRegression(csr_array(all_counts), 50, max_users).neighbours(L2, 6)
    assert weight[4].any()


@pytest.mark.parametrize("n_known", [0, 1])
def test_nothing_is_regressed_on_fewer_than_two_known_items(n_known):
    counts = np.zeros((5, 3))
    counts[:, :n_known] = 1.0
    neighbours, weight = NeighbourRegression(csr_array(counts)).neighbours(L2, 2)
    assert neighbours.tolist() == [[0, 0], [1, 1], [2, 2]] and not weight.any()


@pytest.mark.parametrize("max_users", [None, 1000], ids=["dense", "sparse"])
def test_where_few_items_share_watchers_others_fill_up_the_candidates_with_weight_0(rng, max_users):
    counts = np.zeros((300, 12))  # four groups of three items that share no watchers
    for group in range(4):
        counts[75 * group : 75 * (group + 1), 3 * group : 3 * (group + 1)] = rng.random(
            (75, 3)
        ) < rng.uniform(0.3, 0.8, 3)
    regression = NeighbourRegression(csr_array(counts), 7, max_users)
    candidates, weights = regression._regress(np.arange(12), np.float32(L2))
    assert candidates.shape == (12, 7)
    for item, (chosen, weight) in enumerate(zip(candidates, weights, strict=True)):
        assert item not in chosen[weight > 0] and len(set(chosen)) > 2
    found = as_dicts(*regression.neighbours(L2, 7))
    for item, (mine, theirs) in enumerate(
        zip(found, regressed_one_by_one(csr_array(counts), 7), strict=True)
    ):
        assert mine == pytest.approx(theirs, abs=TINY)
        assert {other // 3 for other in mine} <= {item // 3}


def test_the_number_of_threads_changes_nothing(many_counts, monkeypatch):
    monkeypatch.setattr(module, "_ITEMS", 3)  # several blocks
    one, two = (NeighbourRegression(many_counts, n_threads=n).neighbours(L2, 8) for n in (1, 2))
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("max_users", [None, 1000], ids=["dense", "sparse"])
def test_the_memory_that_is_planned_is_enough(rng, max_users):
    likes = rng.random((800, 3000)) < 0.02 * rng.random(3000)
    counts = csr_array(likes.astype(np.float32))
    tracemalloc.start()
    NeighbourRegression(counts, 20, max_users, n_threads=1).neighbours(L2, 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    planned = regression_bytes(800, 3000, counts.nnz, 20, max_users)
    assert planned / 8 < peak <= planned


def test_a_large_catalogue_takes_less_memory_without_an_array_of_all_pairs():
    size = {"n_users": 100_000, "n_items": 50_000, "n_pairs": 3_000_000, "n_candidates": 100}
    dense, sparse = (regression_bytes(**size, max_users=users) for users in (None, 50_000))
    assert 4 * 50_000**2 < dense < 11 * 10**9 and sparse < dense / 10
