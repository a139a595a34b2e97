from __future__ import annotations

import numpy as np
import pytest

from cfnade.baselines import ItemKNN
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError


def vectors(values: np.ndarray, similarity: str) -> np.ndarray:
    """What items are compared by, user by user, as the formulas say."""
    likes = values > 0
    n_users, n_items = values.shape
    of_user = np.log(n_items) - np.log1p(likes.sum(axis=1))
    if similarity == "bm25":
        length = values.sum(axis=0)
        weighted = np.zeros_like(values)
        for u in range(n_users):
            for i in range(n_items):
                norm = 1 - 0.75 + 0.75 * length[i] / length.mean()
                weighted[u, i] = values[u, i] * 2.2 / (1.2 * norm + values[u, i]) * of_user[u]
        return weighted
    if similarity == "tfidf":
        values = np.sqrt(values) * of_user[:, None]
    return values / np.linalg.norm(values, axis=0)


@pytest.mark.parametrize("similarity", ["cosine", "tfidf", "bm25"])
@pytest.mark.parametrize("weigh_counts", [False, True])
def test_scores_add_up_the_similarities_that_are_kept(counts, similarity, weigh_counts) -> None:
    n_kept = 4 if weigh_counts else 20  # likes alone tie, and ties are cut as they come
    model = ItemKNN(n_kept, similarity, weigh_counts, n_threads=1).fit(counts)
    ratings = RelativeRating().fit(counts).transform(counts).toarray()
    values = ratings if weigh_counts else (ratings > 0).astype(float)
    by = vectors(values, similarity)
    S = by.T @ by
    for item in range(20):
        weakest_kept = np.sort(S[item])[-n_kept]
        S[item, S[item] < weakest_kept - 1e-9] = 0.0
    np.testing.assert_allclose(model.scores(counts), values @ S, rtol=1e-5, atol=1e-5)


def test_invalid_settings_are_refused(counts) -> None:
    with pytest.raises(ConfigError, match="similarity must be one of cosine, tfidf, bm25; got 'x'"):
        ItemKNN(similarity="x").fit(counts)
    with pytest.raises(ConfigError, match="neighbours must be a whole number of at least 1, got 0"):
        ItemKNN(neighbours=0).fit(counts)
