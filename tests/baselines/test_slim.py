from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet

from cfnade.baselines import SLIM
from cfnade.errors import ConfigError


def test_each_column_is_a_non_negative_elastic_net_without_the_item_itself(counts) -> None:
    X = (counts.toarray() > 0).astype(float)
    l1, l2 = 2.0, 5.0
    B = SLIM(l1=l1, l2=l2, max_passes=2000, tolerance=1e-8, n_threads=1).fit(counts).item_weights_
    for column in range(20):
        others = np.delete(np.arange(20), column)
        net = ElasticNet(
            alpha=(l1 + l2) / 60,
            l1_ratio=l1 / (l1 + l2),
            fit_intercept=False,
            positive=True,
            tol=1e-8,
            max_iter=10_000,
        ).fit(X[:, others], X[:, column])
        np.testing.assert_allclose(B.toarray()[others, column], net.coef_, atol=1e-4)
        assert B[column, column] == 0.0


def test_a_larger_l1_leaves_fewer_neighbours(counts) -> None:
    few, many = (SLIM(l1=l1, l2=1.0, n_threads=1).fit(counts) for l1 in (5.0, 0.1))
    assert few.item_weights_.nnz < many.item_weights_.nnz
    assert (many.item_weights_.data > 0).all()


def test_invalid_settings_are_refused(counts) -> None:
    with pytest.raises(ConfigError, match="l1 must be above 0, got 0"):
        SLIM(l1=0.0).fit(counts)
