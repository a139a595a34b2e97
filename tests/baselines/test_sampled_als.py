from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import SampledALS
from cfnade.errors import ConfigError
from tests.baselines.test_weighted_als import new_users, solved

SETTINGS = {"factors": 3, "negatives": 1.5, "regularization": 0.05, "n_threads": 1}


def drawn_shares(likes: np.ndarray, known: np.ndarray, negatives: float, scheme: str) -> np.ndarray:
    """How likely each pair is to be drawn, by the definition of each scheme."""
    shares = np.zeros(likes.shape)
    rarity = 1.0 / np.maximum(known.sum(axis=0), 1)
    for user, row in enumerate(likes):
        n_drawn = negatives * (row.sum() if scheme == "user" else known.sum() / len(known))
        for item in range(len(row)):
            of_item = rarity[item] / rarity.sum() if scheme == "item" else 1 / len(row)
            shares[user, item] = 1.0 - np.exp(-n_drawn * of_item)  # once or more
    return shares


@pytest.mark.parametrize("scheme", ["uniform", "user", "item"])
def test_scores_solve_the_problem_of_each_user_with_expected_negatives(counts, rng, scheme) -> None:
    model = SampledALS(**SETTINGS, scheme=scheme, members=2, iterations=3).fit(counts)
    known, histories = (counts.toarray() > 0) * 1.0, new_users(rng)
    likes = (histories.toarray() > 0) * 1.0
    shares = drawn_shares(likes, known, 1.5, scheme)
    expected = np.zeros(likes.shape)
    for Y in model.item_factors_.astype(float):
        for user, (row, share) in enumerate(zip(likes, shares, strict=True)):
            weights = np.where(row > 0, 1.0, share)
            expected[user] += Y @ solved(row, weights, Y, 0.05 * weights.sum()) / 2
    np.testing.assert_allclose(model.scores(histories), expected, rtol=1e-3, atol=1e-5)


def test_training_minimises_the_loss_on_likes_and_drawn_pairs_alone(counts) -> None:
    model = SampledALS(**{**SETTINGS, "regularization": 0.2}, members=1, iterations=300)
    model.fit(counts)
    seed = int(np.random.SeedSequence(0).generate_state(1)[0])
    pairs = model._with_negatives(csr_array((counts > 0).astype(np.float32)), seed)
    is_drawn = np.zeros(counts.shape)
    is_drawn[np.repeat(np.arange(60), np.diff(pairs.indptr)), pairs.indices] = 1.0
    values, (Y,) = pairs.toarray(), model.item_factors_.astype(float)
    X = np.stack([
        solved(t, w, Y, 0.2 * w.sum()) for t, w in zip(values, is_drawn, strict=True)
    ])  # fmt: skip
    for item in range(20):
        w = is_drawn[:, item]
        np.testing.assert_allclose(Y[item], solved(values[:, item], w, X, 0.2 * w.sum()), atol=2e-3)


@pytest.mark.parametrize("scheme", ["uniform", "user", "item"])
def test_negatives_are_drawn_as_often_as_the_scheme_says(scheme) -> None:
    rng = np.random.default_rng(0)
    popularity, activity = rng.uniform(0.02, 0.3, 30), rng.uniform(0.3, 2.0, (200, 1))
    known = (rng.random((200, 30)) < activity * popularity).astype(np.float32)
    model = SampledALS(scheme=scheme, factors=2, negatives=2.0, iterations=1).fit(csr_array(known))
    drawn = np.zeros(known.shape)
    for seed in range(200):
        pairs = model._with_negatives(csr_array(known), seed)
        assert pairs.has_canonical_format and (pairs.toarray() == known).all()
        users = np.repeat(np.arange(200), np.diff(pairs.indptr))
        drawn[users, pairs.indices] += 1 / 200
    expected = np.where(known > 0, 1.0, drawn_shares(known, known, 2.0, scheme))
    np.testing.assert_allclose(drawn.sum(axis=0), expected.sum(axis=0), rtol=0.05)
    np.testing.assert_allclose(drawn.sum(axis=1), expected.sum(axis=1), rtol=0.15)


def test_members_differ_and_stops_equal_fits_of_that_length(counts) -> None:
    on_the_way = list(SampledALS(**SETTINGS).fits(counts, [2, 4]))
    assert [model.iterations for model in on_the_way] == [2, 4]
    for model in on_the_way:
        alone = SampledALS(**{**SETTINGS, "n_threads": 2}, iterations=model.iterations).fit(counts)
        np.testing.assert_array_equal(model.scores(counts), alone.scores(counts))
    first, second, _ = on_the_way[0].item_factors_
    assert np.abs(first - second).max() > 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"members": 0}, "members must be a whole number of at least 1"),
        ({"negatives": 0.0}, "negatives must be above 0"),
        ({"scheme": "all"}, "scheme must be"),
    ],
)
def test_invalid_settings_are_refused(counts, settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        SampledALS(**settings).fit(counts)
