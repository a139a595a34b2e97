"""Recommendations as frames: the same answers, with names and calibrated probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade import ConfigError, ImplicitCFNADE, MissingExtraError
from cfnade.answer import result_frame
from cfnade.answer.probability import Calibrator
from cfnade.answer.result_frame import library_of
from cfnade.data.catalogue import Catalogue
from tests.networks import SMALL, group_counts, random_counts, random_model

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

COLUMNS = ["item_id", "name", "rank", "probability", "score"]
LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}
CURVE = Calibrator(-3.0, (0.0,), (0.5, 1.0), 0.1, 1, 20, 0.1, 100)


@pytest.fixture(scope="module")
def model():
    model = random_model()
    named = Catalogue(model.catalogue_.ids, np.array([f"Item {k}" for k in range(20)], object))
    return ImplicitCFNADE.from_parts(model.scorer_, named, calibrator=CURVE)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_has_the_same_answers_with_names_and_probabilities(model, library):
    counts = random_counts()[[3, 5]]
    ids, scores = model.recommend(["ann", "bea"], counts, 4)
    frame = model.recommend(["ann", "bea"], counts, 4, as_frame=library)
    assert isinstance(frame, LIBRARIES[library])
    assert list(frame.columns) == ["user_id", *COLUMNS]
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    assert columns["user_id"].tolist() == ["ann"] * 4 + ["bea"] * 4
    assert columns["item_id"].tolist() == ids.ravel().tolist()
    assert columns["name"].tolist() == [f"Item {item[1:]}" for item in ids.ravel()]
    assert columns["rank"].tolist() == [1, 2, 3, 4] * 2
    np.testing.assert_array_equal(columns["score"], scores.ravel())
    for row in range(2):
        expected = model.probability(counts[[row]], ids[row])
        np.testing.assert_allclose(columns["probability"][4 * row :][:4], expected, rtol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_single_user_and_anyones_history(model, library):
    counts = random_counts()
    frame = model.recommend(7, counts[7], 3, as_frame=library)
    assert list(frame["user_id"]) == [7, 7, 7]
    history = {"i0": 3, "i4": 1}
    ids, _ = model.recommend_for(history, 3)
    frame = model.recommend_for(history, 3, as_frame=library)
    assert list(frame.columns) == COLUMNS and list(frame["item_id"]) == ids.tolist()
    np.testing.assert_allclose(frame["probability"], model.probability(history, ids), rtol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_probability_is_missing_and_never_a_score(model, library):
    uncalibrated = random_model()
    frame = uncalibrated.recommend_for({"i0": 3}, 4, as_frame=library)
    shown = pd.DataFrame({name: frame[name].to_list() for name in frame.columns})
    assert shown["probability"].isna().all() and shown["score"].notna().all()
    frame = model.recommend_for({"i0": 3}, 20, filter_already_liked_items=False, as_frame=library)
    shown = pd.DataFrame({name: frame[name].to_list() for name in frame.columns})
    assert shown.set_index("item_id")["probability"].isna().to_dict() == {
        f"i{k}": k == 0 for k in range(20)
    }
    if library == "polars":
        assert frame["probability"].null_count() == 1


def test_lists_of_different_lengths_and_nobody_at_all(model):
    counts = random_counts()
    frame = model.recommend([0, 1], counts[[0, 1]], 20, as_frame=True)
    lengths = frame.groupby("user_id").size().tolist()
    assert lengths == [20 - counts[[row]].nnz for row in range(2)]
    assert frame.groupby("user_id")["rank"].max().tolist() == lengths
    nobody = model.recommend([], counts[[]], as_frame=True)
    assert list(nobody.columns) == ["user_id", *COLUMNS] and len(nobody) == 0


def test_the_library_is_that_of_the_training_data_else_what_is_installed(monkeypatch):
    pytest.importorskip("torch")
    pairs = group_counts().tocoo()
    rows = {"user": pairs.row, "item": pairs.col, "count": pairs.data}
    model = ImplicitCFNADE(**SMALL).fit(pl.DataFrame(rows))
    assert isinstance(model.recommend_for({0: 1}, as_frame=True), pl.DataFrame)
    assert isinstance(model.recommend_for({0: 1}, as_frame="pandas"), pd.DataFrame)
    assert library_of(True, None) == "pandas"
    installed = {"polars"}
    monkeypatch.setattr(result_frame, "find_spec", lambda name: name in installed or None)
    assert library_of(True, None) == "polars"
    with pytest.raises(MissingExtraError, match=r"'pandas' needs pandas; .*pip install pandas$"):
        library_of("pandas", None)
    installed.clear()
    with pytest.raises(MissingExtraError, match=r"needs pandas or polars; .*pip install pandas$"):
        library_of(True, None)


def test_another_library_is_refused(model):
    with pytest.raises(ConfigError, match="as_frame must be one of pandas, polars; got 'arrow'"):
        model.recommend_for({"i0": 1}, as_frame="arrow")
