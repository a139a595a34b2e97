"""IMF on Spark MLlib, and how its settings translate to those of `implicit`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import IMF
from cfnade.cli.cmd_compare import MODELS
from cfnade.compare.comparison import compare
from cfnade.compare.sweep import sweep
from cfnade.data.interactions import Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError
from cfnade.scale.als import IMFSpark, imf_spark

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]

SETTINGS = {"factors": 4, "alpha": 10.0, "regularization": 0.05, "iterations": 6}


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    taste = rng.integers(3, size=60)
    liked = rng.random((60, 18)) < np.where(taste[:, None] == np.arange(18) % 3, 0.6, 0.1)
    return csr_array(liked * rng.integers(1, 6, liked.shape).astype(float))


def test_the_users_factors_are_those_of_spark(spark, counts):
    """Spark ends with a half step for the users: ours, given its items, is the same."""
    imf = IMFSpark(**SETTINGS, session=lambda: spark).fit(counts)
    ratings = imf.relative_rating_.transform(counts)
    own = imf.user_factors(ratings)
    model = imf._als(ratings)
    of_items = {row["id"]: row["features"] for row in model.itemFactors.collect()}
    for item, factors in of_items.items():
        np.testing.assert_allclose(imf.item_factors_[item], factors, rtol=1e-6)
    for row in model.userFactors.collect():
        np.testing.assert_allclose(own[row["id"]], row["features"], rtol=2e-4, atol=2e-5)


def test_the_users_factors_solve_the_weighted_least_squares_literally(counts):
    imf = IMFSpark(**SETTINGS)
    imf.item_factors_ = np.random.default_rng(1).normal(size=(18, 4)).astype(np.float32)
    ratings = RelativeRating().fit(counts).transform(counts)
    found, Y = imf.user_factors(ratings), imf.item_factors_.astype(float)
    for user in range(5):
        r = ratings[[user]].toarray()[0]
        confidence, like = 1.0 + 10.0 * r, (r > 0).astype(float)

        def gradient(x, confidence=confidence, like=like):
            return -2 * Y.T @ (confidence * (like - Y @ x)) + 2 * 0.05 * like.sum() * x

        np.testing.assert_allclose(gradient(found[user].astype(float)), 0.0, atol=1e-4)


def test_where_all_have_as_many_likes_implicit_with_n_times_the_penalty_is_the_same(spark):
    """Every user has 6 items and every item 12 users, so `regularization = reg * 6` by users."""
    rng = np.random.default_rng(2)
    liked = np.array([[(i - 3 * u // 4) % 12 < 6 for i in range(12)] for u in range(24)])
    counts = csr_array(liked * rng.integers(1, 4, liked.shape).astype(float))
    assert set(liked.sum(axis=1)) == {6}
    pytest.importorskip("implicit")
    spark_imf = IMFSpark(**SETTINGS, session=lambda: spark).fit(counts)
    imf = IMF(factors=4, alpha=10.0, regularization=0.05 * 6, iterations=1).fit(counts)
    imf.als_.item_factors = spark_imf.item_factors_
    ours, theirs = spark_imf.scores(counts), imf.scores(counts)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_it_finds_the_withheld_items_of_a_taste(spark, counts):
    imf = IMFSpark(**{**SETTINGS, "factors": 3}, session=lambda: spark).fit(counts)
    history = np.zeros((1, 18))
    history[0, [0, 3, 6]] = 2.0
    scores = imf.scores(csr_array(history))[0]
    own, other = scores[9::3], np.delete(scores, np.arange(0, 18, 3))
    assert own.min() > other.max()
    assert np.isfinite(imf.scores(csr_array((1, 18)))).all()  # an empty history


def test_it_enters_a_comparison_and_a_sweep_by_its_name(spark, counts):
    assert MODELS["imf-spark"] is imf_spark
    data = Interactions(counts, np.arange(60), np.arange(18))
    start = {**SETTINGS, "iterations": 2}
    small = replace(imf_spark(), start=start, grid={"regularization": (0.05, 0.1)})
    table = compare(data, {"imf-spark": small}, max_trials=2)
    assert table.results[0].model == "imf-spark" and 0 < table.results[0].metrics["mpr"] < 50
    swept = sweep(data, [3.0], models={"imf-spark": small}, max_trials=1)
    assert [(p.model, p.settings["alpha"]) for p in swept.points] == [("imf-spark", 3.0)]


def test_settings_without_meaning_are_refused(counts):
    with pytest.raises(ConfigError, match="regularization > 0"):
        IMFSpark(regularization=0.0).fit(counts)
