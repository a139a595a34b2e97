from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import EASE, EDLAE
from cfnade.errors import ConfigError, TrainingError


def test_each_column_is_the_best_prediction_from_histories_with_a_part_hidden(counts) -> None:
    # Given its inputs, entry i of column j is asked for over all ways to hide a share p of x, with
    # x_j hidden: that is ridge regression with n_i p / (1 - p) added for what comes and goes.
    X = (counts.toarray() > 0).astype(float)
    p, l2 = 0.4, 2.0
    B = EDLAE(regularization=l2, dropout=p).fit(counts).item_weights_
    for column in range(20):
        others = np.delete(np.arange(20), column)
        gram = X[:, others].T @ X[:, others]
        gram += np.diag(l2 + p / (1 - p) * np.diag(gram))
        expected = np.linalg.solve(gram, X[:, others].T @ X[:, column])
        np.testing.assert_allclose(B[others, column], expected, atol=3e-6)
        assert B[column, column] == 0.0


def test_without_dropout_it_is_ease(counts) -> None:
    edlae, ease = EDLAE(regularization=3.0, dropout=0.0), EASE(regularization=3.0)
    np.testing.assert_array_equal(edlae.fit(counts).item_weights_, ease.fit(counts).item_weights_)


def test_settings_without_meaning_and_huge_catalogues_are_refused(counts) -> None:
    with pytest.raises(ConfigError, match="dropout of EDLAE must be at least 0 and below 1, got 1"):
        EDLAE(dropout=1.0).fit(counts)
    with pytest.raises(ConfigError, match="regularization of EDLAE must be above 0, got 0"):
        EDLAE(regularization=0.0).fit(counts)
    with pytest.raises(TrainingError, match=r"EDLAE needs 160\.0 GB for 200,000 items, above"):
        EDLAE().fit(csr_array((3, 200_000)))
