from __future__ import annotations

import numpy as np

from cfnade.baselines import IALS, IMF
from cfnade.compare.contender import Contender
from cfnade.metrics.search import Search, Trial


def test_the_stop_with_the_lowest_mpr_is_chosen_and_fitted_for_as_long(protocol) -> None:
    contender = Contender(
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
        stop: protocol.validation.metrics(
            IALS(2, regularization=1e-3, random_state=3, iterations=stop).fit(train)
        )["mpr"]
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

    contender = Contender(Worsening, {}, {}, stops=(1, 2, 4, 8, 16, 32))
    search = contender.search(protocol.validation, max_trials=1)
    assert search.best.settings == {"iterations": 1}
    assert judged == [1, 2, 4]


def test_without_a_grid_there_is_one_trial(protocol) -> None:
    candidate = Contender(IMF, {"factors": 2, "iterations": 3}, fixed={"random_state": 1})
    (only,) = candidate.search(protocol.validation, max_trials=9).trials
    assert only.settings == {"factors": 2, "iterations": 3}
    expected = IMF(factors=2, iterations=3, random_state=1).fit(protocol.validation.train)
    assert only.cost == protocol.validation.metrics(expected)["mpr"]


def test_held_settings_are_not_searched() -> None:
    grid = {"alpha": (1.0, 3.0), "factors": (2, 4)}
    held = Contender(IMF, {"alpha": 1.0, "factors": 2}, grid).holding(alpha=7.0)
    assert held.start == {"alpha": 7.0, "factors": 2}
    assert held.grid == {"factors": (2, 4)}


def test_fixed_settings_go_before_chosen_ones_and_those_of_the_final_fit_come_last(protocol):
    made = []

    class Model:
        def __init__(self, **settings):
            made.append(settings)

        def fit(self, counts):
            return self

    candidate = Contender(Model, fixed={"seed": 3}, final={"share": 0.0}, uses_ratings=True)
    candidate.fit(protocol.known, {"seed": 5, "share": 0.1, "width": 8}, None)
    assert made == [{"seed": 3, "share": 0.0, "width": 8, "relative_rating": None}]


def test_a_contender_may_bring_its_own_search(protocol) -> None:
    def search_by(contender, validation, max_trials, on_trial):
        assert validation is part
        return Search([Trial({"trials": max_trials, **contender.start}, 1.0)], 0.0)

    part = protocol.validation
    candidate = Contender(IMF, {"a": 1}, search_by=search_by)
    assert candidate.search(part, max_trials=4).best.settings == {"trials": 4, "a": 1}
