"""The limits of a simulated service: how well its true preferences, and popularity, rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.checks import check_at_least
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.simulation.simulate import SimulatedService
from cfnade.data.splitting import MIN_ITEMS, hold_out
from cfnade.errors import DataError
from cfnade.metrics.evaluate import evaluate

DRAWS_PER_AFFINITY = 32
AFFINITIES = np.linspace(-2.0, 6.0, 17, dtype=np.float32)
"""Where expected ratings are tabulated; affinities are standard normal, watched ones near 2."""

ScoresOf = Callable[[NDArray[np.integer]], NDArray[np.float32]]
"""From user numbers, (n,), to scores, (n, n_items)."""


class UsersInOrder:
    """A `Scorer` that knows the users: it is asked about `users`, in this order."""

    def __init__(self, scores_of: ScoresOf, users: Iterable[int]) -> None:
        self._scores_of, self._users = scores_of, iter(users)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for the next users; see `Scorer`."""
        return self._scores_of(np.array(list(islice(self._users, histories.shape[0]))))


def limits(
    service: SimulatedService,
    counts: CountMatrix,
    *,
    n_users: int = 20_000,
    rng: int | np.random.Generator = 0,
) -> dict[str, Any]:
    """Evaluate the true preferences, and popularity, as any model is evaluated.

    10 % of each user's pairs are held out, relative ratings are fitted on the rest, and the
    candidates are the items outside the kept history. The best order for the unweighted figure is
    by propensity; for the weighted one, by propensity times expected relative rating: no model is
    better. Simulated users are independent, so the first `n_users` are a fair sample.

    Returns:
        `n_users_judged`, `n_held_out`, and the MPR (Eq. 15), in percent, of both rankings:
        `oracle_mpr`, `popularity_mpr`, and either with `_unweighted`.
    """
    check_at_least(1, n_users=n_users)
    rng = np.random.default_rng(rng)
    kept, held_out = hold_out(counts, rng=rng)
    ratings = RelativeRating().fit(kept)
    watchers = np.bincount(kept.indices, minlength=kept.shape[1]).astype(np.float32)  # (n_items,)
    log_rating = np.log(_expected_ratings(service, ratings, rng))
    kept, held_out = kept[:n_users], held_out[:n_users]
    if held_out.nnz == 0:
        raise DataError(
            f"none of the {kept.shape[0]} users has {MIN_ITEMS} items or more, so there is nothing "
            "to hold out; raise mean_history, or leave out the limits"
        )
    users = np.flatnonzero(np.diff(held_out.indptr))
    relevance = ratings.transform(held_out)

    def judged(scores_of: ScoresOf) -> dict[str, float]:
        scorer, metrics = UsersInOrder(scores_of, users), ("mpr", "mpr_unweighted")
        found = evaluate(scorer, kept, held_out, relevance, metrics=metrics, n_bootstrap=0)
        return found.metrics

    def by_weighted_preference(users: NDArray[np.integer]) -> NDArray[np.float32]:
        return service.preferences(users) + _interpolate(log_rating, service.affinities(users))

    popularity = judged(lambda users: np.tile(watchers, (len(users), 1)))
    return {
        "n_users_judged": int(users.size),
        "n_held_out": int(held_out.nnz),
        "oracle_mpr": judged(by_weighted_preference)["mpr"],
        "oracle_mpr_unweighted": judged(service.preferences)["mpr_unweighted"],
        "popularity_mpr": popularity["mpr"],
        "popularity_mpr_unweighted": popularity["mpr_unweighted"],
    }


def _expected_ratings(
    service: SimulatedService, ratings: RelativeRating, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Mean relative rating of an item's watchers at each of `AFFINITIES`, (n_items, n_affinities).

    Ratings of shows rise with affinity; movies, mostly seen once, are all rated high.
    """
    items = np.repeat(np.arange(service.config.n_items), DRAWS_PER_AFFINITY)
    columns = []
    for affinity in AFFINITIES:
        counts = service.draw_counts(items, np.full(len(items), affinity), rng)
        drawn = ratings.of_pairs(items, counts.astype(np.float64))
        columns.append(drawn.reshape(-1, DRAWS_PER_AFFINITY).mean(axis=1))
    return np.stack(columns, axis=1).astype(np.float32)


def _interpolate(table: NDArray[np.float32], at: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each item's value at each affinity, interpolated between the tabulated ones, (n, n_items)."""
    columns = [np.interp(x, AFFINITIES, y) for x, y in zip(at.T, table, strict=True)]
    return np.stack(columns, axis=1).astype(np.float32)
