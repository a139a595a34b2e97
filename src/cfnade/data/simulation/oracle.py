"""The limit of a simulated service: how well one who knows the true preferences would rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.simulation.simulate import SimulatedService
from cfnade.data.splitting import MIN_ITEMS, hold_out
from cfnade.errors import ConfigError, DataError

USERS_AT_ONCE = 256
DRAWS_PER_AFFINITY = 32
AFFINITIES = np.linspace(-2.0, 6.0, 17, dtype=np.float32)
"""Where expected ratings are tabled; affinities are standard normal, watched ones near 2."""


@dataclass(frozen=True)
class OracleLimits:
    """Mean percentage ranking (Eq. 15), in percent, of the best and of the simplest ranking."""

    n_users_judged: int
    """Users with something held out."""

    n_held_out: int
    """Their held-out pairs."""

    oracle_mpr: float
    """Pairs weighted by their relative rating: the limit no model can pass, on average."""

    oracle_mpr_unweighted: float
    """All pairs alike: the limit of that figure."""

    popularity_mpr: float
    """Weighted, by the number of watchers in the training part."""

    popularity_mpr_unweighted: float
    """All pairs alike, by the number of watchers in the training part."""


def limits(
    service: SimulatedService,
    counts: CountMatrix,
    *,
    n_users: int = 20_000,
    rng: int | np.random.Generator = 0,
) -> OracleLimits:
    """Judge the true preferences, and popularity, as any model is judged.

    10 % of each user's pairs are held out, relative ratings are fitted on what is kept, the
    candidates are the items not in the kept history. The best order for the unweighted figure
    is that of the propensities to watch; for the weighted one, of propensity times the relative
    rating to expect. Simulated users are drawn independently, so the first stand for all.

    Args:
        service: The service that the counts are from.
        counts: All counts, sparse, (n_all_users, n_items).
        n_users: Users to judge, at most.
        rng: Seed or generator.

    Returns:
        The figures.

    Raises:
        ConfigError: If there is no user to judge.
        DataError: If no user has enough items to hold one out.
    """
    if n_users < 1:
        raise ConfigError(f"need at least one user to judge, got {n_users}")
    rng = np.random.default_rng(rng)
    kept, held_out = hold_out(counts, rng=rng)
    ratings = RelativeRating().fit(kept)
    watchers = np.bincount(kept.indices, minlength=kept.shape[1]).astype(np.float32)  # (n_items,)
    log_rating = np.log(_expected_ratings(service, ratings, rng))

    def by_weighted_preference(users: NDArray[np.integer]) -> NDArray[np.float32]:
        return service.preferences(users) + _interpolate(log_rating, service.affinities(users))

    def by_popularity(users: NDArray[np.integer]) -> NDArray[np.float32]:
        return np.tile(watchers, (len(users), 1))

    kept, held_out = kept[:n_users], held_out[:n_users]
    if held_out.nnz == 0:
        raise DataError(
            f"none of the {kept.shape[0]} users has {MIN_ITEMS} items or more, so there is nothing "
            "to hold out; raise mean_history, or ask for no oracle"
        )
    weight = ratings.transform(held_out).data  # (n_held_out,)
    unweighted_oracle = percentile_ranks(service.preferences, kept, held_out)
    weighted_oracle = percentile_ranks(by_weighted_preference, kept, held_out)
    popularity = percentile_ranks(by_popularity, kept, held_out)
    return OracleLimits(
        n_users_judged=int(np.count_nonzero(np.diff(held_out.indptr))),
        n_held_out=int(held_out.nnz),
        oracle_mpr=100 * float(np.average(weighted_oracle, weights=weight)),
        oracle_mpr_unweighted=100 * float(unweighted_oracle.mean()),
        popularity_mpr=100 * float(np.average(popularity, weights=weight)),
        popularity_mpr_unweighted=100 * float(popularity.mean()),
    )


def percentile_ranks(
    scores: Callable[[NDArray[np.integer]], NDArray[np.float32]],
    kept: CountMatrix,
    held_out: CountMatrix,
) -> NDArray[np.float64]:
    """Place of each held-out pair among the user's candidates: all items that were not kept.

    Args:
        scores: From user numbers, (n,), to scores that may be overwritten, (n, n_items).
        kept: Training histories, sparse, (n_users, n_items).
        held_out: Pairs to rank, sparse, (n_users, n_items).

    Returns:
        0 for the best place to 1 for the worst, ties at their mean, in the order of
        `held_out.indices`, (n_held_out,).
    """
    n_candidates = kept.shape[1] - np.diff(kept.indptr)  # (n_users,)
    ranks: list[float] = []
    for first in range(0, kept.shape[0], USERS_AT_ONCE):
        users = np.arange(first, min(first + USERS_AT_ONCE, kept.shape[0]))
        block = scores(users)  # (n, n_items)
        block[kept[users].nonzero()] = -np.inf  # behind every candidate
        rows, items = held_out[users].nonzero()
        for row, item in zip(rows, items, strict=True):
            n_before = np.count_nonzero(block[row] > block[row, item])
            n_tied = np.count_nonzero(block[row] == block[row, item]) - 1
            ranks.append((n_before + n_tied / 2) / (n_candidates[first + row] - 1))
    return np.array(ranks)


def _expected_ratings(
    service: SimulatedService, ratings: RelativeRating, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Mean relative rating of an item's watchers at each of `AFFINITIES`, (n_items, n_affinities).

    Shows are rated the higher the better they suit; movies, mostly seen once, are all rated high.
    """
    items = np.repeat(np.arange(service.config.n_items), DRAWS_PER_AFFINITY)
    columns = []
    for affinity in AFFINITIES:
        counts = service.draw_counts(items, np.full(len(items), affinity), rng)
        drawn = ratings.of_pairs(items, counts.astype(np.float64))
        columns.append(drawn.reshape(-1, DRAWS_PER_AFFINITY).mean(axis=1))
    return np.stack(columns, axis=1).astype(np.float32)


def _interpolate(
    table: NDArray[np.float32], affinities: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Look up each item's value at each affinity, (n, n_items), between the tabled ones."""
    step = AFFINITIES[1] - AFFINITIES[0]
    last = len(AFFINITIES) - 2  # start of the last interval
    place = np.clip((affinities - AFFINITIES[0]) / step, 0, last + 1)
    left = np.minimum(place.astype(np.intp), last)
    items = np.arange(table.shape[0])
    below, above = table[items, left], table[items, left + 1]
    share = (place - left).astype(np.float32)
    return np.asarray(below + share * (above - below))
