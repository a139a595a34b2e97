from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import IALS
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, MissingExtraError

SETTINGS = {"factors": 3, "alpha0": 0.2, "regularization": 0.02, "nu": 0.7, "n_threads": 1}


def solved(weights: np.ndarray, others: np.ndarray, model: IALS) -> np.ndarray:
    """Factors of one row of weights by its normal equations, from the loss as it is written."""
    n_pairs, n_others = int((weights > 0).sum()), len(others)
    penalty = model.regularization * (n_pairs + model.alpha0 * n_others) ** model.nu
    A = penalty * np.eye(model.factors)
    b = np.zeros(model.factors)
    for weight, other in zip(weights, others, strict=True):
        A += (weight + model.alpha0) * np.outer(other, other)
        b += weight * other
    return np.linalg.solve(A, b)


@pytest.mark.parametrize("weigh_counts", [False, True])
def test_scores_solve_the_problem_of_each_user_exactly(counts, rng, weigh_counts) -> None:
    model = IALS(**SETTINGS, weigh_counts=weigh_counts, iterations=3).fit(counts)
    new_users = csr_array(rng.integers(0, 6, (5, 20)) * (rng.random((5, 20)) < 0.3) * 1.0)
    ratings = RelativeRating().fit(counts).transform(new_users).toarray()
    weights = ratings if weigh_counts else (ratings > 0).astype(float)
    Y = model.item_factors_.astype(float)
    expected = [Y @ solved(row, Y, model) for row in weights]
    np.testing.assert_allclose(model.scores(new_users), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_training_minimises_the_loss_with_frequency_scaled_penalties(counts, nu) -> None:
    model = IALS(**{**SETTINGS, "nu": nu, "regularization": 0.05}, iterations=300).fit(counts)
    likes = (counts.toarray() > 0).astype(float)
    Y = model.item_factors_.astype(float)
    X = np.stack([solved(row, Y, model) for row in likes])
    for item in range(20):
        np.testing.assert_allclose(Y[item], solved(likes[:, item], X, model), atol=2e-3)


def test_the_same_seed_gives_the_same_factors_on_any_number_of_threads(counts) -> None:
    first, second = (IALS(**{**SETTINGS, "n_threads": n}).fit(counts) for n in (1, 2))
    np.testing.assert_allclose(first.item_factors_, second.item_factors_, atol=1e-4)
    reseeded = IALS(**SETTINGS, random_state=1).fit(counts)
    assert np.abs(first.item_factors_ - reseeded.item_factors_).max() > 0.01


def test_stopping_on_the_way_equals_fitting_for_as_long(counts) -> None:
    on_the_way = list(IALS(**SETTINGS).fits(counts, [2, 3, 7]))
    assert [model.iterations for model in on_the_way] == [2, 3, 7]
    for model in on_the_way:
        alone = IALS(**SETTINGS, iterations=model.iterations).fit(counts)
        np.testing.assert_array_equal(model.scores(counts), alone.scores(counts))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factors": 0}, "factors must be a whole number of at least 1, got 0"),
        ({"regularization": 0.0}, "regularization must be above 0, got 0.0"),
        ({"alpha0": 0.0}, "alpha0 must be above 0, got 0.0"),
        ({"nu": -0.1}, "nu must be at least 0, got -0.1"),
        ({"iterations": 0}, r"at least 1 and ascending, got \[0\]"),
    ],
)
def test_invalid_settings_are_refused(counts, settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        IALS(**settings).fit(counts)


def test_without_irspack_the_message_says_how_to_install_it(counts, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "irspack.recommenders.ials", None)
    with pytest.raises(MissingExtraError, match=r"iALS baseline needs irspack; .*cfnade\[bench\]"):
        IALS().fit(counts)
