"""A tiny search, for real: optuna and training, on two taste groups."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from cfnade import ConfigError, ImplicitCFNADE, Interactions, MissingExtraError, TrainingError
from cfnade.beyond import factors
from cfnade.beyond.direct import NeighbourRegression
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.tune import SPACE, _validation, in_space, tune
from cfnade.fit.settings import read_settings
from tests.networks import counted, group_counts

pytest.importorskip("optuna")

SMALL = {"n_hidden": 8, "max_epochs": 8, "batch_size": 16, "patience": 4}
QUICK = {"changes": SMALL, "search": ["alpha", "learning_rate"], "n_trials": 9}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A search that was never interrupted."""
    return tune(data, tmp_path_factory.mktemp("whole") / "settings.toml", **QUICK)


def without_seconds(tuned):
    return [{**trial, "seconds": 0} for trial in tuned.to_json()["trials"]]


def test_the_space_holds_settings_that_there_are_and_the_default_of_each():
    model = ImplicitCFNADE()
    params = model.get_params()
    plan = model.plan(group_counts())
    usual = {**vars(plan.model), **vars(plan.training)}
    for name in SPACE:
        assert name in params
        assert in_space(name, usual[name.removeprefix("recipe__")]), name


def test_the_first_trial_is_the_recipe_and_the_best_one_is_in_the_file(whole, data):
    first = whole.trials[0]
    assert first.settings == {"alpha": 30.0, "learning_rate": 5e-3}
    assert [trial.number for trial in whole.trials] == list(range(1, 10))
    assert whole.best.mpr == min(t.mpr for t in whole.trials if t.mpr is not None) <= first.mpr
    file = read_settings(whole.file)
    plan = ImplicitCFNADE(**SMALL).plan(Protocol(data).validation.train)
    usual = {"item_l2": plan.training.item_l2}
    assert file.settings == {**SMALL, **usual, **whole.best.settings}  # what was not searched
    assert file.search["validation_mpr"] == pytest.approx(whole.best.mpr, abs=1e-4)
    assert file.search["n_trials"] == 9
    assert json.loads(json.dumps(whole.to_json()))["best"]["number"] == whole.best.number


def test_a_trial_is_what_its_settings_give_on_validation(whole, data):
    part = Protocol(data).validation
    model = ImplicitCFNADE.from_settings(whole.file)
    model.fit(part.train, validation=part.held_out)
    assert model.validation_mpr_ == whole.best.mpr
    assert model.best_epoch_ == whole.best.best_epoch


def test_the_test_part_of_a_comparison_is_not_among_what_is_looked_at(data):
    protocol = Protocol(data)
    part = _validation(data, ProtocolConfig(), with_test=True)
    seen = part.train + part.held_out
    assert seen.nnz == protocol.known.nnz < data.n_pairs
    assert (seen != protocol.known).nnz == 0
    assert part.train.multiply(part.held_out).nnz == 0
    everything = _validation(data, ProtocolConfig(), with_test=False)
    assert (everything.train + everything.held_out != data.counts).nnz == 0


def test_validation_is_by_events_if_asked_for(data):
    protocol = Protocol(data, config=ProtocolConfig(seed=3, validation_by="events"))
    looked_at = _validation(data, protocol.config, with_test=True)
    np.testing.assert_array_equal(
        looked_at.held_out.toarray(), protocol.validation.held_out.toarray()
    )
    by_events, by_pairs = (
        _validation(data, ProtocolConfig(seed=3, validation_by=by), with_test=False)
        for by in ("events", "pairs")
    )
    assert by_events.held_out.data.mean() < by_pairs.held_out.data.mean()


def test_an_interrupted_search_keeps_its_best_and_goes_on_as_if_it_had_not_been(
    whole, data, tmp_path
):
    out = tmp_path / "settings.toml"

    def interrupt(number, epoch):
        if number == 4 and epoch.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(data, out, **QUICK, on_epoch=interrupt)
    assert read_settings(out).search["n_trials"] == 3
    with pytest.raises(
        ConfigError, match=r"there is a search in .* already; continue it with --resume"
    ):
        tune(data, out, **QUICK)
    with (tmp_path / "settings.toml.study").open("ab") as study:
        study.write(b'{"torn')  # as a killed run may leave it
    reported = []
    resumed = tune(
        data, out, **QUICK, resume=True, on_trial=lambda tuned: reported.append(len(tuned.trials))
    )
    assert without_seconds(resumed) == without_seconds(whole)
    assert out.read_text() == whole.file.read_text()
    assert reported == [4, 5, 6, 7, 8, 9]
    more = tune(data, out, **{**QUICK, "n_trials": 10}, resume=True)
    assert without_seconds(more)[:9] == without_seconds(whole) and len(more.trials) == 10


