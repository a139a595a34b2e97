from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import IMF
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, DataError, MissingExtraError, TrainingError


@pytest.fixture
def model(counts) -> IMF:
    return IMF(factors=8, alpha=40.0, regularization=2.0, iterations=5, n_threads=1).fit(counts)


def user_factors_by_the_normal_equations(model: IMF, ratings: np.ndarray) -> np.ndarray:
    """Solve (Y^T C Y + regularization I) x = Y^T C p for one user, with the paper's C."""
    Y = model.als_.item_factors.astype(float)  # (n_items, factors)
    C = np.diag(1.0 + model.alpha * ratings)  # exactly 1 where unobserved
    p = (ratings > 0).astype(float)
    return np.linalg.solve(Y.T @ C @ Y + model.regularization * np.eye(8), Y.T @ C @ p)


def test_scores_solve_the_least_squares_problem_of_each_user_exactly(model, counts, rng) -> None:
    new_users = csr_array(rng.integers(0, 6, (5, 20)) * (rng.random((5, 20)) < 0.3) * 1.0)
    ratings = RelativeRating().fit(counts).transform(new_users).toarray()
    expected = [
        model.als_.item_factors @ user_factors_by_the_normal_equations(model, row)
        for row in ratings
    ]
    np.testing.assert_allclose(model.scores(new_users), expected, rtol=1e-4, atol=1e-5)


def test_training_minimises_the_loss_with_the_confidence_of_the_paper(counts) -> None:
    # At the minimum each item's factors solve its own normal equations, given the users'. A small
    # alpha makes the 1 of 1 + alpha r matter.
    model = IMF(factors=3, alpha=1.0, regularization=2.0, iterations=100, n_threads=1).fit(counts)
    ratings = RelativeRating().fit(counts).transform(counts).toarray()
    C, p = 1.0 + 1.0 * ratings, (ratings > 0).astype(float)
    Y = model.als_.item_factors.astype(float)
    X = np.stack(
        [
            np.linalg.solve(Y.T @ np.diag(c) @ Y + 2.0 * np.eye(3), Y.T @ (c * liked))
            for c, liked in zip(C, p, strict=True)
        ]
    )
    for item in range(20):
        c, liked = C[:, item], p[:, item]
        expected = np.linalg.solve(X.T @ np.diag(c) @ X + 2.0 * np.eye(3), X.T @ (c * liked))
        np.testing.assert_allclose(Y[item], expected, atol=1e-4)


def test_the_same_seed_gives_the_same_factors_on_any_number_of_threads(counts) -> None:
    models = [IMF(factors=8, n_threads=n).fit(counts) for n in (1, 2, 2)]
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].als_.item_factors, other.als_.item_factors)
    reseeded = IMF(factors=8, random_state=1).fit(counts)
    assert not np.array_equal(models[0].als_.item_factors, reseeded.als_.item_factors)


def test_stopping_on_the_way_equals_fitting_for_as_long(counts) -> None:
    settings = {"factors": 8, "alpha": 10.0, "regularization": 3.0, "n_threads": 1}
    on_the_way = list(IMF(**settings).fits(counts, [2, 3, 7]))
    assert [model.iterations for model in on_the_way] == [2, 3, 7]
    for model in on_the_way:
        alone = IMF(**settings, iterations=model.iterations).fit(counts)
        np.testing.assert_array_equal(model.scores(counts), alone.scores(counts))


def test_a_fitted_relative_rating_is_used_as_it_is(counts) -> None:
    other = RelativeRating().fit(counts + counts.astype(bool))
    given, own = IMF(factors=4, relative_rating=other, n_threads=1), IMF(factors=4, n_threads=1)
    assert given.fit(counts).relative_rating_ is other
    assert own.fit(counts).relative_rating_ is not other
    assert not np.array_equal(given.scores(counts), own.scores(counts))


def test_an_empty_history_has_no_opinion(model) -> None:
    assert (model.scores(csr_array((2, 20))) == 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factors": 0}, "factors must be a whole number of at least 1, got 0"),
        ({"regularization": 0.0}, "regularization must be above 0, got 0.0"),
        ({"alpha": -1.0}, "alpha must be at least 0, got -1.0"),
        ({"iterations": 0}, r"at least 1 and ascending, got \[0\]"),
    ],
)
def test_invalid_settings_are_refused(counts, settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        IMF(**settings).fit(counts)


def test_stops_must_be_ascending(counts) -> None:
    with pytest.raises(ConfigError, match=r"ascending, got \[5, 5\]"):
        next(IMF().fits(counts, [5, 5]))


def test_factors_that_end_in_nan_stop_with_what_to_change(counts) -> None:
    with pytest.raises(TrainingError, match=r"4 factors ended in NaN; raise the regularization"):
        IMF(factors=4, alpha=1e38).fit(counts)


def test_histories_over_other_items_are_refused(model, counts) -> None:
    with pytest.raises(DataError, match="fitted on 20 items, the histories have 19"):
        model.scores(counts[:, :19])


def test_without_implicit_the_message_says_how_to_install_it(counts, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit.als", None)
    with pytest.raises(MissingExtraError, match=r"IMF baseline needs implicit; .*cfnade\[bench\]"):
        IMF().fit(counts)
