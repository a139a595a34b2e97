from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

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
        )
        for stop in (1, 2, 3)
    }
    by_stop = {stop: found["mpr"] / found["ndcg@100"] for stop, found in by_stop.items()}
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


class Given:
    """An iterative model whose MPR at each stop is given by its setting `a`."""

    def __init__(self, a: list[float], **given) -> None:
        self.costs, self.iterations = a, 0
        made.append(given)

    def fits(self, counts, stops):
        for place, stop in enumerate(stops):
            judged.append(stop)
            self.iterations = stop
            self.cost = self.costs[place]
            yield self


made: list[dict] = []
judged: list[int] = []


class Judge:
    """In place of a validation part: knows the cost of each model."""

    train = train_data = ratings = None

    def trial(self, settings, fitted):
        return Trial(settings, fitted.cost)


def with_costs(costs: list[list[float]], **options) -> Contender:
    """One trial for each list of costs, as long as they get better."""
    judged.clear()
    made.clear()
    return Contender(Given, {"a": costs[0]}, {"a": costs}, stops=(1, 2, 4, 8), **options)


def test_a_fit_that_is_far_behind_the_best_one_ends_at_its_third_stop() -> None:
    costs = [[9.0, 8.0, 7.0, 6.0], [9.8, 9.7, 6.0, 5.0], [11.9, 11.5, 7.3, 1.0]]
    search = with_costs(costs).search(Judge(), max_trials=9)
    assert judged == [1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4]
    assert [trial.n_looks for trial in search.trials] == [4, 4, 3]
    assert search.n_looks == 11
    assert search.best.cost == 5.0


@pytest.mark.parametrize(("third", "n_stops"), [(7.98, 3), (7.97, 4)])
def test_a_fit_ends_when_two_stops_hardly_lower_its_mpr(third, n_stops) -> None:
    search = with_costs([[8.0, 7.99, third, 7.0]]).search(Judge(), max_trials=9)
    assert judged == [1, 2, 4, 8][:n_stops]
    assert search.best.cost == (third if n_stops == 3 else 7.0)


def test_one_bad_stop_of_two_does_not_end_a_fit() -> None:
    costs = [[9.0, 8.0, 7.0, 6.0], [8.0, 12.0, 7.0, 5.0]]
    with_costs(costs).search(Judge(), max_trials=9)
    assert judged == [1, 2, 4, 8] * 2


def test_when_the_time_is_up_a_fit_ends_at_its_next_stop_except_the_first() -> None:
    costs = [[9.0, 8.0, 7.0, 6.0], [5.0, 4.0, 3.0, 2.0]]
    first = with_costs(costs).search(Judge(), max_trials=9, seconds=0)
    assert judged == [1, 2, 4, 8] and first.best.cost == 6.0

    class Slow(Judge):
        def trial(self, settings, fitted):
            time.sleep(0.03)
            return super().trial(settings, fitted)

    search = with_costs(costs).search(Slow(), max_trials=9, seconds=0.15)
    assert judged[:4] == [1, 2, 4, 8] and len(judged) < 8
    assert search.best.cost == min([6.0, *costs[1][: len(judged) - 4]])


def test_what_trials_share_is_made_once_and_not_for_the_final_fit(protocol) -> None:
    n_made = []
    shared = {"square": lambda counts: n_made.append(counts) or "made"}
    costs = [[9.0, 8.0, 7.0, 6.0], [8.0, 7.0, 6.0, 5.0]]
    with_costs(costs, shared=shared).search(Judge(), max_trials=9)
    assert len(n_made) == 1
    assert made == [{"square": "made"}] * 2


def test_a_chosen_value_at_an_end_of_its_grid_is_named() -> None:
    grid = {
        "factors": (32, 64, 128),
        "alpha": (1.0, 3.0, 10.0),
        "dropout": (0.0, 0.5, 0.9),
        "nu": (0.0, 0.5, 1.0),
        "weigh_counts": (False, True),
        "loss": ("a", "b", "c"),
    }
    candidate = Contender(IMF, {}, grid, stops=(2, 3, 4), bounded=("nu",))
    chosen = {"factors": 128, "alpha": 1.0, "iterations": 4, "weigh_counts": True, "loss": "a"}
    assert list(map(str, candidate.edges(chosen | {"nu": 1.0, "dropout": 0.0}))) == [
        "factors=128 is the largest value tried",
        "alpha=1 is the smallest value tried",
        "iterations=4 is the largest value tried",
    ]
    inside = {"factors": 64, "alpha": 3.0, "iterations": 3, "dropout": 0.5, "nu": 0.5}
    assert candidate.edges(inside) == []
    (first,) = candidate.edges(inside | {"iterations": 2})
    assert str(first) == "iterations=2 is the smallest value tried"
    from_one = replace(candidate, stops=(1, 2, 3))  # fewer are impossible
    assert from_one.edges(inside | {"iterations": 1}) == []


def test_without_a_grid_there_is_one_trial(protocol) -> None:
    candidate = Contender(IMF, {"factors": 2, "iterations": 3}, fixed={"random_state": 1})
    (only,) = candidate.search(protocol.validation, max_trials=9).trials
    assert only.settings == {"factors": 2, "iterations": 3}
    expected = IMF(factors=2, iterations=3, random_state=1).fit(protocol.validation.train)
    assert only.metrics == protocol.validation.metrics(expected)


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
    candidate.fit(protocol.known_data, {"seed": 5, "share": 0.1, "width": 8}, None)
    assert made == [{"seed": 3, "share": 0.0, "width": 8, "relative_rating": None}]


def test_a_contender_may_bring_its_own_search(protocol) -> None:
    def search_by(contender, validation, max_trials, seconds, on_trial):
        assert validation is part and seconds == 9.0
        return Search([Trial({"trials": max_trials, **contender.start}, 1.0)], 0.0)

    part = protocol.validation
    candidate = Contender(IMF, {"a": 1}, search_by=search_by)
    found = candidate.search(part, max_trials=4, seconds=9.0)
    assert found.best.settings == {"trials": 4, "a": 1}
