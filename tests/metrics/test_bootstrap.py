from __future__ import annotations

import numpy as np
import pytest

from cfnade.metrics import bootstrap
from cfnade.metrics.bootstrap import bootstrap_means, paired_intervals, percentile_interval
from cfnade.metrics.formulas import UserSums


def user_sums(n_users: int) -> UserSums:
    rng = np.random.default_rng(0)
    return UserSums(rng.normal(3.0, 2.0, n_users), np.ones(n_users))


def test_the_spread_of_a_mean_is_the_standard_error() -> None:
    sums = user_sums(2000)
    means = bootstrap_means([sums], n_bootstrap=2000, rng=1)[:, 0]
    assert means.std() == pytest.approx(sums.total.std() / np.sqrt(2000), rel=0.06)
    low, high = percentile_interval(means)
    assert high - low == pytest.approx(2 * 1.96 * means.std(), rel=0.06)
    assert low < sums.mean < high


def test_grouping_many_users_keeps_the_spread(monkeypatch) -> None:
    sums = user_sums(20_000)
    plain = bootstrap_means([sums], n_bootstrap=1000, rng=1).std()
    monkeypatch.setattr(bootstrap, "_MAX_GROUPS", 2000)
    grouped = bootstrap_means([sums], n_bootstrap=1000, rng=1)
    assert grouped.std() == pytest.approx(plain, rel=0.1)
    assert grouped.mean() == pytest.approx(sums.mean, abs=5 * plain)


def test_a_ratio_draws_numerators_with_their_denominators() -> None:
    weight = np.random.default_rng(0).uniform(0.1, 9.0, 300)
    means = bootstrap_means([UserSums(2.0 * weight, weight)], n_bootstrap=120, rng=0)
    np.testing.assert_allclose(means, 2.0)


def test_metrics_share_their_draws() -> None:
    sums = user_sums(50)
    means = bootstrap_means([sums, sums], n_bootstrap=60, rng=0)
    assert means.shape == (60, 2)
    np.testing.assert_array_equal(means[:, 0], means[:, 1])


@pytest.mark.parametrize("n_models", range(1, 9))
def test_the_reference_differs_from_itself_by_exactly_nothing(n_models) -> None:
    weight = np.random.default_rng(2).uniform(0.1, 9.0, 943)
    sums = [
        UserSums(weight * np.random.default_rng(seed).random(943), weight)
        for seed in range(n_models)
    ]
    for reference in range(n_models):
        found = paired_intervals(sums, sums[reference], n_bootstrap=100, rng=0)
        assert [each == (0.0, 0.0) for each in found] == [
            model == reference for model in range(n_models)
        ]


def test_one_user_gives_an_interval_of_one_point() -> None:
    means = bootstrap_means([UserSums(np.array([3.0]), np.array([2.0]))], n_bootstrap=9, rng=0)
    assert percentile_interval(means[:, 0]) == (1.5, 1.5)
