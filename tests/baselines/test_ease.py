from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import EASE, EDLAE
from cfnade.baselines.ease import item_item_weights, shared_gram
from cfnade.errors import ConfigError, DataError, TrainingError


def test_weights_follow_the_closed_form(counts) -> None:
    X = (counts.toarray() > 0).astype(float)
    P = np.linalg.inv(X.T @ X + 3.0 * np.eye(20))
    expected = np.array(
        [[0.0 if i == j else -P[i, j] / P[j, j] for j in range(20)] for i in range(20)]
    )
    np.testing.assert_allclose(
        EASE(regularization=3.0).fit(counts).item_weights_, expected, atol=2e-6
    )


def test_no_small_change_of_the_weights_lowers_the_penalised_error(counts, rng) -> None:
    X = (counts.toarray() > 0).astype(float)

    def penalised_error(B: np.ndarray) -> float:
        return ((X - X @ B) ** 2).sum() + 5.0 * (B**2).sum()

    B = EASE(regularization=5.0).fit(counts).item_weights_.astype(float)
    assert (np.diag(B) == 0).all()
    for _ in range(20):
        step = rng.normal(0, 0.01, B.shape)
        np.fill_diagonal(step, 0.0)
        assert penalised_error(B + step) > penalised_error(B)


def test_the_gram_matrix_can_be_made_in_parts(counts, monkeypatch) -> None:
    whole = EASE().fit(counts).item_weights_
    monkeypatch.setattr("cfnade.beyond.direct._GRAM_ROWS", 7)
    np.testing.assert_array_equal(EASE().fit(counts).item_weights_, whole)


def test_scores_add_up_the_weights_of_the_history_whatever_the_counts(counts) -> None:
    model = EASE().fit(counts)
    history = csr_array(([5.0, 1.0], [2, 7], [0, 2]), shape=(1, 20))
    expected = model.item_weights_[2] + model.item_weights_[7]
    np.testing.assert_allclose(model.scores(history)[0], expected, rtol=1e-6)


def test_items_nobody_touched_get_no_weight() -> None:
    weights = EASE().fit(csr_array([[1.0, 1, 0], [1, 0, 0]])).item_weights_
    assert np.isfinite(weights).all()
    assert (weights[2] == 0).all()
    assert (weights[:, 2] == 0).all()


def test_a_huge_catalogue_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(TrainingError, match=r"EASE needs 160\.0 GB for 200,000 items, above"):
        EASE().fit(csr_array((3, 200_000)))


@pytest.mark.parametrize("regularization", [0.0, -1.0, np.nan, np.inf])
def test_an_invalid_regularization_is_refused(counts, regularization) -> None:
    with pytest.raises(ConfigError, match="regularization must be"):
        EASE(regularization=regularization).fit(counts)


def test_a_regularization_too_small_to_invert_says_so() -> None:
    twins = csr_array(np.ones((50, 8)))
    with pytest.raises(TrainingError, match="raise the regularization"):
        EASE(regularization=1e-9).fit(twins)


def test_histories_over_other_items_are_refused(counts) -> None:
    with pytest.raises(DataError, match="fitted on 20 items, the histories have 19"):
        EASE().fit(counts).scores(counts[:, :19])


def test_each_column_of_edlae_is_the_best_prediction_from_histories_with_a_part_hidden(
    counts,
) -> None:
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


def test_edlae_without_dropout_is_ease(counts) -> None:
    edlae, ease = EDLAE(regularization=3.0, dropout=0.0), EASE(regularization=3.0)
    np.testing.assert_array_equal(edlae.fit(counts).item_weights_, ease.fit(counts).item_weights_)


def test_edlae_refuses_invalid_settings_and_huge_catalogues(counts) -> None:
    with pytest.raises(ConfigError, match="dropout must be at least 0 and below 1, got 1"):
        EDLAE(dropout=1.0).fit(counts)
    with pytest.raises(ConfigError, match="regularization must be above 0, got 0"):
        EDLAE(regularization=0.0).fit(counts)
    with pytest.raises(TrainingError, match=r"EDLAE needs 160\.0 GB for 200,000 items, above"):
        EDLAE().fit(csr_array((3, 200_000)))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_weights_equal_the_closed_form_in_float64(counts, dropout):
    X = (counts.toarray() > 0).astype(float)
    gram = X.T @ X
    penalty = 7.0 + np.diag(gram) * dropout / (1 - dropout)
    P = np.linalg.inv(gram + np.diag(penalty))
    expected = -P / np.diag(P)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(item_item_weights(counts, 7.0, dropout), expected, atol=1e-5)


def test_without_dropout_no_other_weights_with_a_zero_diagonal_fit_better(counts, rng):
    X = (counts.toarray() > 0).astype(float)

    def cost(B):
        return ((X - X @ B) ** 2).sum() + 7.0 * (B**2).sum()

    best = item_item_weights(counts, 7.0).astype(float)
    for _ in range(20):
        other = best + 0.01 * rng.normal(size=best.shape)
        np.fill_diagonal(other, 0.0)
        assert cost(best) < cost(other)


@pytest.mark.parametrize("model", [EASE, EDLAE])
def test_several_fits_may_share_the_gram_matrix(counts, model):
    gram = shared_gram(counts)
    for l2 in (3.0, 30.0):
        alone = model(regularization=l2).fit(counts)
        shared = model(regularization=l2, gram=gram).fit(counts)
        np.testing.assert_array_equal(alone.item_weights_, shared.item_weights_)
    assert shared_gram(csr_array((3, 16_000))) is None  # two such arrays are above the limit


def test_items_without_watchers_get_no_weight():
    weights = item_item_weights(csr_array(np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 1.0]])), 1.0)
    assert (weights[1] == 0).all() and (weights[:, 1] == 0).all()
