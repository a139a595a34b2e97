"""The metrics, from the places of the held-out items: MPR (Eq. 15), recall and nDCG.

With tied scores, each metric is its exact expected value over random orders of the ties: the
average rank in MPR, and for nDCG what scikit-learn's `ndcg_score` does by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cfnade.errors import ConfigError
from cfnade.metrics.ranks import Places

DEFAULT_METRICS = (
    "mpr",
    "mpr_unweighted",
    "recall@20",
    "recall@50",
    "recall_full@20",
    "ndcg@20",
    "ndcg@100",
)


@dataclass(frozen=True)
class UserSums:
    """A metric by user: its mean over any group of users is sum(total) / sum(weight)."""

    total: NDArray[np.float64]
    """(n_users,)."""

    weight: NDArray[np.float64]
    """Above 0, (n_users,)."""

    @property
    def mean(self) -> float:
        """The metric over all users."""
        return float(self.total.sum() / self.weight.sum())


Metric = Callable[[Places, NDArray[np.float64]], UserSums]
"""From the places and the relative rating of each held-out pair, (n_pairs,)."""


def percentile_rank(places: Places) -> NDArray[np.float64]:
    """Rank of each held-out item among its candidates, 0.0 first to 1.0 last, (n_pairs,)."""
    n_others = places.n_candidates[places.user] - 1
    rank = places.n_above + (places.n_tied - 1) / 2
    return np.asarray(rank / np.maximum(n_others, 1))


def mpr(places: Places, relative_rating: NDArray[np.float64]) -> UserSums:
    """Mean percentage ranking over pairs, weighted by relative rating (Eq. 15).

    `100 * sum(gamma * rank) / sum(gamma)` over all held-out pairs; 0 % is best, 50 % is chance.
    """
    total = places.sum_by_user(100.0 * relative_rating * percentile_rank(places))
    return UserSums(total, places.sum_by_user(relative_rating))


def mpr_unweighted(places: Places, relative_rating: NDArray[np.float64]) -> UserSums:
    """Mean percentage ranking where every held-out pair counts the same."""
    return mpr(places, np.ones_like(relative_rating))


def recall(places: Places, relative_rating: NDArray[np.float64], k: int) -> UserSums:
    """Held-out items among the first k, over `min(k, held out)` (Liang et al. 2018)."""
    return _mean_over_users(_hits(places, k) / np.minimum(k, places.n_held_out))


def recall_full(places: Places, relative_rating: NDArray[np.float64], k: int) -> UserSums:
    """Held-out items among the first k, over all held out (as LightGCN reports it)."""
    return _mean_over_users(_hits(places, k) / places.n_held_out)


def ndcg(places: Places, relative_rating: NDArray[np.float64], k: int) -> UserSums:
    """Normalised discounted cumulative gain of the first k places, binary relevance.

    A held-out item at place p = 0, 1, ... below k gains `1 / log2(p + 2)`; the sum is divided
    by that of an ideal list, which begins with `min(k, held out)` hits. The mean over users.
    """
    discounts = 1.0 / np.log2(np.arange(k) + 2.0)
    gain_before = np.concatenate([[0.0], np.cumsum(discounts)])  # of all places < p, (k + 1,)
    first = np.minimum(places.n_above, k)
    last = np.minimum(places.n_above + places.n_tied, k)
    gain = (gain_before[last] - gain_before[first]) / places.n_tied  # mean over shared places
    ideal = gain_before[np.minimum(places.n_held_out, k)]
    return _mean_over_users(places.sum_by_user(gain) / ideal)


def metric_functions(names: Sequence[str]) -> dict[str, Metric]:
    """Look up metrics by name: `mpr`, `mpr_unweighted`, `recall@k`, `recall_full@k`, `ndcg@k`.

    Raises:
        ConfigError: If there is no such metric, or k is not at least 1.
    """
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"a metric is named by text such as 'ndcg@20', got {name!r}")
    return {name: _metric_function(name) for name in names}


def cost_of(name: str, value: float) -> float:
    """A metric's value so that lower is better: MPR as it is, others negative."""
    return value if name.startswith("mpr") else -value


def _metric_function(name: str) -> Metric:
    of_pairs: dict[str, Metric] = {"mpr": mpr, "mpr_unweighted": mpr_unweighted}
    at_k = {"recall": recall, "recall_full": recall_full, "ndcg": ndcg}
    if name in of_pairs:
        return of_pairs[name]
    match = re.fullmatch(r"(\w+)@([1-9][0-9]*)", name)
    if match and match[1] in at_k:
        return partial(at_k[match[1]], k=int(match[2]))
    raise ConfigError(
        f"there is no metric {name!r}; choose from mpr, mpr_unweighted, recall@k, "
        "recall_full@k and ndcg@k with k at least 1, as in recall@20"
    )


def _hits(places: Places, k: int) -> NDArray[np.float64]:
    """Expected number of held-out items among the first k of each user, (n_users,)."""
    in_top = np.clip(k - places.n_above, 0, places.n_tied)  # of the shared places
    return places.sum_by_user(in_top / places.n_tied)


def _mean_over_users(values: NDArray[np.float64]) -> UserSums:
    return UserSums(values, np.ones_like(values))
