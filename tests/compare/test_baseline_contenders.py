from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import IALS, ItemKNN
from cfnade.compare.baseline_contenders import BASELINES, GridContender, ials_regularization
from cfnade.compare.contenders import contender
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.data.interactions import Interactions
from cfnade.data.splitting import hold_out
from cfnade.metrics.search import Validation


@pytest.fixture(scope="module")
def protocol() -> Protocol:
    from tests.test_estimator import group_counts

    return Protocol(Interactions.from_matrix(group_counts()))


@pytest.mark.parametrize("name", BASELINES)
def test_each_baseline_can_be_searched_fitted_and_tested(protocol, name) -> None:
    search = BASELINES[name](0).search(protocol.validation, max_trials=2)
    assert len(search.trials) == 2
    assert all(math.isfinite(trial.cost) for trial in search.trials)
    fitted = BASELINES[name](0).fit(protocol.known, search.best.settings, None)
    assert protocol.test(fitted).metrics["mpr"] < 50


@pytest.mark.parametrize("name", BASELINES)
def test_every_start_is_in_its_grid_with_room_on_the_way(name) -> None:
    contender = BASELINES[name](0)
    for setting, values in contender.grid.items():
        assert contender.start[setting] in values
        assert len(set(values)) == len(values) >= 2
    assert list(contender.stops) == sorted(contender.stops)


def test_the_stop_with_the_lowest_mpr_is_chosen_and_fitted_for_as_long(protocol) -> None:
    contender = GridContender(
        IALS,
        {"factors": 2, "regularization": 1e-3},
        {"regularization": (1e-3,)},
        stops=(1, 2, 3),
        fixed={"random_state": 3},
        uses_ratings=True,
    )
    best = contender.search(protocol.validation, max_trials=1).best
    train = protocol.validation.train
    by_stop = {
        stop: protocol.validation.mpr(
            IALS(2, regularization=1e-3, random_state=3, iterations=stop).fit(train)
        )
        for stop in (1, 2, 3)
    }
    assert best.cost == min(by_stop.values())
    assert best.settings["iterations"] == min(by_stop, key=by_stop.get)


def test_a_fit_is_not_followed_further_once_it_gets_worse(protocol) -> None:
    judged = []

    class Worsening:
        def fits(self, counts, stops):
            for stop in stops:
                judged.append(stop)
                yield Fitted(stop)

    class Fitted:
        def __init__(self, stop: int) -> None:
            self.iterations = stop

        def scores(self, histories):
            """Right at first, then ever more at random."""
            noise = np.random.default_rng(0).random(histories.shape)
            truth = (protocol.validation.train + protocol.validation.held_out).toarray()
            rows = np.flatnonzero(np.diff(protocol.validation.held_out.indptr))
            return truth[rows] / self.iterations**2 + noise * self.iterations

    contender = GridContender(Worsening, {}, {}, stops=(1, 2, 4, 8, 16, 32))
    search = contender.search(protocol.validation, max_trials=1)
    assert search.best.settings == {"iterations": 1}
    assert judged == [1, 2, 4]


def test_ratings_of_all_pairs_reach_the_models_that_weigh_counts(protocol) -> None:
    from tests.test_estimator import group_counts

    config = ProtocolConfig(ratings_from="all")
    everything = Protocol(Interactions.from_matrix(group_counts()), config=config)
    contender = BASELINES["knn"](0)
    fitted = contender.fit(everything.known, {}, everything.relative_rating)
    assert isinstance(fitted, ItemKNN)
    assert fitted.relative_rating_ is everything.relative_rating


def test_the_strength_of_ials_is_that_of_imf_where_the_two_are_the_same(protocol) -> None:
    train = protocol.validation.train
    alpha, strength = 25.0, 7.0
    settings = {"alpha0": 1 / alpha, "nu": 0.0, "strength": strength, "factors": 4}
    translated = ials_regularization(settings, train)
    assert "strength" not in translated
    # IMF's loss divided by alpha: its penalty of strength * sqrt(alpha) becomes
    assert translated["regularization"] == pytest.approx(strength / np.sqrt(alpha), rel=1e-3)


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0])
def test_the_mean_penalty_of_ials_is_the_same_for_every_nu(protocol, nu) -> None:
    train = protocol.validation.train
    settings = {"alpha0": 0.04, "nu": nu, "strength": 7.0}
    regularization = ials_regularization(settings, train)["regularization"]
    likes = train.toarray() > 0
    penalties = [regularization * (row.sum() + 0.04 * 20) ** nu for row in likes]
    penalties += [regularization * (column.sum() + 0.04 * 60) ** nu for column in likes.T]
    assert np.mean(penalties) == pytest.approx(7.0 * 0.2, rel=1e-3)


@pytest.mark.parametrize("name", ["imf", "ials"])
def test_few_users_are_not_penalised_into_being_all_alike(name):
    rng = np.random.default_rng(0)
    fits = rng.integers(4, size=300)[:, None] == np.arange(40)[None, :] % 4
    counts = csr_array((rng.random((300, 40)) < np.where(fits, 0.6, 0.04)).astype(float))
    train, held_out = hold_out(counts, share=0.2, rng=0)
    found = contender(name).search(Validation(train, held_out), max_trials=10)
    assert found.best.cost < 25.0  # popularity is at 50
