from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.feedback import popularity_logit
from cfnade.fit import new_items
from cfnade.fit.new_items import with_new_items
from tests.networks import random_counts, random_numpy_network

N_KNOWN, N_ITEMS = 20, 26


@pytest.fixture
def weights():
    return random_numpy_network(N_KNOWN, n_neighbours=0).weights


@pytest.mark.parametrize("n_nearest", [1, 4, 50])
def test_new_items_start_at_the_mean_of_those_their_users_have_most(
    weights, n_nearest, monkeypatch
):
    monkeypatch.setattr(new_items, "START_NEIGHBOURS", n_nearest)
    monkeypatch.setattr(new_items, "_ROWS", 4)  # in more than one block
    counts = random_counts(50, N_ITEMS, seed=3)
    grown = with_new_items(weights, counts)
    likes, popularity = counts.toarray() > 0, popularity_logit(counts)
    for item in range(N_KNOWN, N_ITEMS):
        cosine = np.array([
            (likes[:, item] & likes[:, known]).sum() / np.sqrt(likes[:, known].sum())
            for known in range(N_KNOWN)
        ])  # fmt: skip
        nearest = np.argsort(-cosine)[:n_nearest]
        share = cosine[nearest] / cosine[nearest].sum()
        for name in ("like_weight", "output_weight"):
            np.testing.assert_allclose(grown[name][item], share @ weights[name][nearest], atol=1e-5)
        bias = share @ (weights["output_bias"] - popularity[:N_KNOWN])[nearest]
        np.testing.assert_allclose(grown["output_bias"][item], popularity[item] + bias, atol=1e-5)


def test_known_rows_are_kept_and_rows_of_a_are_zero(weights):
    grown = with_new_items(weights, random_counts(50, N_ITEMS))
    for name, weight in weights.items():
        np.testing.assert_array_equal(grown[name][: len(weight)], weight)
        assert grown[name].dtype == np.float32
    assert (grown["dislike_weight"][N_KNOWN:] == 0).all()
    assert with_new_items(weights, random_counts(50, N_KNOWN)).keys() == weights.keys()


def test_an_item_without_company_starts_with_zeros_and_its_popularity(weights):
    counts = np.zeros((4, N_KNOWN + 2))
    counts[0, N_KNOWN] = counts[1:, 0] = 1.0  # the last has nobody at all
    grown = with_new_items(weights, csr_array(counts))
    popularity = popularity_logit(csr_array(counts))
    assert (grown["like_weight"][N_KNOWN:] == 0).all()
    assert (grown["output_weight"][N_KNOWN:] == 0).all()
    np.testing.assert_array_equal(grown["output_bias"][N_KNOWN:], popularity[N_KNOWN:])
