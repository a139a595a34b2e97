"""Models saved by earlier versions load and recommend as they did; nothing here needs torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ConfigError, ImplicitCFNADE, Interactions, MissingExtraError
from cfnade.beyond.readout import Readout
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings
from cfnade.storage.folder import FORMAT, inspect_artifact

KEPT = Path(__file__).parent / "artifacts"
NAMES = [*(f"v{number}" for number in range(1, FORMAT + 1)), "v2-int16", "v2-features"]
FACTORS = "v1-factors"
"""Of the last version that added units after training."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_kept_model_recommends_as_it_did(name, verify):
    model = ImplicitCFNADE.load(KEPT / name, verify=verify)
    for answer in json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8")):
        items, scores = model.recommend_for(answer["history"], n=4)
        assert items.tolist() == answer["items"]
        np.testing.assert_allclose(scores, answer["scores"], atol=1e-5)
    assert model.catalogue_.label("film-3") == "Film número 3"
    assert model.n_hidden == 4 and model.best_epoch_ >= 1 and model.validation_mpr_ > 0
    assert model.data_fingerprint_["n_users"] == 60


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_model_can_be_inspected(name):
    found = inspect_artifact(KEPT / name, verify=True)
    assert f"v{found['format']}" == name.partition("-")[0]
    assert found["items"]["features"] == (["genre", "length"] if name == "v2-features" else [])
    assert all(file["state"] == "ok" for file in found["files"].values())


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_model_saved_again_is_of_this_format_and_recommends_alike(name, tmp_path):
    model = ImplicitCFNADE.load(KEPT / name)
    model.save(tmp_path / "again", metrics={"ndcg@100": 0.4})
    again = ImplicitCFNADE.load(tmp_path / "again")
    history = {"film-1": 3, "film-4": 1}
    np.testing.assert_array_equal(again.recommend_for(history)[1], model.recommend_for(history)[1])
    found = inspect_artifact(tmp_path / "again")
    assert found["format"] == FORMAT
    assert found["metrics"] == {"validation_mpr": model.validation_mpr_, "ndcg@100": 0.4}
    assert found["data_fingerprint"] == model.data_fingerprint_


def test_a_kept_model_has_features_only_if_it_was_fitted_with_them():
    plain, described = (ImplicitCFNADE.load(KEPT / name) for name in ("v2", "v2-features"))
    assert plain.catalogue_.features is None and plain.feature_strengths_ is None
    assert plain.n_features_in_ == 12
    assert described.catalogue_.features.of(12) == {"genre": ["a"], "length": ["short"]}
    films, _ = described.recommend_for({"film-0": 2}, 12, items={"genre": "a"})
    assert set(films) == {"film-3", "film-6", "film-9", "film-12"}


def test_fitting_without_torch_says_how_to_install_it(monkeypatch, counts):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "cfnade.model.training", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'cfnade\[train\]'"):
        ImplicitCFNADE().fit(counts)


@pytest.mark.parametrize("name", NAMES)
def test_items_can_be_added_to_a_kept_model_without_torch(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "cfnade.model.training", raising=False)
    model = ImplicitCFNADE.load(KEPT / name)
    n_items = model.n_features_in_
    ids = np.append(model.catalogue_.ids, "film-new")
    more = Interactions(csr_array(np.ones((2, n_items + 1))), np.arange(2), ids)
    with pytest.raises(MissingExtraError, match=r"pip install 'cfnade\[train\]'"):
        model.partial_fit(more, n_epochs=1)
    assert model.n_features_in_ == n_items
    model.partial_fit(more, n_epochs=0)
    assert "film-new" in model.recommend_for(["film-1"], n=n_items)[0]


@pytest.mark.parametrize("name", ["v1", FACTORS])
def test_the_settings_of_a_kept_model_still_have_a_meaning(name):
    model = ImplicitCFNADE.load(KEPT / name)
    settings = FitSettings.of(model.get_params(deep=False))
    plan = FitPlan.of_size(60, 12, 300, settings)
    assert (plan.model.n_hidden, plan.model.alpha, plan.training.item_l2) == (4, 30.0, 0.1)
    assert plan.training.learning_rate == 0.02 and plan.training.max_epochs == 30
    assert settings.recipe.readout == Readout(direct_neighbours=3)
    assert model.readout_.direct_neighbours == 3 and None not in vars(model.readout_).values()


def test_a_network_with_units_that_earlier_versions_added_answers_as_it_did(tmp_path):
    """Two networks in one, and a factorisation beside them.

    Similar items differ: they left out the units of the factorisation, which now count too.
    """
    model = ImplicitCFNADE.load(KEPT / FACTORS)
    assert model.scorer_.network.config.n_hidden == 14
    model.save(tmp_path / "again")
    for one in (model, ImplicitCFNADE.load(tmp_path / "again")):
        for answer in json.loads((KEPT / f"{FACTORS}.json").read_text(encoding="utf-8")):
            logits = one.scores(one.catalogue_.history(answer["history"]))
            np.testing.assert_allclose(logits[0], answer["logits"], atol=2e-6)
            assert one.recommend_for(answer["history"], n=4)[0].tolist() == answer["items"]
            explained = one.explain(answer["history"], "film-5")
            assert len(explained.effects) == len(answer["history"])
        assert one.similar_items("film-3", N=3)[0].tolist() == ["film-3", "film-11", "film-1"]
        assert 0 < one.probability({"film-1": 3}, ["film-4"])[0] < 1


def test_more_data_is_learnt_by_a_network_with_units_that_earlier_versions_added():
    pytest.importorskip("torch")
    model = ImplicitCFNADE.load(KEPT / FACTORS)
    before = model.scores(csr_array(np.eye(12)))
    model.partial_fit(csr_array(np.ones((4, 12)) - np.eye(4, 12)), n_epochs=1)
    after = model.scores(csr_array(np.eye(12)))
    assert np.isfinite(after).all() and (after != before).any()
    assert model.scorer_.network.config.n_hidden == 14


def test_a_model_without_a_calibrator_says_so_and_can_be_calibrated(tmp_path):
    model = ImplicitCFNADE.load(KEPT / "v1")
    with pytest.raises(ConfigError, match="this model has no calibrated probabilities"):
        model.probability({"film-1": 3})
    rng = np.random.default_rng(0)
    has_it = rng.random((40, 12)) < 0.4
    is_known = rng.random((40, 12)) < 0.8
    known, later = (csr_array((has_it & part).astype(float)) for part in (is_known, ~is_known))
    model.calibrate(known, later).save(tmp_path / "calibrated")
    again = ImplicitCFNADE.load(tmp_path / "calibrated")
    found = again.probability({"film-1": 3}, ["film-4", "film-1"])
    np.testing.assert_array_equal(found, model.probability({"film-1": 3}, ["film-4", "film-1"]))
    assert 0 < found[0] < 1 and np.isnan(found[1])
