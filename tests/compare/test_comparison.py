from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cfnade.compare.comparison import compare
from cfnade.compare.contenders import (
    CONTENDERS,
    CFNADEContender,
    EASEContender,
    IMFContender,
    contender,
    model_names,
)
from cfnade.compare.protocol import Protocol
from cfnade.compare.sweep import sweep
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, TrainingError
from cfnade.metrics.formulas import DEFAULT_METRICS
from tests.compare.outcomes import result

SMALL = {"n_hidden": 8, "max_epochs": 8, "learning_rate": 0.02, "batch_size": 16}


def small_contenders() -> dict:
    return {
        "random": contender("random"),
        "popularity": contender("popularity"),
        "ease": EASEContender({"regularization": (1.0, 10.0)}, {"regularization": 10.0}),
        "imf": IMFContender(
            grid={"regularization": (1.0, 3.0)},
            start={"factors": 2, "alpha": 10.0, "regularization": 1.0},
            iterations=(1, 3),
        ),
        "cfnade": CFNADEContender(grid={"alpha": (3.0, 30.0)}, changes=SMALL),
    }


@pytest.fixture(scope="module")
def data(request) -> Interactions:
    from tests.test_estimator import group_counts

    return Interactions.from_matrix(group_counts())


@pytest.fixture(scope="module")
def comparison(data):
    return compare(data, small_contenders(), dataset="groups")


def test_all_models_are_in_the_table_best_mpr_first(comparison):
    mprs = [result.metrics["mpr"] for result in comparison.results]
    assert mprs == sorted(mprs)
    assert {result.model for result in comparison.results} == set(small_contenders())
    by_name = {result.model: result.metrics["mpr"] for result in comparison.results}
    assert by_name["ease"] < by_name["popularity"]  # tastes are there to be found


def test_each_model_is_told_how_far_it_is_from_the_best(data, comparison):
    for metric in DEFAULT_METRICS:
        figures = [r.metrics[metric] for r in comparison.results]
        best = (min if metric.startswith("mpr") else max)(figures)
        assert [r.is_best(metric) for r in comparison.results] == [f == best for f in figures]
    last = comparison.results[-1]
    assert last.to_best["mpr"][0] > 0  # popularity or chance, behind beyond the noise
    assert not last.is_level_with_best("mpr")
    twins = {name: contender("popularity") for name in ("one", "other")}
    first, second = compare(data, twins).results
    assert first.is_best("mpr") and second.is_best("mpr")  # nobody is better
    assert not second.is_level_with_best("mpr")


def test_intervals_with_zero_are_level_and_others_are_not():
    assert replace(result("imf", 12.7), to_best={"mpr": (-0.1, 0.7)}).is_level_with_best("mpr")
    for apart in ((0.1, 0.7), (-0.7, -0.1)):
        behind = replace(result("imf", 12.7), to_best={"mpr": apart})
        assert not behind.is_level_with_best("mpr") and not behind.is_best("mpr")
    assert not result("imf", 12.7).is_level_with_best("mpr")  # nothing was compared


def test_the_json_has_the_promised_fields(comparison):
    written = json.loads(json.dumps(comparison.to_json()))
    assert written["dataset"] == "groups"
    assert (written["n_users"], written["n_items"]) == (60, 20)
    assert {"seed", "candidates", "ratings_from", "n_test_pairs", "validation_by"} <= written[
        "protocol"
    ].keys()
    for each in written["results"]:
        assert list(each["metrics"]) == list(DEFAULT_METRICS)
        assert each["intervals"].keys() == each["metrics"].keys() == each["to_best"].keys()
        assert {"model", "fit_seconds", "settings", "n_settings"} <= each.keys()


def test_each_says_how_many_settings_it_tried_and_which_it_chose(comparison):
    by_name = {result.model: result for result in comparison.results}
    assert by_name["popularity"].n_settings == 1
    assert by_name["imf"].n_settings == by_name["cfnade"].n_settings == 2
    assert by_name["imf"].settings["iterations"] in (1, 3)
    assert 1 <= by_name["cfnade"].settings["max_epochs"] <= 8


def test_same_seed_same_figures(data, comparison):
    again = compare(data, small_contenders(), dataset="groups")
    assert [r.metrics for r in again.results] == [r.metrics for r in comparison.results]


def test_the_number_of_trials_is_bounded_and_progress_told(data):
    told = []
    models = {"ease": small_contenders()["ease"]}
    outcome = compare(data, models, max_trials=1, on_progress=told.append)
    assert outcome.results[0].n_settings == 1
    assert [event.doing for event in told] == ["search", "search", "fit", "test"]


