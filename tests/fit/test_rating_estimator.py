from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import CFNADE
from cfnade.data.rating_table import read_ratings
from cfnade.errors import ArtifactError, ConfigError, DataError
from tests.planted_ratings import SMALL, planted_ratings


@pytest.fixture(scope="module", params=["items", "users"])
def model(request):
    return CFNADE(by=request.param, **SMALL).fit(planted_ratings())


def test_it_predicts_held_out_ratings(model):
    table = read_ratings(planted_ratings())
    train, test = table.split(0.1, 0)
    fitted = CFNADE(**{**model.get_params(), "random_state": 1}).fit(train)
    rows, columns = test.pairs
    predicted = [fitted.predict(r, [c])[0] for r, c in zip(rows[:80], columns[:80], strict=True)]
    rmse = np.sqrt(np.mean((np.array(predicted) - test.values[:80]) ** 2))
    assert rmse < 1.0 < np.std(test.values)
    assert fitted.validation_rmse_ < 1.05
    assert all(0.2 <= t <= 5.0 for t in fitted.temperatures_)


def test_probabilities_add_up_and_predictions_are_on_the_scale(model):
    probabilities = model.predict_proba(3)
    assert probabilities.shape == (40, 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert ((model.predict(3) >= 1) & (model.predict(3) <= 5)).all()
    np.testing.assert_allclose(model.predict(3, [7, 2]), model.predict(3)[[7, 2]])
    np.testing.assert_allclose(model.predict(3, 7), model.predict(3)[[7]])


def test_anyone_is_predicted_by_their_ratings_alone(model):
    expected = model.predict({0: 5, 2: 5, 4: 4, 6: 5, 1: 1, 3: 2, 5: 1})
    assert expected[8::2].mean() > expected[9::2].mean() + 0.5
    ids, stars = model.recommend({0: 5, 2: 5, 4: 4, 1: 1, 3: 2}, 5)
    assert (ids % 2 == 0).mean() > 0.7 and (np.diff(stars) <= 0).all()
    assert not set(ids) & {0, 1, 2, 3, 4}


def test_recommend_leaves_out_what_was_rated(model):
    rated = set(planted_ratings()[[4]].nonzero()[1].tolist())
    ids, stars = model.recommend(4, 5)
    assert not set(ids.tolist()) & rated
    every, _ = model.recommend(4, 100, filter_already_rated_items=False)
    assert len(every) == 40
    np.testing.assert_allclose(stars, model.predict(4, ids))


def test_a_saved_model_predicts_the_same(model, tmp_path):
    model.save(tmp_path / "model", metrics={"rmse": 0.9})
    loaded = CFNADE.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(3), model.predict_proba(3))
    np.testing.assert_array_equal(loaded.predict({1: 5}), model.predict({1: 5}))
    assert loaded.get_params() == model.get_params()
    assert loaded.validation_rmse_ in (model.validation_rmse_, None)
    loaded.save(tmp_path / "again")
    assert CFNADE.load(tmp_path / "again").temperatures_ == model.temperatures_


def test_a_saved_model_needs_no_torch(model, tmp_path):
    model.save(tmp_path / "model")
    code = (
        "import sys; sys.modules['torch'] = None; from cfnade import CFNADE; "
        f"model = CFNADE.load({str(tmp_path / 'model')!r}); print(len(model.predict({{0: 5}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "40", done.stderr


@pytest.mark.parametrize(
    ("user", "items", "message"),
    [
        ({}, None, "without ratings cannot be predicted"),
        ({0: 9}, None, "1 rating not on the scale 1, 2, 3, 4, 5: the first is 9"),
        ({999: 3}, None, "999"),
        (999, None, "user 999 is not in this model"),
        (3, [999], "999"),
        (3, [[0]], r"\[0\] is not a single item id"),
        (3, [0, [1]], r"\[1\] is not a single item id"),
        ([3, 4], None, "give one user id, or ratings by item id"),
        ({0: "five"}, None, "ratings must be numbers"),
        ({0: float("nan")}, None, "the first is nan"),
    ],
)
def test_bad_questions_end_in_one_line(model, user, items, message):
    with pytest.raises(DataError, match=message) as error:
        model.predict(user, items)
    assert "\n" not in str(error.value)


def test_a_user_without_ratings_is_named(model):
    ratings = planted_ratings().tolil()
    ratings[5] = 0
    fitted = CFNADE(**{**model.get_params(), "max_epochs": 1}).fit(csr_array(ratings))
    with pytest.raises(DataError, match="a user without ratings"):
        fitted.predict(5)


@pytest.mark.parametrize(
    "setting",
    [
        {"by": "films"},
        {"n_hidden": 0},
        {"ordinal_weight": 1.5},
        {"learning_rate": 0.0},
        {"validation_share": 1.0},
        {"n_factors": -1},
        {"share": "no"},
    ],
)
def test_bad_settings_are_refused(setting):
    with pytest.raises(ConfigError):
        CFNADE(**{**SMALL, **setting}).fit(planted_ratings())
    with pytest.raises(ConfigError, match="n_hiden"):
        CFNADE().set_params(n_hiden=3)


def test_before_fit_a_line_says_so(tmp_path):
    for call in (lambda: CFNADE().predict(1), lambda: CFNADE().save(tmp_path / "model")):
        with pytest.raises(ConfigError, match="not fitted yet"):
            call()


@pytest.mark.parametrize("settings", [{"n_layers": 2}, {"n_factors": 4}, {"share": False}])
def test_the_other_versions_learn_too(settings):
    model = CFNADE(**{**SMALL, **settings}).fit(planted_ratings())
    assert model.validation_rmse_ < 1.1


def test_a_resumed_fit_ends_like_an_uninterrupted_one(tmp_path, monkeypatch):
    from cfnade.progress import Callbacks

    def stop(epoch):
        if epoch.number == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("cfnade.fit.rating_estimator._CHECKPOINT_SECONDS", 0.0)
    settings = {**SMALL, "max_epochs": 8}
    whole = CFNADE(**settings).fit(planted_ratings())
    place = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        CFNADE(**settings).fit(
            planted_ratings(), checkpoint=place, callbacks=Callbacks(on_epoch=stop)
        )
    resumed = CFNADE(**settings).fit(planted_ratings(), checkpoint=place, resume=True)
    np.testing.assert_array_equal(whole.predict(3), resumed.predict(3))


def test_a_fit_without_a_checkpoint_is_resumed_from_the_beginning(tmp_path, caplog):
    settings = {**SMALL, "max_epochs": 2}
    resumed = CFNADE(**settings).fit(planted_ratings(), checkpoint=tmp_path / "c", resume=True)
    assert f"no checkpoint in {tmp_path / 'c'}: starting from the beginning" in caplog.text
    whole = CFNADE(**settings).fit(planted_ratings())
    np.testing.assert_array_equal(whole.predict(3), resumed.predict(3))


def test_a_forged_temperature_or_setting_is_refused(model, tmp_path):
    for forged in ([0.0, 1.0], [1.0], "hot", 5):
        model.save(tmp_path / "model", training={"temperatures": forged})
        with pytest.raises(ArtifactError, match="cannot be read"):
            CFNADE.load(tmp_path / "model")
    other = "users" if model.by == "items" else "items"
    model.save(tmp_path / "model", settings={"by": other})
    with pytest.raises(ArtifactError, match="other ids"):
        CFNADE.load(tmp_path / "model")
