from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from cfnade.beyond.logistic import logistic_regression


def test_the_regression_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(500, 3)) * [1.0, 5.0, 0.1] + [0.0, 2.0, 1.0]
    logits = features @ [1.0, -0.2, 4.0] - 3.0
    is_true = rng.random(500) < 1.0 / (1.0 + np.exp(-logits))
    found = logistic_regression(features, is_true)
    weak = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000).fit(features, is_true)
    np.testing.assert_allclose(found, [*weak.intercept_, *weak.coef_[0]], rtol=0.15, atol=0.1)


def test_a_row_may_stand_for_several_and_a_constant_feature_says_nothing(rng):
    features = np.column_stack([rng.normal(size=40), np.full(40, 7.0)])
    is_true = rng.random(40) < 0.4
    n = rng.integers(1, 4, 40)
    found = logistic_regression(features, is_true, n.astype(float))
    repeated = logistic_regression(np.repeat(features, n, axis=0), np.repeat(is_true, n))
    np.testing.assert_allclose(found, repeated, atol=1e-8)
    assert found[2] == 0
