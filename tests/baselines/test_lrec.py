from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from cfnade.baselines import LRec
from cfnade.errors import ConfigError


def test_the_squared_loss_is_a_ridge_regression_for_each_user(counts) -> None:
    X = (counts.toarray() > 0).astype(float)
    scores = LRec(regularization=4.0).fit(counts).scores(counts)
    for user in (0, 7):
        features = X.T  # an example for each item, a feature for each user
        weights = np.linalg.solve(features.T @ features + 4.0 * np.eye(60), features.T @ X[user])
        np.testing.assert_allclose(scores[user], features @ weights, atol=1e-4)


def test_the_logistic_loss_is_a_logistic_regression_for_each_user(counts) -> None:
    X = (counts.toarray() > 0).astype(float)
    model = LRec(regularization=0.5, loss="logistic", steps=2000).fit(counts)
    scores = model.scores(counts)
    for user in (0, 7):
        regression = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(X.T, X[user])
        expected = regression.decision_function(X.T)
        np.testing.assert_allclose(scores[user], expected, atol=2e-3)


def test_sixty_steps_rank_nearly_as_many_do(counts) -> None:
    few, many = (
        LRec(regularization=1.0, loss="logistic", steps=steps).fit(counts).scores(counts)
        for steps in (60, 2000)
    )
    assert np.corrcoef(few.ravel(), many.ravel())[0, 1] > 0.999


def test_fewer_singular_vectors_are_those_of_the_best_low_rank_likes(counts) -> None:
    X = (counts.toarray() > 0).astype(float)
    U, S, Vt = np.linalg.svd(X, full_matrices=False)
    low = (U[:, :3] * S[:3]) @ Vt[:3]  # scores of t depend on X through its features alone
    gram = low.T @ low
    expected = X @ np.linalg.solve(gram + 2.0 * np.eye(20), gram)
    by_svds = LRec(regularization=2.0, rank=3).fit(counts)
    by_svd = LRec(regularization=2.0, rank=12).fit(counts)
    by_svd.features_, by_svd.lengths_ = by_svd.features_[:, :3], by_svd.lengths_[:3]
    for model in (by_svds, by_svd):
        np.testing.assert_allclose(model.scores(counts), expected, atol=1e-4)


def test_invalid_settings_are_refused(counts) -> None:
    with pytest.raises(ConfigError, match="loss must be one of squared, logistic; got 'hinge'"):
        LRec(loss="hinge").fit(counts)
    with pytest.raises(ConfigError, match="regularization must be above 0, got 0"):
        LRec(regularization=0.0).fit(counts)
