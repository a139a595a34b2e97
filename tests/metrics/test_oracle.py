from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating
from cfnade.data.simulation.simulate import ServiceConfig, SimulatedService
from cfnade.data.splitting import hold_out
from cfnade.errors import ConfigError, DataError
from cfnade.metrics import oracle
from cfnade.metrics.evaluate import evaluate
from cfnade.metrics.oracle import UsersInOrder, limits


@pytest.fixture(scope="module")
def small() -> SimulatedService:
    return SimulatedService(ServiceConfig.sized("small", n_users=2_000), seed=1)


@pytest.fixture(scope="module")
def small_counts(small: SimulatedService) -> csr_array:
    return small.interactions().counts


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_popularity_and_the_oracle_stand_as_far_apart_as_on_real_data(size: str) -> None:
    service = SimulatedService(ServiceConfig.sized(size))
    found = limits(service, service.interactions().counts, n_users=1_000)
    assert 2 < found["oracle_mpr"] < 6.5
    assert 15 < found["popularity_mpr"] < 25
    assert 2 < found["oracle_mpr_unweighted"] < 6.5
    assert 15 < found["popularity_mpr_unweighted"] < 25


def test_without_tastes_the_oracle_knows_no_more_than_popularity() -> None:
    service = SimulatedService(ServiceConfig.sized("small", taste_strength=0.0))
    found = limits(service, service.interactions().counts, n_users=1_000)
    assert found["oracle_mpr_unweighted"] == pytest.approx(
        found["popularity_mpr_unweighted"], rel=0.03
    )


def test_no_other_ranking_passes_the_oracle(
    small: SimulatedService, small_counts: csr_array, rng: np.random.Generator
) -> None:
    found = limits(small, small_counts, rng=4)
    kept, held_out = hold_out(small_counts, rng=4)
    relevance = RelativeRating().fit(kept).transform(held_out)

    def mpr(scores: np.ndarray) -> tuple[float, float]:
        scorer = UsersInOrder(lambda users: scores[users], range(len(scores)))
        judged = evaluate(scorer, kept, held_out, relevance, n_bootstrap=0).metrics
        return judged["mpr"], judged["mpr_unweighted"]

    truth = small.preferences(np.arange(small.config.n_users))
    by_propensity = mpr(truth)
    assert by_propensity[1] == pytest.approx(found["oracle_mpr_unweighted"])
    assert by_propensity[0] > found["oracle_mpr"]  # it does not know what ratings to expect
    noisy = mpr(truth + rng.normal(size=truth.shape, scale=0.5).astype(np.float32))
    taste_alone = mpr(truth - small.log_popularity)
    for other in (noisy, taste_alone):
        assert other[0] > found["oracle_mpr"]
        assert other[1] > found["oracle_mpr_unweighted"]


def test_expected_ratings_are_those_found_among_watchers(
    small: SimulatedService, small_counts: csr_array
) -> None:
    counts = small_counts
    ratings = RelativeRating().fit(counts)
    user = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    item = counts.indices
    table = oracle._expected_ratings(small, ratings, np.random.default_rng(0))
    expected = oracle._interpolate(table, small.affinities(np.arange(counts.shape[0])))[user, item]
    found = ratings.transform(counts).data
    for kind in ("show", "movie"):
        for low_half in (True, False):
            of_kind = small.items.kind[item] == kind
            median = np.median(expected[of_kind])
            chosen = of_kind & ((expected <= median) == low_half)
            assert found[chosen].mean() == pytest.approx(expected[chosen].mean(), abs=0.01)


def test_only_the_users_asked_for_are_judged(
    small: SimulatedService, small_counts: csr_array
) -> None:
    found = limits(small, small_counts, n_users=50)
    assert found["n_users_judged"] == 50
    assert 50 <= found["n_held_out"] < 1_000


def test_nobody_to_judge_and_nothing_to_hold_out_are_refused() -> None:
    config = replace(ServiceConfig.sized("tiny"), min_history=2, mean_history=2.0)
    service = SimulatedService(config)
    counts = service.interactions().counts
    with pytest.raises(ConfigError, match="n_users must be at least 1, got 0"):
        limits(service, counts, n_users=0)
    with pytest.raises(DataError, match="none of the 300 users has 5 items or more"):
        limits(service, counts)
