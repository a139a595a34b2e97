from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from cfnade.baselines import Popularity
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import split_counts
from cfnade.errors import TrainingError
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.metrics.search import Trial, Validation, coordinate_search

GRID = {"a": (1, 2, 3, 4, 5), "b": (0.1, 1.0, 10.0)}


def bowl(settings):
    """Lowest at a = 4, b = 10."""
    return Trial(settings, (settings["a"] - 4) ** 2 + (np.log10(settings["b"]) - 1) ** 2)


def test_the_lowest_point_of_a_bowl_is_found_without_trying_everything():
    search = coordinate_search(bowl, {"a": 1, "b": 0.1}, GRID, max_trials=100)
    assert search.best.settings == {"a": 4, "b": 10.0}
    assert len(search.trials) < 15


def test_the_walk_begins_at_the_best_of_several_starts():
    def two_valleys(settings):
        return Trial(settings, {0: 5.0, 1: 1.0, 2: 5.0, 3: 9.0, 4: 8.0, 5: 7.0}[settings["a"]])

    grid = {"a": (0, 1, 2, 3, 4, 5)}
    assert coordinate_search(two_valleys, {"a": 4}, grid, max_trials=9).best.cost == 7.0
    search = coordinate_search(two_valleys, {"a": 4}, grid, max_trials=9, other_starts=[{"a": 0}])
    assert [trial.settings["a"] for trial in search.trials] == [4, 0, 1, 2]
    assert search.best.cost == 1.0


def test_no_settings_are_tried_twice_nor_more_than_allowed():
    tried = []

    def attempt(settings):
        tried.append(tuple(settings.items()))
        return bowl(settings)

    coordinate_search(attempt, {"a": 3, "b": 1.0}, GRID, max_trials=100)
    assert len(tried) == len(set(tried))
    for most in (1, 2, 4):
        assert (
            len(coordinate_search(bowl, {"a": 1, "b": 0.1}, GRID, max_trials=most).trials) == most
        )


def test_no_trial_is_started_when_the_time_is_up_but_one_is_always_finished():
    assert (
        len(coordinate_search(bowl, {"a": 1, "b": 0.1}, GRID, max_trials=9, seconds=0).trials) == 1
    )

    def slow(settings):
        time.sleep(0.02)
        return bowl(settings)

    search = coordinate_search(slow, {"a": 1, "b": 0.1}, GRID, max_trials=9, seconds=0.05)
    assert 1 <= len(search.trials) <= 3
    assert search.seconds >= 0.05


def test_time_does_not_end_a_search_before_a_trial_succeeds():
    def attempt(settings):
        if settings["a"] == 1:
            raise TrainingError("diverged")
        return bowl(settings)

    start = {"a": 1, "b": 0.1}
    search = coordinate_search(
        attempt, start, GRID, max_trials=9, seconds=0, other_starts=[{"a": 3}, {"a": 5}]
    )
    assert [trial.settings["a"] for trial in search.trials] == [1, 3]


def test_looks_are_added_up_and_the_chosen_values_of_the_grid_are_known():
    def attempt(settings):
        if settings["a"] == 3:
            raise TrainingError("diverged")
        return dataclasses.replace(bowl({"translated": 1, **settings}), n_looks=settings["a"])

    search = coordinate_search(attempt, {"a": 1, "b": 10.0, "c": 0}, {"a": (1, 2, 3)}, max_trials=9)
    assert search.n_looks == 1 + 2  # none of a failed trial
    assert search.chosen == {"a": 2}


def test_what_is_not_searched_is_passed_on_and_trials_are_reported():
    reported = []
    search = coordinate_search(
        lambda settings: Trial({**settings, "found": 7}, 1.0),
        {"a": 2, "fixed": "x"},
        {"a": (1, 2)},
        max_trials=9,
        on_trial=lambda done, most, trial: reported.append((done, most, trial.settings["a"])),
    )
    assert search.best.settings == {"a": 2, "fixed": "x", "found": 7}
    assert reported == [(1, 9, 2), (2, 9, 1)]


def test_a_failed_trial_counts_as_the_worst_and_the_search_goes_on(caplog):
    def attempt(settings):
        if settings["a"] == 3:
            raise TrainingError("diverged")
        return bowl(settings)

    search = coordinate_search(attempt, {"a": 2, "b": 10.0}, GRID, max_trials=9)
    assert search.best.settings == {"a": 2, "b": 10.0}
    assert "diverged" in caplog.text
    with pytest.raises(TrainingError, match="none of 1 settings could be fitted"):
        coordinate_search(attempt, {"a": 3}, {"a": (3,)}, max_trials=1)


def test_a_cost_that_is_not_a_number_ends_the_search():
    """Two such places were each taken for better than the other, for ever."""
    search = coordinate_search(
        lambda settings: Trial(settings, np.nan), {"a": 1, "b": 0.1}, GRID, max_trials=9
    )
    assert len(search.trials) <= 9


def test_with_nothing_to_search_there_is_one_trial():
    assert len(coordinate_search(lambda s: Trial(s, 1.0), {}, {}, max_trials=5).trials) == 1


def test_validation_holds_no_test_part_and_judges_on_what_was_held_out(counts):
    assert {f.name for f in dataclasses.fields(Validation)} == {
        "train",
        "held_out",
        "relative_rating",
        "train_data",
        "candidates",
        "exclude",
        "choose_by",
    }
    split = split_counts(counts)
    scorer = Popularity().fit(split.train)
    relevance = RelativeRating().fit(split.train).transform(split.validation)
    expected = mean_percentage_ranking(scorer, split.train, split.validation, relevance)
    assert Validation(split.train, split.validation).metrics(scorer)["mpr"] == pytest.approx(
        expected
    )


@pytest.mark.parametrize("by", [None, "mpr", "recall_full@5"])
def test_a_trial_costs_what_its_models_are_chosen_by(counts, by):
    split = split_counts(counts)
    scorer = Popularity().fit(split.train)
    trial = Validation(split.train, split.validation, choose_by=by).trial({}, scorer)
    found = trial.metrics
    expected = {
        None: found["mpr"] / found["ndcg@100"],
        "mpr": found["mpr"],
        "recall_full@5": 1 / found.get("recall_full@5", 1),
    }
    assert trial.cost == pytest.approx(expected[by]) and by in (None, *found)


def test_a_search_says_what_ended_it():
    def stopped_by(**limits):
        start = {"a": 1, "b": 0.1}
        return coordinate_search(bowl, start, GRID, **limits).stopped_by

    assert stopped_by(max_trials=100) is None
    assert stopped_by(max_trials=3) == "trials"
    assert stopped_by(max_trials=100, seconds=0) == "time"
    # All that the walk asks for was tried: a limit that is just enough stops nothing.
    n_trials = len(coordinate_search(bowl, {"a": 1, "b": 0.1}, GRID, max_trials=100).trials)
    assert stopped_by(max_trials=n_trials) is None