def test_models_are_found_by_name_and_an_unknown_one_is_told(data):
    outcome = compare(data, ["popularity"])
    assert outcome.results[0].model == "popularity"
    with pytest.raises(ConfigError, match="no model 'svd'; choose from random, popularity"):
        compare(data, ["svd"])
    assert {"random", "popularity", "imf", "ease", "cfnade", "cfnade-paper"} <= set(CONTENDERS)


def test_all_stands_for_every_model_of_this_machine_but_chance():
    others = {"random", "imf-spark"}  # the last is there once cfnade.scale was imported
    assert model_names("all") == [name for name in CONTENDERS if name not in others]
    assert model_names("random, all,imf")[:2] == ["random", "popularity"]
    assert len(model_names("random,all")) == 1 + len(model_names("all"))
    with pytest.raises(ConfigError, match="no model 'svd'"):
        model_names("imf,svd")


def test_a_model_that_cannot_be_fitted_is_left_out_and_the_others_stay(data, caplog):
    class Failing:
        def search(self, validation, *, max_trials, on_trial=None):
            raise TrainingError("it broke")

    models = {"broken": Failing(), "popularity": contender("popularity")}
    assert [r.model for r in compare(data, models).results] == ["popularity"]
    assert "broken is left out: it broke" in caplog.text
    with pytest.raises(TrainingError, match="none of the models"):
        compare(data, {"broken": Failing()})
    with pytest.raises(ConfigError, match="at least one model"):
        compare(data, [])


def test_the_final_model_is_fitted_on_train_and_validation(data):
    fitted = {}
    compare(data, {"popularity": contender("popularity")}, on_fitted=fitted.__setitem__)
    known = Protocol(data).known
    scores = fitted["popularity"].scores(known[[0]])[0]
    watchers = known.astype(bool).sum(axis=0)
    assert (scores.argsort(kind="stable") == watchers.argsort(kind="stable")).all()


def test_a_sweep_has_a_point_for_each_model_and_alpha(data):
    settings = {"imf": {"factors": 2}, "cfnade": SMALL}
    swept = sweep(data, [3.0, 30.0], dataset="groups", settings=settings, max_trials=2)
    assert [(p.model, p.alpha) for p in swept.points] == [
        ("cfnade", 3.0), ("imf", 3.0), ("cfnade", 30.0), ("imf", 30.0),
    ]  # fmt: skip
    for point in swept.points:
        assert point.settings["alpha"] == point.alpha
        assert point.interval[0] <= point.mpr <= point.interval[1]
    json.dumps(swept.to_json())


def test_a_sweep_refuses_no_alpha_and_one_without_meaning(data):
    with pytest.raises(ConfigError, match="at least one alpha"):
        sweep(data, [])
    with pytest.raises(ConfigError, match="alpha must be"):
        sweep(data, [-1.0])


def test_the_regularisation_of_imf_grows_with_the_root_of_alpha(data):
    validation = Protocol(data).validation
    for alpha, expected in ((8.0, 15.0), (99.0, 50.0)):
        start = {"factors": 2, "alpha": alpha, "strength": 5.0}
        search = IMFContender(grid={}, start=start, iterations=(1,)).search(
            validation, max_trials=1
        )
        assert search.best.settings["regularization"] == expected


def test_trials_train_one_network_and_the_last_one_as_many_as_a_fit_does(data):
    validation = Protocol(data).validation
    several = CFNADEContender(grid={"alpha": (3.0, 30.0)}, changes={**SMALL, "n_networks": 3})
    told = []
    search = several.search(
        validation, max_trials=3, on_trial=lambda done, most, trial: told.append((done, most))
    )
    assert [trial.settings["n_networks"] for trial in search.trials] == [1, 1, 3]
    assert told == [(1, 3), (2, 3), (3, 3)]
    single, last = min(search.trials[:2], key=lambda trial: trial.cost), search.trials[2]
    assert last.settings["alpha"] == single.settings["alpha"]
    fitted = several.fit(validation.train, last.settings, None)
    assert fitted.scorer_.network.config.n_hidden >= 3 * SMALL["n_hidden"]
    (only,) = several.search(validation, max_trials=1).trials
    assert only.settings["n_networks"] == 3
    as_given = CFNADEContender(grid={}, changes={**SMALL, "n_networks": 2})
    (only,) = as_given.search(validation, max_trials=9).trials
    assert only.settings["n_networks"] == 2
