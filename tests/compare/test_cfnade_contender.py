from __future__ import annotations

from cfnade import ImplicitCFNADE
from cfnade.answer.probability import Calibrator
from cfnade.compare.cfnade_contender import GRID, cfnade
from cfnade.compare.protocol import Protocol
from cfnade.data.interactions import Interactions
from tests.networks import group_counts

SMALL = {"n_hidden": 8, "max_epochs": 8, "learning_rate": 0.02, "batch_size": 16}


def test_the_values_of_the_default_recipe_are_in_the_grid():
    params = ImplicitCFNADE().get_params()
    for name in ("alpha", "dropout"):
        assert params[f"recipe__{name}"] in GRID[name]


def test_a_trial_is_a_fit_judged_on_validation_and_passes_its_calibrator_on():
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    (trial,) = cfnade(3, grid={}, start=SMALL).search(validation, max_trials=5).trials
    model = ImplicitCFNADE(**SMALL, random_state=3)
    model.fit(validation.train, validation=validation.held_out)
    assert trial.cost == model.validation_mpr_
    assert trial.settings["max_epochs"] == model.best_epoch_
    assert isinstance(trial.extra, Calibrator)


def test_the_search_walks_along_the_grid_from_the_plan_and_the_final_fit_is_as_long():
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    contender = cfnade(grid={"alpha": (3.0, 30.0), "item_l2": (0.02, 0.8)}, start=SMALL)
    search = contender.search(validation, max_trials=4)
    plan = ImplicitCFNADE(**SMALL).plan(validation.train)
    first = search.trials[0].settings
    assert (first["alpha"], first["item_l2"]) == (30.0, plan.training.item_l2)
    assert first["recipe__start"] == "factors" and first["readout__direct_gain"] > 0
    fitted = contender.fit(validation.train, search.best.settings, None)
    assert fitted.best_epoch_ == search.best.settings["max_epochs"]
    assert fitted.readout_.direct_gain == search.best.settings["readout__direct_gain"]
