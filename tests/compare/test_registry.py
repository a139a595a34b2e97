from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.answer.probability import Calibrator
from cfnade.baselines import ItemKNN
from cfnade.beyond import factors
from cfnade.beyond.direct import NeighbourRegression
from cfnade.compare.contender import Contender
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.registry import (
    CFNADE_GRID,
    CONTENDERS,
    cfnade,
    contender,
    ials_regularization,
    named_contenders,
)
from cfnade.data.interactions import Interactions
from cfnade.data.splitting import hold_out
from cfnade.errors import ConfigError, MissingExtraError
from cfnade.metrics.search import Search, Validation
from tests.networks import SMALL, counted, group_counts

BASELINES = [n for n in CONTENDERS if not n.startswith("cfnade") or n == "cfnade-no-network"]


@pytest.mark.parametrize(
    "name", [n for n in BASELINES if n not in ("random", "popularity", "collective")]
)
def test_each_baseline_can_be_searched_fitted_and_tested(protocol, name) -> None:
    search = contender(name).search(protocol.validation, max_trials=2)
    assert len(search.trials) == 2
    assert all(math.isfinite(trial.cost) for trial in search.trials)
    fitted = contender(name).fit(protocol.known_data, search.best.settings, None)
    assert protocol.test(fitted).metrics["mpr"] < 50


@pytest.mark.parametrize("name", BASELINES)
def test_every_start_is_in_its_grid_with_room_on_the_way(name) -> None:
    candidate = contender(name)
    for setting, values in candidate.grid.items():
        assert candidate.start[setting] in values
        assert len(set(values)) == len(values) >= 2
    assert list(candidate.stops) == sorted(candidate.stops)


def test_ratings_of_all_pairs_reach_the_models_that_weigh_counts(protocol) -> None:
    config = ProtocolConfig(ratings_from="all")
    everything = Protocol(Interactions.from_matrix(group_counts()), config=config)
    fitted = contender("knn").fit(everything.known_data, {}, everything.relative_rating)
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
    assert found.best.metrics["mpr"] < 25.0  # popularity is at 50


def test_the_regularisation_of_imf_grows_with_the_root_of_alpha(protocol) -> None:
    imf = replace(contender("imf"), grid={}, stops=(1,))
    for alpha, expected in ((8.0, 15.0), (99.0, 50.0)):
        held = imf.holding(factors=2, alpha=alpha, strength=5.0)
        search = held.search(protocol.validation, max_trials=1)
        assert search.best.settings["regularization"] == expected


def test_all_stands_for_every_model_but_chance_and_those_that_need_kinds_of_events() -> None:
    others = ("random", "collective", "cfnade-target")
    assert list(named_contenders("all")) == [name for name in CONTENDERS if name not in others]
    assert list(named_contenders("random, all,imf"))[:2] == ["random", "popularity"]
    assert list(named_contenders("imf,,imf")) == ["imf"]
    with pytest.raises(ConfigError, match="no model 'svd'; choose from random, popularity"):
        named_contenders("imf,svd")


def test_a_registry_may_have_more_models() -> None:
    registry = {**CONTENDERS, "mine": lambda seed: Contender(ItemKNN, {"neighbours": seed})}
    assert named_contenders("mine", 7, registry)["mine"].start == {"neighbours": 7}
    assert "mine" not in named_contenders("all", 0, registry)
    with pytest.raises(ConfigError, match="no model 'mine'"):
        contender("mine")


@pytest.mark.parametrize("name", ["ials", "slim"])
def test_a_missing_package_is_reported_before_anything_is_searched(monkeypatch, name) -> None:
    monkeypatch.setitem(sys.modules, "irspack.recommenders", None)
    with pytest.raises(MissingExtraError, match=rf"'{name}' needs irspack.*cfnade\[bench\]"):
        named_contenders(f"popularity,{name}")
    assert list(named_contenders("popularity,imf")) == ["popularity", "imf"]


def test_the_alpha_of_the_default_recipe_is_in_the_grid() -> None:
    assert ImplicitCFNADE().get_params()["recipe__alpha"] in CFNADE_GRID["alpha"]


def test_the_final_fit_has_the_alpha_that_a_thorough_trial_found() -> None:
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    contender = cfnade(0, "thorough", grid={}, start=SMALL)
    (trial,) = contender.search(validation, max_trials=1).trials
    model = contender.model({**trial.settings, "recipe": "default"}, None)
    model.fit(validation.train, validation=validation.held_out)
    assert model.scorer_.network.config.alpha == trial.settings["alpha"]
    assert trial.metrics["mpr"] == pytest.approx(model.validation_mpr_)


def test_a_trial_is_a_fit_judged_on_validation_and_passes_its_calibrator_on() -> None:
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    (trial,) = cfnade(3, grid={}, start=SMALL).search(validation, max_trials=5).trials
    model = ImplicitCFNADE(**SMALL, random_state=3)
    model.fit(validation.train, validation=validation.held_out)
    assert trial.metrics["mpr"] == model.validation_mpr_
    assert trial.cost == pytest.approx(trial.metrics["mpr"] / trial.metrics["ndcg@100"])
    assert trial.settings["max_epochs"] == model.best_epoch_
    assert isinstance(trial.extra, Calibrator)
    assert trial.n_looks == model.n_looks_ + 1


