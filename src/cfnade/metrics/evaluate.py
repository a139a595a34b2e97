"""Evaluate any Scorer on held-out items, in blocks of users, with intervals over users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import DataError
from cfnade.metrics.bootstrap import bootstrap_means, paired_intervals, percentile_interval
from cfnade.metrics.formulas import (
    DEFAULT_METRICS,
    Candidates,
    Progress,
    UserSums,
    cost_of,
    metric_function,
    place_held_out,
)
from cfnade.scorer import Scorer


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The metrics of one scorer on one set of held-out items."""

    metrics: dict[str, float]
    """Value by metric name; MPR in percent."""

    intervals: dict[str, tuple[float, float]]
    """95 % bootstrap interval over users by metric name; empty without bootstrap."""

    per_user: dict[str, UserSums]
    """The sums of each user by metric name."""

    users: NDArray[np.int64]
    """Rows of the users who have held-out items, the order of `per_user`, (n_evaluated,)."""

    n_pairs: int
    """Number of held-out pairs."""


def evaluate(
    scorer: Scorer,
    histories: CountMatrix,
    held_out: CountMatrix,
    relevance: CountMatrix,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    candidates: Candidates = "unseen",
    exclude: CountMatrix | None = None,
    block_size: int | None = None,
    n_bootstrap: int = 1000,
    rng: int | np.random.Generator = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Rank each user's candidates and measure where the held-out items stand.

    MPR is a mean over held-out pairs; recall and nDCG are means over users with held-out items.
    Tied scores count with their expected value, see `cfnade.metrics.formulas`.

    Args:
        scorer: The model.
        histories: Counts that the scorer sees, below 0 for dislikes, (n_users, n_items).
        held_out: Counts that it must find, (n_users, n_items).
        relevance: Relative rating of every held-out pair, the weights gamma of Eq. 15,
            (n_users, n_items).
        metrics: Names, see `metric_function`.
        candidates: Rank items that are not in the user's history, or all items.
        exclude: Pairs to leave out instead of those of the histories, (n_users, n_items): with a
            kind of event to predict, those that have it already.
        block_size: Users scored at once; by default 16 MiB of scores.
        n_bootstrap: Resamples of users for the 95 % intervals; 0 for none.
        rng: Seed or generator for the resamples.
        progress: Called after each block with the users done and their number.

    Returns:
        Metrics, intervals and the sums of each user.

    Raises:
        DataError: If the matrices do not belong together, nothing is held out, a held-out pair
            is in the histories (with candidates "unseen"), or the scores cannot be ranked.
        ConfigError: If an option is invalid.
    """
    functions = {name: metric_function(name) for name in metrics}
    histories, held_out = as_count_matrix(histories, signed=True), as_count_matrix(held_out)
    gamma = _weights_of_pairs(held_out, relevance)
    users = np.flatnonzero(np.diff(held_out.indptr))
    places = place_held_out(
        scorer,
        histories,
        held_out,
        candidates=candidates,
        exclude=exclude,
        block_size=block_size,
        progress=progress,
    )
    per_user = {name: function(places, gamma) for name, function in functions.items()}
    intervals = {}
    if n_bootstrap > 0:
        means = bootstrap_means(list(per_user.values()), n_bootstrap=n_bootstrap, rng=rng)
        intervals = {name: percentile_interval(means[:, i]) for i, name in enumerate(per_user)}
    values = {name: sums.mean for name, sums in per_user.items()}
    return Evaluation(values, intervals, per_user, users, int(held_out.nnz))


class KnownScores:
    """Scores that are known already, (n_users, n_items), as a `Scorer`; what is added may follow.

    `evaluate` asks for users with held-out items, in order, so these must be the rows. Sums are
    made of the rows that are asked for, so they stay in the cache.
    """

    def __init__(
        self,
        scores: NDArray[np.float32],
        other: NDArray[np.float32] | None = None,
        gain: float = 1.0,
        of_items: NDArray[np.float32] | None = None,
    ) -> None:
        """Take `scores + gain * other + of_items`, (n_users, n_items) twice and (n_items,)."""
        self._scores, self._other, self._gain = scores, other, np.float32(gain)
        self._of_items, self._next = of_items, 0

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """The scores of the next rows, as many as there are histories."""
        rows = slice(self._next, self._next + histories.shape[0])
        self._next = rows.stop
        found = self._scores[rows]
        if self._other is not None:
            found = found + self._gain * self._other[rows]
        if self._of_items is not None:
            found = found + self._of_items
        return found


def relevance_of(
    held_out: CountMatrix, data: Interactions | None, ratings: RelativeRating
) -> CountMatrix:
    """Relative ratings of held-out pairs, by the counts they were held out from.

    With a kind of event to predict, these are the counts of that kind.
    """
    if data is not None and data.target_event is not None:
        ratings = RelativeRating().fit(data.target_counts)
    return ratings.transform(held_out)


def read_histories(scorer: Scorer, data: Interactions) -> CountMatrix:
    """Histories as a scorer reads them: its `histories(data)` if it knows times, else counts."""
    read = getattr(scorer, "histories", None)
    return data.counts if read is None else read(data)


def mean_percentage_ranking(
    scorer: Scorer, histories: CountMatrix, held_out: CountMatrix, relevance: CountMatrix
) -> float:
    """MPR (Eq. 15) alone, in percent, without intervals: a quick check between epochs."""
    found = evaluate(scorer, histories, held_out, relevance, metrics=("mpr",), n_bootstrap=0)
    return found.metrics["mpr"]


def distances_to_best(
    evaluations: Sequence[Evaluation], metric: str, *, rng: int | np.random.Generator = 0
) -> list[tuple[float, float]]:
    """95 % interval of each one's difference to the best by a metric (paired bootstrap).

    A difference is significant if its interval does not contain 0. The best has (0, 0).

    Raises:
        DataError: If they were not evaluated on the same held-out items by this metric.
    """
    first = evaluations[0]
    for other in evaluations:
        if metric not in other.per_user:
            raise DataError(f"{metric!r} is not in all evaluations; name it in metrics=... of each")
        weight, others = first.per_user[metric].weight, other.per_user[metric].weight
        if not np.array_equal(first.users, other.users) or not np.array_equal(weight, others):
            raise DataError(
                f"a paired difference needs the same held-out items, got {first.n_pairs} pairs of "
                f"{first.users.size} users and {other.n_pairs} of {other.users.size}; evaluate "
                "both on one split"
            )
    sums = [each.per_user[metric] for each in evaluations]
    best = min(evaluations, key=lambda each: cost_of(metric, each.metrics[metric]))
    return paired_intervals(sums, best.per_user[metric], n_bootstrap=1000, rng=rng)


def _weights_of_pairs(held_out: CountMatrix, relevance: CountMatrix) -> NDArray[np.float64]:
    """The relative ratings of the held-out pairs, in the order of `held_out.data`."""
    relevance = csr_array(relevance).sorted_indices()
    if (
        relevance.shape != held_out.shape
        or not np.array_equal(relevance.indptr, held_out.indptr)
        or not np.array_equal(relevance.indices, held_out.indices)
    ):
        raise DataError(
            f"relevance must hold one value for each held-out pair: got {relevance.nnz} values in "
            f"{relevance.shape} for {held_out.nnz} pairs in {held_out.shape}; make it with "
            "RelativeRating.transform(held_out)"
        )
    gamma = np.asarray(relevance.data, dtype=np.float64)
    if not (np.isfinite(gamma) & (gamma > 0)).all():
        raise DataError("relevance must be finite and above 0; use relative ratings in (0, 1]")
    return gamma
