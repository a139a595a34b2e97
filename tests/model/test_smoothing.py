from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.data.splitting import hold_out
from cfnade.model.smoothing import (
    N_REFERENCE,
    cold_reference,
    discount,
    with_smoothed_popularity,
)
from cfnade.readout import Readout, ReadoutConfig, ReadoutMaker
from tests.networks import random_counts, random_numpy_network


@pytest.fixture(scope="module")
def long_tail() -> tuple[np.ndarray, np.ndarray]:
    """Watchers of a long-tailed catalogue, and of as many other users; some items have none."""
    rng = np.random.default_rng(0)
    wanted = 0.3 * rng.pareto(1.0, 60_000)
    return rng.poisson(wanted), rng.poisson(wanted)


def test_the_expected_watchers_are_those_of_as_many_other_users(long_tail):
    n_watchers, of_others = long_tail
    D = discount(n_watchers)
    assert 0.1 < D < 0.9
    for r, close in ((1, 0.03), (2, 0.3), (3, 0.5), (5, 0.7)):
        found = of_others[n_watchers == r].mean()
        assert found == pytest.approx(r - D, abs=close)
        assert found < r - 0.1


def test_a_cold_item_stands_with_those_that_are_wanted_as_much(long_tail):
    n_watchers, of_others = long_tail
    # A catalogue that lists few items without watchers, those that others have.
    is_listed = (n_watchers > 0) | (of_others > 2)
    n_watchers, of_others = n_watchers[is_listed], of_others[is_listed]
    reference = cold_reference(n_watchers)
    assert reference.size == N_REFERENCE
    assert np.unique(n_watchers[reference]).size == 1  # with thousands of items, all alike
    n_none, n_one = (np.count_nonzero(n_watchers == r) for r in (0, 1))
    expected = n_one / n_none + discount(n_watchers)
    assert abs(n_watchers[reference][0] - expected) <= 0.5
    assert n_watchers[reference][0] > 2


def test_where_most_have_no_watchers_they_stay_last():
    assert cold_reference(np.array([0] * 50 + [1] * 10 + [2] * 20)).size == 0
    assert cold_reference(np.array([3, 4, 5])).size == 0  # no cold items
    assert cold_reference(np.zeros(4, dtype=int)).size == 0
    assert discount(np.array([3, 4, 5])) == 0.0  # nothing says that any of it was luck
    assert discount(np.array([1, 1, 7])) == 0.9  # and never all of it


def test_logits_are_discounted_and_cold_ones_are_the_mean_of_their_reference():
    network = random_numpy_network(20, n_neighbours=0)
    n_watchers = np.array([0, 0] + [1] * 8 + [2] * 2 + [5] * 8)
    before = network.logits(random_counts(7, 20))
    after = with_smoothed_popularity(network, n_watchers).logits(random_counts(7, 20))
    np.testing.assert_array_equal(network.logits(random_counts(7, 20)), before)  # not changed
    D = 1 - 2 * 2 / 8
    known = slice(2, None)
    expected = before[:, known] + np.log((n_watchers[known] - D) / n_watchers[known])
    np.testing.assert_allclose(after[:, known], expected, atol=1e-5)
    reference = cold_reference(n_watchers)  # 8 / 2 + D = 4.5 watchers: fives first, then twos
    assert n_watchers[reference][:8].tolist() == [5] * 8
    mean = after[:, reference].mean(axis=1)
    np.testing.assert_allclose(after[:, :2], np.stack([mean, mean], axis=1), atol=1e-5)


def test_a_readout_smooths_if_it_is_told_to():
    ratings = random_counts(5, 20, density=0.1)
    ratings.data[:] = 1.0
    network = random_numpy_network(20, n_neighbours=0)
    n_watchers = np.bincount(ratings.indices, minlength=20)
    assert (n_watchers == 0).any() and discount(n_watchers) > 0
    readout = Readout(direct_neighbours=0)
    plain, smooth = (
        ReadoutMaker(ReadoutConfig(direct=False, smooth_popularity=on), ratings)
        .add(network, readout)
        .logits(ratings)
        for on in (False, True)
    )
    np.testing.assert_array_equal(plain, network.logits(ratings))
    expected = with_smoothed_popularity(network, n_watchers).logits(ratings)
    np.testing.assert_array_equal(smooth, expected)


def test_a_fit_on_a_long_tail_is_better_with_it():
    rng = np.random.default_rng(0)
    wanted = np.minimum(0.5, 0.003 * rng.pareto(0.6, 2000))
    dense = (rng.random((120, 2000)) < wanted).astype(float)
    counts = csr_array(dense[:, dense.any(axis=0)])  # items that somebody has
    train, held_out = hold_out(counts, share=0.2, rng=0)
    settings = {"n_hidden": 8, "max_epochs": 10, "item_l2_trials": 1}
    plain, smooth = (
        ImplicitCFNADE(**settings, smooth_popularity=on)
        .fit(train, validation=held_out)
        .validation_mpr_
        for on in (False, True)
    )
    assert smooth < 0.95 * plain
