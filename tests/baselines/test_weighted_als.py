from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import IMF, ImputedALS, WeightedALS
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError

FEW = {"factors": 3, "n_threads": 1}


def pair_weights(likes: np.ndarray, known: np.ndarray, weight: float, scheme: str) -> np.ndarray:
    """The weight of every pair, by the definition of each scheme; `known` are those of training."""
    weights = np.ones(likes.shape)
    for user, row in enumerate(likes):
        for item, like in enumerate(row):
            if like:
                continue
            share = 1.0
            if scheme == "user":
                share = row.sum() / known.sum(axis=1).mean()
            unobserved = weight * min(share, 1.0 / weight)
            if scheme == "item":
                missing = (1 - known).sum(axis=0)
                unobserved *= missing[item] / missing.mean()
            weights[user, item] = unobserved
    return weights


def solved(values: np.ndarray, weights: np.ndarray, others: np.ndarray, penalty: float):
    """Factors of one row by its normal equations, from the loss as it is written."""
    A, b = (penalty + 1e-9) * np.eye(others.shape[1]), np.zeros(others.shape[1])
    for value, weight, other in zip(values, weights, others, strict=True):
        A += weight * np.outer(other, other)
        b += weight * value * other
    return np.linalg.solve(A, b)


def new_users(rng: np.random.Generator) -> csr_array:
    """Five histories that nobody has, the last one empty."""
    histories = rng.integers(0, 6, (5, 20)) * (rng.random((5, 20)) < 0.3) * 1.0
    histories[4] = 0
    return csr_array(histories)


@pytest.mark.parametrize("scheme", ["uniform", "user", "item"])
def test_weighted_scores_solve_the_problem_of_each_user_exactly(counts, rng, scheme) -> None:
    model = WeightedALS(**FEW, scheme=scheme, weight=0.2, regularization=0.05, iterations=3)
    model.fit(counts)
    known, histories = (counts.toarray() > 0) * 1.0, new_users(rng)
    likes = (histories.toarray() > 0) * 1.0
    Y = model.item_factors_.astype(float)
    weights = pair_weights(likes, known, 0.2, scheme)
    expected = [Y @ solved(t, w, Y, 0.05 * w.sum()) for t, w in zip(likes, weights, strict=True)]
    np.testing.assert_allclose(model.scores(histories), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("scheme", ["uniform", "user", "item"])
def test_weighted_training_minimises_the_loss_for_items_too(counts, scheme) -> None:
    model = WeightedALS(**FEW, scheme=scheme, weight=0.2, regularization=0.1, iterations=300)
    model.fit(counts)
    likes = (counts.toarray() > 0) * 1.0
    weights = pair_weights(likes, likes, 0.2, scheme)
    Y = model.item_factors_.astype(float)
    X = np.stack([solved(t, w, Y, 0.1 * w.sum()) for t, w in zip(likes, weights, strict=True)])
    for item in range(20):
        w = weights[:, item]
        expected = solved(likes[:, item], w, X, 0.1 * w.sum())
        np.testing.assert_allclose(Y[item], expected, atol=2e-3)


def test_imputed_training_and_scores_minimise_the_loss(counts, rng) -> None:
    settings = {"weight": 0.2, "imputed": 0.1, "regularization": 2.0, "iterations": 300}
    model = ImputedALS(**FEW, **settings).fit(counts)

    def loss_parts(likes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.where(likes > 0, 1.0, 0.1), np.where(likes > 0, 1.0, 0.2)

    values, weights = loss_parts(counts.toarray())
    Y = model.item_factors_.astype(float)
    X = np.stack([solved(t, w, Y, 2.0) for t, w in zip(values, weights, strict=True)])
    for item in range(20):
        expected = solved(values[:, item], weights[:, item], X, 2.0)
        np.testing.assert_allclose(Y[item], expected, atol=2e-3)
    histories = new_users(rng)
    values, weights = loss_parts(histories.toarray())
    expected = [Y @ solved(t, w, Y, 2.0) for t, w in zip(values, weights, strict=True)]
    np.testing.assert_allclose(model.scores(histories), expected, rtol=1e-3, atol=1e-5)


def test_without_imputed_values_users_get_what_imf_gives_them(counts) -> None:
    weight, penalty = 0.1, 3.0
    likes = csr_array((np.ones(counts.nnz), counts.indices, counts.indptr), shape=counts.shape)
    settings = {"weight": weight, "imputed": 0.0, "regularization": penalty * weight}
    model = ImputedALS(**FEW, **settings).fit(likes)
    imf = IMF(3, 1.0 / weight - 1.0, penalty, relative_rating=RelativeRating().fit(likes))
    imf.fit(likes).als_.item_factors = model.item_factors_
    np.testing.assert_allclose(model.scores(likes), imf.scores(likes), atol=1e-4)


@pytest.mark.parametrize("kind", [WeightedALS, ImputedALS])
def test_stops_seeds_and_threads(counts, kind) -> None:
    on_the_way = list(kind(**FEW).fits(counts, [2, 5]))
    assert [model.iterations for model in on_the_way] == [2, 5]
    for model in on_the_way:
        alone = kind(factors=3, n_threads=2, iterations=model.iterations).fit(counts)
        np.testing.assert_array_equal(model.scores(counts), alone.scores(counts))
    reseeded = kind(**FEW, random_state=1).fit(counts)
    assert np.abs(reseeded.item_factors_ - on_the_way[1].item_factors_).max() > 0.01


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (WeightedALS(factors=0), "factors must be a whole number of at least 1"),
        (WeightedALS(weight=0.0), "weight must be above 0, got 0"),
        (WeightedALS(weight=1.0), "weight must be at least 0 and below 1"),
        (WeightedALS(scheme="both"), "scheme must be"),
        (WeightedALS(regularization=0.0), "regularization must be above 0"),
        (ImputedALS(imputed=1.0), "imputed must be at least 0 and below 1"),
        (ImputedALS(iterations=0), "at least 1 and ascending"),
    ],
)
def test_invalid_settings_are_refused(counts, model, message) -> None:
    with pytest.raises(ConfigError, match=message):
        model.fit(counts)
