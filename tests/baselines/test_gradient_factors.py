"""What BPR and logistic MF have in common."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from cfnade.baselines import BPR, LogisticMF
from cfnade.baselines.gradient_factors import logistic_weights
from cfnade.errors import ConfigError, MissingExtraError, TrainingError

MAKERS = {
    "logistic-mf": lambda **changes: LogisticMF(**{"factors": 4, "iterations": 9, **changes}),
    "bpr": lambda **changes: BPR(**{"factors": 4, "iterations": 9, **changes}),
}
both = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


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
def test_invalid_settings_are_refused(counts, make) -> None:
    with pytest.raises(ConfigError, match=r"factors must be a whole number of at least 1, got 0"):
        make(factors=0).fit(counts)
    with pytest.raises(ConfigError, match=r"learning_rate must be above 0, got 0"):
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


@both
def test_a_known_history_gets_its_trained_vector_and_others_a_new_one(
    counts, make, monkeypatch
) -> None:
    model = make().fit(counts)
    monkeypatch.setattr(model, "_new_user", lambda history: -model.user_factors_[0])
    new = np.vstack([np.ones((1, 20)), np.zeros((1, 20))])
    found = model.scores(csr_array(np.vstack([counts[[5]].toarray(), new])))
    users = np.stack([model.user_factors_[5], *[-model.user_factors_[0]] * 2])
    np.testing.assert_allclose(found, users @ model.item_factors_.T, rtol=1e-5)


def test_of_users_with_one_history_the_first_counts(counts) -> None:
    twins = csr_array(np.vstack([counts.toarray(), counts[[5]].toarray()]))
    model = BPR(factors=4, iterations=3).fit(twins)
    expected = model.user_factors_[5] @ model.item_factors_.T
    np.testing.assert_allclose(model.scores(counts[[5]])[0], expected, rtol=1e-5)