def test_a_search_interrupted_in_its_first_trial_still_starts_with_the_recipe(data, tmp_path):
    def interrupt(number, epoch):
        raise KeyboardInterrupt

    out = tmp_path / "settings.toml"
    with pytest.raises(KeyboardInterrupt):
        tune(data, out, **QUICK, on_epoch=interrupt)
    assert not out.exists()
    resumed = tune(data, out, **{**QUICK, "n_trials": 1}, resume=True)
    assert resumed.trials[0].settings == {"alpha": 30.0, "learning_rate": 5e-3}
    out.unlink()
    tune(data, out, **{**QUICK, "n_trials": 1}, resume=True)
    assert out.exists()


def test_trials_that_fall_behind_are_pruned(data, tmp_path, monkeypatch):
    monkeypatch.setattr("cfnade.compare.tune.WARM_UP", 2)
    slow = {**SMALL, "max_epochs": 60, "patience": 60, "readout__direct": False}
    tuned = tune(data, tmp_path / "s.toml", changes=slow, search=["learning_rate"], n_trials=14)
    pruned = [trial for trial in tuned.trials if trial.state == "pruned"]
    assert pruned and all(trial.number > 5 and trial.mpr is None for trial in pruned)
    assert tuned.best.state == "complete"


def test_trials_share_factors_and_neighbours_and_are_the_same(data, tmp_path, monkeypatch):
    made = []
    for owner, name in ((factors, "als_item_factors"), (NeighbourRegression, "neighbours")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name), made))
    options = {"changes": SMALL, "search": ["alpha", "learning_rate"], "n_trials": 3}
    shared = tune(data, tmp_path / "shared.toml", **options)
    assert sorted(made) == ["als_item_factors", "neighbours"]
    monkeypatch.setattr("cfnade.compare.tune.shared_work", nullcontext)
    alone = tune(data, tmp_path / "alone.toml", **options)
    assert len(made) == 2 + 3 * 2 and without_seconds(shared) == without_seconds(alone)


def test_a_recipe_outside_the_space_is_tried_as_it_is(data, tmp_path):
    tuned = tune(
        data,
        tmp_path / "s.toml",
        recipe="paper",
        changes=SMALL,
        search=["item_l2", "recipe__context_share"],
        n_trials=2,
    )
    assert tuned.trials[0].settings == {"item_l2": 0.0, "recipe__context_share": None}
    assert in_space("item_l2", tuned.trials[1].settings["item_l2"])
    assert read_settings(tuned.file).recipe == "paper"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "its seed is 0, not 1"),
        ({"search": ["alpha"]}, "its searched is"),
        ({"changes": {**SMALL, "n_hidden": 4}}, "its fixed is"),
        ({"test_share": 0.2}, "its test_share is 0.1, not 0.2"),
    ],
)
def test_another_search_is_not_mixed_into_one(whole, data, changed, message):
    with pytest.raises(ConfigError, match=message):
        tune(data, whole.file, **{**QUICK, **changed}, resume=True)


def test_other_data_is_not_mixed_into_a_search(whole, data):
    fewer = Interactions(data.counts[:50], np.arange(50), data.item_ids)
    with pytest.raises(ConfigError, match="its data_sha256 is"):
        tune(fewer, whole.file, **QUICK, resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": ["alpah"]}, "'alpah' cannot be searched; choose from alpha, item_l2"),
        ({"search": ["alpha"], "changes": {"alpha": 3.0}}, "alpha is both fixed and searched"),
        ({"changes": {"alpah": 3.0}}, "there is no setting 'alpah'"),
        ({"recipe": "best"}, "there is no recipe 'best'"),
        ({"resume": True}, "there is no search to resume"),
        ({"changes": {"batch_size": 0}}, "batch_size must be"),
    ],
)
def test_invalid_options_are_refused(data, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        tune(data, tmp_path / "s.toml", **options)
    assert not (tmp_path / "s.toml").exists()


def test_an_unreadable_study_is_refused(data, tmp_path):
    (tmp_path / "s.toml.study").write_text("not a journal\nat all\n")
    with pytest.raises(ConfigError, match="cannot read the search"):
        tune(data, tmp_path / "s.toml", **QUICK, resume=True)


def test_no_trial_begins_after_the_time(data, tmp_path):
    assert tune(data, tmp_path / "s.toml", **QUICK, minutes=0).trials == []


def test_settings_that_cannot_be_trained_count_as_failed(data, tmp_path):
    huge = {**SMALL, "recipe__optimizer": "sgd", "learning_rate": 1e30}
    with pytest.raises(TrainingError, match="none of 2 settings could be trained"):
        tune(data, tmp_path / "s.toml", changes=huge, search=["alpha"], n_trials=2)
    assert not (tmp_path / "s.toml").exists()


def test_without_optuna_it_says_how_to_install_it(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'cfnade\[tune\]'"):
        tune(data, tmp_path / "s.toml")
