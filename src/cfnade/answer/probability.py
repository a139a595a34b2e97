"""Turns a score into a calibrated probability: a rising curve, fitted on held-out items.

The sigmoid p of a logit is not a probability. Likes weigh `c = 1 + alpha r` in training, which
multiplies their odds by about c; `pi = p / (p + c (1 - p))` would undo that alone. Training also
predicts only a part of a history, and the readout is chosen to rank. So one function of the logit
and the length of the history is fitted, starting from pi.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import expit
from threadpoolctl import threadpool_limits

from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import likes_alone
from cfnade.data.splitting import overlap
from cfnade.errors import DataError
from cfnade.scorer import Scorer, blocks

N_SEGMENTS = 6
"""Straight pieces of the curve; each has an equal share of the held-out items."""

N_SAMPLED = 50_000
"""Pairs to sample of those that were not held out, about."""

LEAST_SLOPE = 0.01
"""Smallest slope: the curve rises everywhere, so that it keeps the order of items."""

_MOST_KNOTS = 100  # a fit makes five; every item needs room for all of them
_LARGEST = 1e12  # larger numbers are errors
_BLOCK_BYTES = 1 << 22  # of scores to compute at once
_LEFT_OUT = 0.3  # of a history, to learn the effect of its length on the scores
_NEWTON_STEPS = 12
_RIDGE = 1.0  # pulls the slopes to 1, the odds as they are, with the strength of a few pairs


@dataclass(frozen=True)
class Calibrator:
    """Turns a score into the probability that an item is missing from the history.

    `log odds = intercept + curve(logit) + history_slope * log(length of the history)`, where the
    curve is made of straight pieces that all rise. Within one history the order of the items is
    that of their logits.

    With n held-out items in each piece of the fit, odds o become `1 / (1 / o + 1 / n)`: they stay
    below n, which is all that so many items can show, wherever the curve goes.
    """

    intercept: float
    knots: tuple[float, ...]
    """Logits where the pieces meet, ascending, (n_segments - 1,); the curve is 0 at the first."""
    slopes: tuple[float, ...]
    """Slopes of the pieces, above 0, (n_segments,)."""
    history_slope: float
    """Effect of the length of the history: more is held out of a longer one."""
    shortest_history: int
    """Items in the shortest history of the fit; shorter ones count as this."""
    longest_history: int
    """Items in the longest history of the fit; longer ones count as this."""
    held_out_share: float
    """Held-out items over all items of these users: the event of the probability."""
    n_pairs: int
    """Number of held-out pairs of the fit."""
    mean_confidence: float = 1.0
    """Mean confidence of the likes (c): factor of training on their odds."""

    def probability(
        self,
        logits: NDArray[np.floating],
        n_history: NDArray[np.integer] | int,
        shift: NDArray[np.floating] | float = 0.0,
    ) -> NDArray[np.float64]:
        """Probability that each item is among those held out.

        Args:
            logits: Scores of items that are not in the history, any shape.
            n_history: Number of items in the history, of a shape that fits.
            shift: What dislikes add to the log odds, see `shift_for`; of a shape that fits.

        Returns:
            In (0, 1), of the shape of the logits.
        """
        return np.asarray(expit(self._log_odds(logits, n_history) + shift))

    def shift_for(
        self, logits: NDArray[np.floating], without: NDArray[np.floating], n_history: int
    ) -> float:
        """What to add to the log odds so that dislikes do not change the number of items to come.

        The curve was fitted on histories of likes. A dislike says which items are wanted less, not
        that fewer are wanted; but it moves all scores (docs/decisions/0043).

        Args:
            logits: Of the items that are neither liked nor disliked, with the dislikes, (n,).
            without: Of the same items without the dislikes, (n,).
            n_history: Number of liked items.
        """
        wanted = float(self.probability(without, n_history).sum())
        log_odds, shift = self._log_odds(logits, n_history), 0.0
        for _ in range(_NEWTON_STEPS):
            chance = expit(log_odds + shift)
            slope = float(chance @ (1.0 - chance))
            if slope <= 0.0:
                break
            shift += float(np.clip((wanted - chance.sum()) / slope, -1.0, 1.0))
        return shift

    def _log_odds(
        self, logits: NDArray[np.floating], n_history: NDArray[np.integer] | int
    ) -> NDArray[np.float64]:
        length = np.clip(n_history, self.shortest_history, self.longest_history)
        curve = _pieces(np.asarray(logits, dtype=np.float64), self.knots) @ np.array(self.slopes)
        log_odds = self.intercept + curve + self.history_slope * np.log(length)
        n_in_piece = max(self.n_pairs / N_SEGMENTS, 1.0)
        return np.asarray(-np.logaddexp(-log_odds, -math.log(n_in_piece)), dtype=np.float64)

    def unweighted(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Only the weighting of likes undone: `p / (p + c (1 - p))` with c the mean confidence."""
        shifted = np.asarray(logits, dtype=np.float64) - math.log(self.mean_confidence)
        return np.asarray(expit(shifted))

    def to_json(self) -> dict[str, Any]:
        """For `model.json`."""
        return {**asdict(self), "knots": list(self.knots), "slopes": list(self.slopes)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Calibrator:
        """Read what `to_json` gave.

        Raises:
            DataError: If it is anything else.
        """
        if set(content) != {f.name for f in fields(cls)}:
            raise DataError("the calibrator has missing or unknown fields")
        knots, slopes = content["knots"], content["slopes"]
        if not (isinstance(knots, list) and isinstance(slopes, list) and len(knots) <= _MOST_KNOTS):
            raise DataError(f"knots and slopes of the calibrator must be lists of {_MOST_KNOTS}")
        found = cls(**{**content, "knots": tuple(knots), "slopes": tuple(slopes)})
        single = [value for name, value in content.items() if name not in ("knots", "slopes")]
        if not all(_is_number(value) for value in [*single, *knots, *slopes]):
            raise DataError("the numbers of the calibrator must be finite")
        if (
            len(found.slopes) != len(found.knots) + 1
            or not found.knots
            or any(np.diff(found.knots) <= 0)
            or min(found.slopes) <= 0
            or found.mean_confidence <= 0
            or not 1 <= found.shortest_history <= found.longest_history
        ):
            raise DataError("the calibrator's curve must rise, and histories have at least 1 item")
        return found


def fit_calibrator(
    scorer: Scorer,
    histories: CountMatrix,
    held_out: CountMatrix,
    *,
    mean_confidence: float = 1.0,
    more_missing: bool = False,
    max_users: int | None = None,
) -> Calibrator:
    """Fit the curve on items held out from some users, at their true rate.

    A logistic regression on all pairs of these users and items not in their history; pairs with
    low scores are sampled, and weighted accordingly.

    With `more_missing` the data lack items of these users: the same share of all their items as is
    held out here. The probability is then that an item is missing from the data, given all of the
    user's data as the history (docs/decisions/0027).

    Args:
        scorer: Gives the scores; it has not seen the held-out counts.
        histories: Counts given to the scorer, (n_users, n_items). Those below 0 are dislikes: they
            do not count as part of its length, and are not predicted.
        held_out: Counts held out from these users, (n_users, n_items). Users with an empty row
            count as well: none of their items came true.
        mean_confidence: Mean confidence of the likes in training (c), the starting point.
        more_missing: Whether these users have further items, in neither part.
        max_users: Users to sample at most; None for all.

    Returns:
        The calibrator.

    Raises:
        DataError: If nothing is held out from users with a history, or it is in the histories.
    """
    if histories.shape != held_out.shape:
        raise DataError(
            f"histories are {histories.shape}, held-out counts {held_out.shape}; both need the "
            "same users and items in the same order"
        )
    if overlap(histories, held_out).nnz:
        raise DataError("some held-out pairs are in the histories too; drop them from one side")
    rng = np.random.default_rng(0)
    users = np.flatnonzero(np.diff(likes_alone(histories).indptr))
    users = np.sort(rng.permutation(users)[:max_users])
    histories, held_out = histories[users], held_out[users]
    if held_out.nnz == 0:
        raise DataError("nothing is held out from users with a history; hold something out first")
    sample = _sample(scorer, histories, held_out, histories, rng)
    likes = likes_alone(histories)
    n_known, n_held, lengths = int(likes.nnz), int(held_out.nnz), np.diff(likes.indptr)
    positive = sample[0, sample[3] > 0]  # logits of held-out pairs
    knots = np.unique(np.quantile(positive, np.arange(1, N_SEGMENTS) / N_SEGMENTS))
    n_missing = 0.0  # for each one held out
    if more_missing:
        n_missing = 1.0 + n_held / n_known
        kept = histories.data * (rng.random(histories.nnz) >= _LEFT_OUT)
        shortened = csr_array((kept, histories.indices, histories.indptr), shape=histories.shape)
        given = as_count_matrix(shortened, signed=True)
        shorter = _sample(scorer, histories, held_out, given, rng)
        sample = np.concatenate([sample, shorter], axis=1)
    start = float(knots[0]) - math.log(mean_confidence)  # the weighting of likes undone
    intercept, *slopes, history_slope = _regress(sample, knots, start, n_missing)
    return Calibrator(
        intercept=intercept,
        knots=tuple(knots.tolist()),
        slopes=tuple(slopes),
        history_slope=history_slope,
        shortest_history=int(lengths.min()),
        longest_history=int(lengths.max()),
        held_out_share=n_held / (n_known + n_held),
        n_pairs=n_held,
        mean_confidence=mean_confidence,
    )


def _sample(
    scorer: Scorer,
    histories: CountMatrix,
    held_out: CountMatrix,
    given: CountMatrix,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """All held-out pairs, the others with the highest scores for `given`, and some of the rest.

    Returns:
        Rows: logit, number of items given, log of their share of the history, whether the pair was
        held out, and how many pairs it stands for, (5, n_sampled).
    """
    n_items, n_known = histories.shape[1], np.diff(likes_alone(histories).indptr)
    n_given = np.maximum(np.diff(likes_alone(given).indptr), 1)
    share = min(1.0, N_SAMPLED / 2 / (histories.shape[0] * n_items))
    parts = []
    for rows in blocks(histories.shape[0], n_items, _BLOCK_BYTES):
        logits = np.asarray(scorer.scores(given[rows]), dtype=np.float64)
        is_held_out = held_out[rows].toarray() > 0
        is_unseen = histories[rows].toarray() == 0
        high = np.quantile(logits[is_unseen], 1.0 - share)
        chance = np.where(is_held_out | (logits >= high), 1.0, share)
        is_kept = is_unseen & (rng.random(logits.shape) < chance)
        user = rows.start + np.nonzero(is_kept)[0]
        growth = np.log(n_given[user] / n_known[user])
        weight = 1.0 / chance[is_kept]
        kept = (logits[is_kept], n_given[user], growth, is_held_out[is_kept], weight)
        parts.append(np.stack(kept, dtype=np.float64))
    return np.concatenate(parts, axis=1)


def _regress(
    sample: NDArray[np.float64], knots: NDArray[np.float64], start: float, n_missing: float
) -> list[float]:
    """Weighted logistic regression with slopes that stay above 0.

    It starts from the intercept `start` and slopes of 1. With k = `n_missing` items missing for
    each one held out, it finds the odds o of held out against unwanted from
    `P(held out) = o / (1 + o + k o)`; histories are then longer by the same factor.

    Returns:
        Intercept, slopes of the pieces, slope of the log length of the history.
    """
    logits, n_history, growth, is_held_out, weight = sample
    y, n_slopes = is_held_out > 0, len(knots) + 1
    pieces = _pieces(logits, knots)
    above = pieces[:, 1:].sum(axis=1)
    # The last two: what growth adds to the intercept, and to all slopes but the first.
    columns = (np.ones(y.size), pieces, np.log(n_history), growth, growth * above)
    design = np.column_stack(columns)
    first = np.array([start, *[1.0] * n_slopes, 0.0, 0.0, 0.0])
    pull = np.array([0.0, *[_RIDGE] * (n_slopes + 3)])
    log_either = math.log1p(n_missing)
    log_missing = math.log(n_missing) if n_missing else -math.inf

    def loss(b: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = design @ b
        either, missing = z + log_either, z + log_missing
        off = b - first
        each = np.logaddexp(0.0, either) - np.where(y, z, np.logaddexp(0.0, missing))
        slope = expit(either) - np.where(y, 1.0, expit(missing))
        nll = weight @ each + 0.5 * pull @ off**2
        gradient = design.T @ (weight * slope) + pull * off
        return nll / y.sum(), gradient / y.sum()

    from scipy.optimize import minimize  # a quarter of the time that importing cfnade takes

    bounds = [(None, None), *[(LEAST_SLOPE, None)] * n_slopes, *[(None, None)] * 3]
    with threadpool_limits(1, "blas"):  # the products are small
        b = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds).x
    if n_missing:  # history and odds grow by this factor
        b[0] += log_missing * (1.0 + b[-2])
        b[2:-3] = np.maximum(b[2:-3] + log_missing * b[-1], LEAST_SLOPE)
    return [float(value) for value in b[:-2]]


def _pieces(logits: NDArray[np.float64], knots: ArrayLike) -> NDArray[np.float64]:
    """How far each logit lies into each piece, (..., n_segments): below 0 in the first alone."""
    ends = np.asarray(knots)
    starts = [ends[0], *ends]  # the first piece is counted downwards from its end
    inside = np.clip(logits[..., None], [-np.inf, *ends], [*ends, np.inf]) - starts
    return np.asarray(inside)


def _is_number(value: Any) -> bool:
    is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_plain and abs(value) < _LARGEST
