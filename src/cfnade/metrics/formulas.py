"""The metrics, from the places of the held-out items: MPR (Eq. 15), recall and nDCG.

With tied scores, each metric is its exact expected value over random orders of the ties: the
average rank in MPR, and for nDCG what scikit-learn's `ndcg_score` does by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfnade.checks import check_at_least, check_choice
from cfnade.data.interactions import CountMatrix
from cfnade.data.splitting import overlap
from cfnade.errors import ConfigError, DataError
from cfnade.scorer import Scorer, rows_per_block

Candidates: TypeAlias = Literal["unseen", "all"]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the users done and their number."""

_COMPARED = 200  # scores that can be compared with a target in the time it takes to sort one


@dataclass(frozen=True)
class Places:
    """The place of each held-out item: somewhere in `n_above ... n_above + n_tied - 1`."""

    user: NDArray[np.int64]
    """The user of each pair, 0 ... n_users - 1, (n_pairs,). Every user has at least one."""

    n_above: NDArray[np.int64]
    """Candidates with a higher score, (n_pairs,)."""

    n_tied: NDArray[np.int64]
    """Candidates with the same score, the item itself included, (n_pairs,)."""

    n_candidates: NDArray[np.int64]
    """Ranked items of each user, (n_users,)."""

    @cached_property
    def n_held_out(self) -> NDArray[np.int64]:
        """Held-out items of each user, (n_users,)."""
        return np.bincount(self.user, minlength=self.n_candidates.size)

    def sum_by_user(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up values of pairs, (n_pairs,), for each user, (n_users,)."""
        sums = np.bincount(self.user, weights=values, minlength=self.n_candidates.size)
        return np.asarray(sums, dtype=np.float64)


def place_held_out(
    scorer: Scorer,
    histories: CountMatrix,
    held_out: CountMatrix,
    *,
    candidates: Candidates = "unseen",
    exclude: CountMatrix | None = None,
    block_size: int | None = None,
    progress: Progress | None = None,
) -> Places:
    """Find the places of the held-out items, scoring one block of users at a time.

    Arguments and errors are those of `evaluate`. Users are numbered as in `Evaluation.users`.
    """
    n_items = held_out.shape[1]
    block_size = rows_per_block(n_items) if block_size is None else block_size
    exclude = histories if exclude is None else exclude
    _check(histories, held_out, candidates, exclude, block_size)
    n_held_out = np.diff(held_out.indptr)
    users = np.flatnonzero(n_held_out)
    n_above, n_tied = np.empty((2, held_out.nnz), dtype=np.int64)
    n_candidates = np.full(users.size, n_items, dtype=np.int64)
    if candidates == "unseen":
        n_candidates -= np.diff(exclude.indptr)[users]
    for start in range(0, users.size, block_size):
        block = users[start : start + block_size]
        known = histories[block]
        scores = _checked_scores(scorer, known, block)  # (n_block, n_items)
        first, last = held_out.indptr[block[0]], held_out.indptr[block[-1] + 1]
        row = np.repeat(np.arange(block.size), n_held_out[block])
        targets = scores[row, held_out.indices[first:last]]
        starts = held_out.indptr[block] - first
        is_ranked = scores >= np.minimum.reduceat(targets, starts)[:, None]  # others are below all
        if candidates == "unseen":
            left_out = exclude[block]
            rows = np.repeat(np.arange(block.size), np.diff(left_out.indptr))
            is_ranked[rows, left_out.indices] = False
        ranked = np.flatnonzero(is_ranked)
        ends = np.searchsorted(ranked, n_items * np.arange(1, block.size))
        parts = np.split(scores.reshape(-1)[ranked], ends), np.split(targets, starts[1:])
        counted = [count_above_and_tied(*own) for own in zip(*parts, strict=True)]
        n_above[first:last], n_tied[first:last] = np.concatenate(counted, axis=1)
        if progress is not None:
            progress(min(start + block_size, users.size), users.size)
    user_of_pair = np.repeat(np.arange(users.size), n_held_out[users])
    return Places(user_of_pair, n_above, n_tied, n_candidates)


def count_above_and_tied(
    scores: NDArray[np.floating], targets: NDArray[np.floating]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the candidates that score higher than, and the same as, each target, (n_held_out,).

    The scores are those of one user's candidates; those below all targets may be missing.
    """
    if _COMPARED * targets.size > scores.size:
        ascending = np.sort(scores)
        n_above = scores.size - ascending.searchsorted(targets, side="right")
        n_at_least = scores.size - ascending.searchsorted(targets)
    else:
        n_above = np.array([np.count_nonzero(scores > target) for target in targets])
        n_at_least = np.array([np.count_nonzero(scores >= target) for target in targets])
    return n_above, n_at_least - n_above


def _check(
    histories: CountMatrix,
    held_out: CountMatrix,
    candidates: str,
    exclude: CountMatrix,
    block_size: int,
) -> None:
    check_choice("candidates", candidates, get_args(Candidates))
    check_at_least(1, block_size=block_size)
    for name, matrix in {"histories": histories, "excluded pairs": exclude}.items():
        if matrix.shape != held_out.shape:
            raise DataError(
                f"{name} are {matrix.shape}, held-out counts {held_out.shape}; both need the "
                "same users and items in the same order"
            )
    if held_out.nnz == 0:
        raise DataError("there are no held-out pairs to evaluate on; hold some out first")
    if candidates == "unseen":
        both = overlap(exclude, held_out)
        if both.nnz:
            user = int(np.flatnonzero(np.diff(both.indptr))[0])
            raise DataError(
                f"{both.nnz} of {held_out.nnz} held-out pairs are in the histories too, the first "
                f"is row {user}, column {int(both.indices[0])}; drop them from one side, or rank "
                "all items with candidates='all'"
            )


def _checked_scores(
    scorer: Scorer, histories: CountMatrix, users: NDArray[np.int64]
) -> NDArray[np.floating]:
    name = type(scorer).__name__
    scores: NDArray[Any] = np.asarray(scorer.scores(histories))
    if scores.shape != histories.shape:
        raise DataError(
            f"{name} returned scores of shape {scores.shape} for histories of shape "
            f"{histories.shape}; a Scorer gives one score per user and item"
        )
    is_finite = np.isfinite(scores)
    if not is_finite.all():
        row = int(np.argmin(is_finite.all(axis=1)))
        bad = np.flatnonzero(~is_finite[row])
        raise DataError(
            f"{name} gave {bad.size} of {scores.shape[1]} items a score that is NaN or infinite "
            f"for user row {users[row]}, the first is {scores[row, bad[0]]} for column {bad[0]}; "
            "check how it was trained"
        )
    return scores if np.issubdtype(scores.dtype, np.floating) else scores.astype(np.float64)


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


def cost_of(name: str, value: float) -> float:
    """A metric's value so that lower is better: MPR as it is, others negative."""
    return value if name.startswith("mpr") else -value


CHOSEN_BY = ("mpr", "ndcg@100")
"""Metrics that models are chosen by unless one is named, both with the same weight: MPR alone would
trade the top of the list for the tail."""


def metrics_to_choose(by: str | None) -> tuple[str, ...]:
    """The metrics that `cost_by` needs, and MPR."""
    return CHOSEN_BY if by is None else tuple(dict.fromkeys(("mpr", by)))


def cost_by(metrics: Mapping[str, float], by: str | None) -> float:
    """A cost above 0 to minimise: by one metric, or MPR / nDCG@100 if that is None."""
    if by is None:
        return cost_by(metrics, "mpr") * cost_by(metrics, "ndcg@100")
    return metrics[by] if by.startswith("mpr") else 1.0 / max(metrics[by], 1e-3)


def metric_function(name: str) -> Metric:
    """Look up a metric: `mpr`, `mpr_unweighted`, `recall@k`, `recall_full@k` or `ndcg@k`.

    Raises:
        ConfigError: If there is no such metric, or k is not at least 1.
    """
    of_pairs: dict[str, Metric] = {"mpr": mpr, "mpr_unweighted": mpr_unweighted}
    at_k = {"recall": recall, "recall_full": recall_full, "ndcg": ndcg}
    if not isinstance(name, str):
        raise ConfigError(f"a metric is named by text such as 'ndcg@20', got {name!r}")
    if name in of_pairs:
        return of_pairs[name]
    match = re.fullmatch(r"(\w+)@([1-9][0-9]{0,8})", name)
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