def test_the_search_of_cfnade_ends_with_its_time_after_a_whole_trial() -> None:
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    entrant = cfnade(grid={"alpha": (3.0, 30.0)}, start=SMALL)
    assert len(entrant.search(validation, max_trials=4, seconds=0.0).trials) == 1


def test_the_search_walks_along_the_grid_from_the_plan_and_the_final_fit_is_as_long() -> None:
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    entrant = cfnade(grid={"alpha": (3.0, 30.0), "item_l2": (0.02, 0.8)}, start=SMALL)
    search = entrant.search(validation, max_trials=4)
    plan = ImplicitCFNADE(**SMALL).plan(validation.train)
    first = search.trials[0].settings
    assert (first["alpha"], first["item_l2"]) == (30.0, plan.training.item_l2)
    assert first["recipe__start"] == "factors" and first["readout__direct_gain"] > 0
    fitted = entrant.fit(validation.train, search.best.settings, None)
    assert fitted.best_epoch_ == search.best.settings["max_epochs"]
    assert fitted.readout_.direct_gain == search.best.settings["readout__direct_gain"]


@pytest.mark.parametrize("name", ["cfnade", "cfnade-network"])
def test_trials_share_factors_and_neighbours_and_are_the_same_to_the_bit(name, monkeypatch) -> None:
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    named = CONTENDERS[name](0)
    grid = {"alpha": (3.0, 30.0), "item_l2": (0.0, 0.02, 0.1, 0.4, 2.0)}

    def searched() -> tuple[Search, list[ImplicitCFNADE]]:
        models = []

        def make(**settings) -> ImplicitCFNADE:
            models.append(named.make(**settings))
            return models[-1]

        entrant = replace(named, make=make, grid=grid, start={**SMALL, **named.start})
        found = entrant.search(validation, max_trials=4)
        return found, models[1:]  # the first shows the plan

    made = []
    for owner, each in ((factors, "als_item_factors"), (NeighbourRegression, "neighbours")):
        count = counted(getattr(owner, each), made)
        monkeypatch.setattr(owner, each, count)
    shared, models = searched()
    assert sorted(made) == ["als_item_factors", "neighbours"]
    monkeypatch.setattr("cfnade.compare.registry.shared_work", nullcontext)
    alone, others = searched()
    assert made.count("als_item_factors") == made.count("neighbours") == 1 + 4
    assert shared.trials == alone.trials and len(shared.trials) == len(models) == 4
    for model, other in zip(models, others, strict=True):
        weights, expected = (each.scorer_.network.weights for each in (model, other))
        assert weights.keys() == expected.keys()
        for each, weight in weights.items():
            np.testing.assert_array_equal(weight, expected[each])


def test_the_network_alone_keeps_its_own_start_from_the_search_to_the_final_fit() -> None:
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    alone = CONTENDERS["cfnade-network"](0)
    entrant = replace(alone, grid={}, start={**SMALL, **alone.start})
    chosen = entrant.search(validation, max_trials=1).best.settings
    for settings in (entrant.start, chosen):
        assert entrant.model(settings, None).plan(validation.train).start_neighbours is not None
    plan = ImplicitCFNADE().set_params(**alone.start).plan(validation.train)
    assert plan.training.item_l2 in alone.grid["item_l2"]


def test_cfnade_is_chosen_by_the_metric_that_all_models_are_chosen_by() -> None:
    validation = Protocol(
        Interactions.from_matrix(group_counts()), config=ProtocolConfig(choose_by="mpr")
    ).validation
    (trial,) = cfnade(3, grid={}, start=SMALL).search(validation, max_trials=5).trials
    assert trial.settings["choose_by"] == "mpr" and trial.cost == trial.metrics["mpr"]
    given = cfnade(3, grid={}, start={**SMALL, "choose_by": "ndcg@20"})
    (trial,) = given.search(validation, max_trials=5).trials
    assert trial.settings["choose_by"] == "ndcg@20"  # what a user sets goes before


def test_the_network_alone_has_no_direct_path_and_the_rest_has_no_network(protocol) -> None:
    alone = contender("cfnade-network").holding(**SMALL)
    (trial,) = replace(alone, grid={}).search(protocol.validation, max_trials=1).trials
    fitted = alone.fit(protocol.known_data, trial.settings, None)
    assert not fitted.readout_.direct and "neighbours" not in fitted.scorer_.network.weights
    rest = contender("cfnade-no-network").search(protocol.validation, max_trials=3)
    assert {"direct_gain", "factors", "iterations"} <= rest.best.settings.keys()
    assert "neighbours" not in rest.best.settings  # found anew on all pairs


def test_grids_are_wider_than_any_value_that_was_chosen_so_far() -> None:
    chosen = {"imf": {"factors": 1024, "alpha": 3e3}, "ials": {"factors": 512, "iterations": 50}}
    chosen |= {"edlae": {"dropout": 0.99}, "knn": {"neighbours": 2000}, "bpr": {"factors": 128}}
    for name, settings in chosen.items():
        assert contender(name).edges(settings) == []
