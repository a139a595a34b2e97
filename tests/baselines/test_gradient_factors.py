"""Logistic MF and BPR: what `implicit` trained is used as it is, and new users fit its loss."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from implicit.cpu.bpr import BayesianPersonalizedRanking
from implicit.lmf import LogisticMatrixFactorization
from scipy.optimize import minimize
from scipy.sparse import csr_array, csr_matrix

from cfnade.baselines import BPR, LogisticMF
from cfnade.baselines._known_users import logistic_weights
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, MissingExtraError, TrainingError

MAKERS = {
    "logistic-mf": lambda **changes: LogisticMF(**{"factors": 4, "iterations": 9, **changes}),
    "bpr": lambda **changes: BPR(**{"factors": 4, "iterations": 9, **changes}),
}
both = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def test_logistic_mf_scores_known_users_as_implicit_does(counts) -> None:
    model = LogisticMF(factors=4, alpha=2.0, regularization=0.7, iterations=9).fit(counts)
    library = LogisticMatrixFactorization(
        factors=4, regularization=0.7, iterations=9, num_threads=1, random_state=0
    )
    ratings = RelativeRating().fit(counts).transform(counts)
    library.fit(csr_matrix((2.0 * ratings).astype(np.float32)), show_progress=False)
    expected = library.user_factors @ library.item_factors.T
    np.testing.assert_allclose(model.scores(counts), expected, rtol=1e-5)


def test_bpr_scores_known_users_as_implicit_does(counts) -> None:
    model = BPR(factors=4, learning_rate=0.1, iterations=9).fit(counts)
    library = BayesianPersonalizedRanking(
        factors=4, learning_rate=0.1, iterations=9, num_threads=1, random_state=0
    )
    library.fit(csr_matrix((counts.toarray() > 0).astype(np.float32)), show_progress=False)
    expected = library.user_factors @ library.item_factors.T
    np.testing.assert_allclose(model.scores(counts), expected, rtol=1e-5)


def test_a_new_user_of_logistic_mf_minimises_its_loss(counts) -> None:
    model = LogisticMF(factors=4, alpha=5.0, regularization=0.3, negatives=2).fit(counts)
    history = csr_array(([4.0, 1.0], [2, 6], [0, 2]), shape=(1, 20))
    Y = model.item_factors_.astype(float)
    weight = 5.0 * RelativeRating().fit(counts).transform(history).toarray()[0]
    share = (counts.toarray() > 0).sum(axis=0) / counts.nnz

    def loss(free: np.ndarray) -> float:
        x, bias = free[:4], free[4]
        logit = Y[:, :4] @ x + Y[:, 4] + bias
        seen = (weight * np.log1p(np.exp(-logit))).sum()
        sampled = 4 * (share * np.log1p(np.exp(logit))).sum()  # 2 items, 2 negatives each
        return seen + sampled + 0.3 / 2 * (free @ free)

    best = minimize(loss, np.zeros(5), tol=1e-12)
    expected = Y[:, :4] @ best.x[:4] + Y[:, 4] + best.x[4]
    np.testing.assert_allclose(model.scores(history)[0], expected, atol=1e-3)


def test_a_new_user_of_bpr_puts_what_is_like_their_history_first(counts) -> None:
    model = BPR(factors=4, learning_rate=0.1, iterations=200).fit(counts)
    history = csr_array(([1.0, 1.0], [1, 7], [0, 2]), shape=(1, 20))
    scores = model.scores(history)[0]
    assert scores[1::2].mean() > scores[::2].mean() + 0.5


def test_the_weights_of_a_logistic_regression_are_where_the_gradient_is_zero(rng) -> None:
    F, offset = rng.normal(size=(30, 3)), rng.normal(size=30)
    positive, negative = rng.random(30), rng.random(30)
    w = logistic_weights(F, offset, positive, negative, l2=0.5).astype(float)

    def loss(w: np.ndarray) -> float:
        s = F @ w + offset
        return (positive * np.log1p(np.exp(-s)) + negative * np.log1p(np.exp(s))).sum() + (
            0.25 * w @ w
        )

    np.testing.assert_allclose(w, minimize(loss, np.zeros(3), tol=1e-12).x, atol=1e-4)


@both
def test_stopping_on_the_way_equals_fitting_for_as_long(counts, make) -> None:
    on_the_way = list(make().fits(counts, [2, 3, 7]))
    assert [model.iterations for model in on_the_way] == [2, 3, 7]
    for model in on_the_way:
        alone = make(iterations=model.iterations).fit(counts)
        np.testing.assert_array_equal(model.scores(counts), alone.scores(counts))


@both
def test_settings_without_meaning_are_refused(counts, make) -> None:
    with pytest.raises(ConfigError, match=r"factors of .* must be at least 1, got 0"):
        make(factors=0).fit(counts)
    with pytest.raises(ConfigError, match=r"learning_rate of .* must be above 0, got 0"):
        make(learning_rate=0.0).fit(counts)


@both
def test_factors_that_end_in_nan_stop_with_what_to_change(counts, make) -> None:
    with pytest.raises(TrainingError, match=r"ended in NaN; lower the learning rate"):
        make(learning_rate=1e38, iterations=40).fit(counts)


def test_without_implicit_the_message_says_how_to_install_it(counts, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit.lmf", None)
    monkeypatch.setitem(sys.modules, "implicit.cpu.bpr", None)
    for make in MAKERS.values():
        with pytest.raises(MissingExtraError, match=r"needs implicit; .*cfnade\[bench\]"):
            make().fit(counts)
