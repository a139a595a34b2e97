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

pytestmark = pytest.mark.filterwarnings("ignore")
on_spark = pytest.mark.scale

SETTINGS = {"factors": 4, "alpha": 10.0, "regularization": 0.05, "iterations": 6}


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    taste = rng.integers(3, size=60)
    liked = rng.random((60, 18)) < np.where(taste[:, None] == np.arange(18) % 3, 0.6, 0.1)
    return csr_array(liked * rng.integers(1, 6, liked.shape).astype(float))


@on_spark
def test_each_half_step_is_that_of_spark(spark, counts):
    """With the same seed, three iterations of Spark are two, then ours for items and users."""

    def of_spark(iterations):
        imf = IMFSpark(**{**SETTINGS, "iterations": iterations})
        model = imf._als(ratings, spark)
        found = np.zeros((60, 4), np.float32), np.zeros((18, 4), np.float32)
        for factors, frame in zip(found, (model.userFactors, model.itemFactors), strict=True):
            for row in frame.collect():
                factors[row["id"]] = row["features"]
        return found

    ratings = RelativeRating().fit(counts).transform(counts)
    imf, (before, _), (users, items) = IMFSpark(**SETTINGS), of_spark(2), of_spark(3)
    own = imf.half_step(ratings.T.tocsr(), before)
    np.testing.assert_allclose(own, items, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(imf.half_step(ratings, own), users, rtol=2e-4, atol=2e-5)
    fitted = IMFSpark(**{**SETTINGS, "iterations": 3}, session=lambda: spark).fit(counts)
    np.testing.assert_allclose(fitted.item_factors_, items, rtol=1e-6)


@on_spark
def test_without_spark_the_loss_is_as_low(spark, counts):
    """From other random numbers, both come to where the loss is the same within 5 %."""
    few = {**SETTINGS, "iterations": 10}  # at 30 a small stack of Java overflows
    losses = [
        loss(IMFSpark(**few, random_state=seed, session=session).fit(counts), counts)
        for session in (None, lambda: spark)
        for seed in (0, 1)
    ]
    assert max(losses) < 1.05 * min(losses)


def loss(imf, counts):
    """What MLlib minimises, pair by pair."""
    ratings = imf.relative_rating_.transform(counts)
    users, items = imf.half_step(ratings, imf.item_factors_), imf.item_factors_
    r, total = ratings.toarray(), 0.0
    for user, row in enumerate(r):
        for item, rating in enumerate(row):
            error = float(rating > 0) - float(users[user] @ items[item])
            total += (1.0 + 10.0 * rating) * error**2
            if rating > 0:  # a part of the penalty for each like
                total += 0.05 * float(users[user] @ users[user] + items[item] @ items[item])
    return total


def test_without_spark_every_step_lowers_the_loss_to_where_no_change_of_an_item_does(counts, rng):
    losses = [
        loss(IMFSpark(**{**SETTINGS, "iterations": n}, session=None).fit(counts), counts)
        for n in (1, 2, 4, 8, 100)
    ]
    assert losses == sorted(losses, reverse=True)
    imf = IMFSpark(**{**SETTINGS, "iterations": 300}, session=None).fit(counts)
    least, best = loss(imf, counts), imf.item_factors_
    for _ in range(10):
        imf.item_factors_ = best + 0.02 * rng.normal(size=best.shape).astype(np.float32)
        assert loss(imf, counts) > least


def test_without_spark_rows_without_a_like_are_zero_and_a_seed_repeats(counts):
    wide = csr_array((counts.data, counts.indices, counts.indptr), shape=(60, 20))
    first, again, other = (
        IMFSpark(**SETTINGS, session=None, random_state=seed).fit(wide) for seed in (0, 0, 1)
    )
    assert (first.item_factors_[18:] == 0).all() and (first.item_factors_[:18] != 0).all()
    np.testing.assert_array_equal(first.item_factors_, again.item_factors_)
    assert np.abs(first.item_factors_ - other.item_factors_).max() > 0.01


def test_the_users_factors_solve_the_weighted_least_squares_literally(counts):
    imf = IMFSpark(**SETTINGS)
    imf.item_factors_ = np.random.default_rng(1).normal(size=(18, 4)).astype(np.float32)
    ratings = RelativeRating().fit(counts).transform(counts)
    found, Y = imf.half_step(ratings, imf.item_factors_), imf.item_factors_.astype(float)
    for user in range(5):
        r = ratings[[user]].toarray()[0]
        confidence, like = 1.0 + 10.0 * r, (r > 0).astype(float)

        def gradient(x, confidence=confidence, like=like):
            return -2 * Y.T @ (confidence * (like - Y @ x)) + 2 * 0.05 * like.sum() * x

        np.testing.assert_allclose(gradient(found[user].astype(float)), 0.0, atol=1e-4)


@on_spark
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


@on_spark
def test_it_finds_the_withheld_items_of_a_taste(spark, counts):
    imf = IMFSpark(**{**SETTINGS, "factors": 3}, session=lambda: spark).fit(counts)
    history = np.zeros((1, 18))
    history[0, [0, 3, 6]] = 2.0
    scores = imf.scores(csr_array(history))[0]
    own, other = scores[9::3], np.delete(scores, np.arange(0, 18, 3))
    assert own.min() > other.max()
    assert np.isfinite(imf.scores(csr_array((1, 18)))).all()  # an empty history


@on_spark
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
