from __future__ import annotations

from cfnade import ImplicitCFNADE
from cfnade.answer.probability import Calibrator
from cfnade.compare.cfnade_contender import GRID, cfnade
from cfnade.compare.protocol import Protocol
from cfnade.data.interactions import Interactions
from tests.taste_groups import group_counts

SMALL = {"n_hidden": 8, "max_epochs": 8, "learning_rate": 0.02, "batch_size": 16}


def test_the_presets_settings_are_in_the_grid():
    preset = ImplicitCFNADE().get_params()
    for name in ("alpha", "dropout"):
        assert preset[name] in GRID[name]


def test_a_trial_is_a_fit_judged_on_validation_and_passes_its_calibrator_on():
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    (trial,) = cfnade(3, grid={}, start=SMALL).search(validation, max_trials=5).trials
    model = ImplicitCFNADE(**SMALL, random_state=3)
    model.fit(validation.train, validation=validation.held_out)
    assert trial.cost == model.validation_mpr_
    assert trial.settings["max_epochs"] == model.best_epoch_
    assert isinstance(trial.extra, Calibrator)


def test_trials_train_one_network_and_the_last_one_as_many_as_a_fit_does():
    validation = Protocol(Interactions.from_matrix(group_counts())).validation
    several = cfnade(grid={"alpha": (3.0, 30.0)}, start={**SMALL, "n_networks": 3})
    reported = []
    search = several.search(
        validation, max_trials=3, on_trial=lambda done, most, trial: reported.append((done, most))
    )
    assert [trial.settings["n_networks"] for trial in search.trials] == [1, 1, 3]
    assert reported == [(1, 3), (2, 3), (3, 3)]
    single, last = min(search.trials[:2], key=lambda trial: trial.cost), search.trials[2]
    assert last.settings["alpha"] == single.settings["alpha"]
    fitted = several.fit(validation.train, last.settings, None)
    assert fitted.scorer_.network.config.n_hidden >= 3 * SMALL["n_hidden"]
    (only,) = several.search(validation, max_trials=1).trials
    assert only.settings["n_networks"] == 3
    as_given = cfnade(grid={}, start={**SMALL, "n_networks": 2})
    (only,) = as_given.search(validation, max_trials=9).trials
    assert only.settings["n_networks"] == 2
