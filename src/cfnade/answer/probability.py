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
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from cfnade.data.interactions import CountMatrix
from cfnade.data.splitting import overlap
from cfnade.errors import DataError
from cfnade.scorer import Scorer

N_SEGMENTS = 6
"""Straight pieces of the curve; each has an equal share of the held-out items."""

LEAST_SLOPE = 0.01
"""Smallest slope: the curve rises everywhere, so that it keeps the order of items."""

MOST_USERS, LEAST_USERS, MOST_PAIRS = 2_000, 200, 10_000_000
"""Users it is fitted on: at most `MOST_USERS`, fewer if they have more than `MOST_PAIRS` pairs with
items, but at least `LEAST_USERS`."""

N_PAIRS = 200_000
"""Pairs that were not held out are sampled down to about this many."""

_LARGEST = 1e12  # larger numbers are errors
_BLOCK_PAIRS = 1 << 20  # of users and items, scored at once
_RIDGE = 1.0  # pulls the slopes to 1, the odds as they are, with the strength of a few pairs


@dataclass(frozen=True)
class Calibrator:
    """Gives the probability that an item is among those held out.

    `log odds = intercept + curve(logit) + history_slope * log(length of the history)`, where the
    curve is made of straight pieces that all rise. Within one history the order of the items is
    that of their logits.
    """

    intercept: float
    knots: tuple[float, ...]
    """Logits where the pieces meet, ascending, (n_segments - 1,); the curve is 0 at the first."""

    slopes: tuple[float, ...]
    """Of the pieces, above 0, (n_segments,)."""

    history_slope: float
    """Effect of the length of the history: more is held out of a longer one."""

    shortest_history: int
    """Items in the shortest history of the fit; shorter ones count as this."""

    longest_history: int
    """Likewise, of the longest."""

    held_out_share: float
    """Held-out items over all items of these users: the event of the probability."""

    n_pairs: int
    """Number of held-out pairs of the fit."""

    mean_confidence: float = 1.0
    """Mean confidence of the likes (c): factor of training on their odds."""

    def probability(
        self, logits: NDArray[np.floating], n_history: NDArray[np.integer] | int
    ) -> NDArray[np.float64]:
        """Probability that each item is among those held out.

        Args:
            logits: Scores of items that are not in the history, any shape.
            n_history: Number of items in the history, of a shape that fits.

        Returns:
            In (0, 1), of the shape of the logits.
        """
        length = np.clip(n_history, self.shortest_history, self.longest_history)
        curve = _pieces(np.asarray(logits, dtype=np.float64), self.knots) @ np.array(self.slopes)
        return np.asarray(expit(self.intercept + curve + self.history_slope * np.log(length)))

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
        lists = {name: content[name] for name in ("knots", "slopes")}
        if not all(isinstance(values, list) for values in lists.values()):
            raise DataError("knots and slopes of the calibrator must be lists")
        single = [value for name, value in content.items() if name not in lists]
        if not all(_is_number(v) for v in [*single, *content["knots"], *content["slopes"]]):
            raise DataError("the numbers of the calibrator must be finite")
        found = cls(**{**content, **{name: tuple(values) for name, values in lists.items()}})
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
    rng: int | np.random.Generator = 0,
) -> Calibrator:
    """Fit the curve on items held out from some users, at their true rate.

    A logistic regression on all pairs of these users and items not in their history; pairs with
    low scores are sampled, and weighted accordingly.

    Args:
        scorer: Of the scores; it has not seen the held-out counts.
        histories: Counts given to the scorer, (n_users, n_items).
        held_out: Counts held out from these users, (n_users, n_items). Users with an empty row
            count as well: none of their items came true.
        mean_confidence: Mean confidence of the likes in training (c), the starting point.
        rng: Seed or generator for the sample.

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
    rng = np.random.default_rng(rng)
    users = np.flatnonzero(np.diff(histories.indptr))
    n_users = min(MOST_USERS, max(LEAST_USERS, MOST_PAIRS // histories.shape[1]))
    users = np.sort(rng.permutation(users)[:n_users])
    histories, held_out = histories[users], held_out[users]
    if held_out.nnz == 0:
        raise DataError("nothing is held out from users with a history; hold something out first")
    sample = _sample(scorer, histories, held_out, rng)
    n_known, n_held = int(histories.nnz), int(held_out.nnz)
    lengths = np.diff(histories.indptr)
    positive = sample.logits[sample.is_held_out]
    quantiles = np.quantile(positive, np.arange(1, N_SEGMENTS) / N_SEGMENTS)
    knots = tuple(float(knot) for knot in np.unique(quantiles))
    features = np.column_stack([_pieces(sample.logits, knots), np.log(sample.n_history)])
    intercept, coefficients = _regress(features, sample, math.log(mean_confidence), knots[0])
    return Calibrator(
        intercept=intercept,
        knots=knots,
        slopes=tuple(coefficients[:-1]),
        history_slope=coefficients[-1],
        shortest_history=int(lengths.min()),
        longest_history=int(lengths.max()),
        held_out_share=n_held / (n_known + n_held),
        n_pairs=n_held,
        mean_confidence=mean_confidence,
    )


@dataclass(frozen=True)
class _Sample:
    """Pairs of users and items not in their history, (n_sampled,) each."""

    logits: NDArray[np.float64]
    n_history: NDArray[np.int64]
    is_held_out: NDArray[np.bool_]
    weight: NDArray[np.float64]
    """How many pairs each stands for."""


def _sample(
    scorer: Scorer, histories: CountMatrix, held_out: CountMatrix, rng: np.random.Generator
) -> _Sample:
    """All held-out pairs, the others with the highest scores, and some of the rest."""
    n_items, n_known = histories.shape[1], np.diff(histories.indptr)
    share = min(1.0, N_PAIRS / 2 / (histories.shape[0] * n_items))
    parts = []
    n_rows = max(1, _BLOCK_PAIRS // n_items)
    for start in range(0, histories.shape[0], n_rows):
        rows = slice(start, start + n_rows)
        logits = np.asarray(scorer.scores(histories[rows]), dtype=np.float64)
        is_held_out = held_out[rows].toarray() > 0
        is_unseen = histories[rows].toarray() == 0
        high = np.quantile(logits[is_unseen], 1.0 - share)
        chance = np.where(is_held_out | (logits >= high), 1.0, share)
        is_kept = is_unseen & (rng.random(logits.shape) < chance)
        user = np.nonzero(is_kept)[0]
        parts.append(
            (logits[is_kept], n_known[rows][user], is_held_out[is_kept], 1.0 / chance[is_kept])
        )
    logits, n_history, is_held_out, weight = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _Sample(logits, n_history, is_held_out, weight)


def _regress(
    features: NDArray[np.float64], sample: _Sample, log_confidence: float, first_knot: float
) -> tuple[float, list[float]]:
    """Weighted logistic regression with slopes that stay above 0; intercept and coefficients."""
    y = sample.is_held_out.astype(np.float64)
    n_slopes = features.shape[1] - 1
    target = np.concatenate([[0.0], np.ones(n_slopes), [0.0]])  # with the intercept
    pull = np.concatenate([[0.0], np.full(n_slopes, _RIDGE), [_RIDGE]])
    design = np.column_stack([np.ones(len(features)), features])

    def loss(b: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = design @ b
        off = b - target
        nll = sample.weight @ (np.logaddexp(0.0, z) - y * z) + 0.5 * pull @ off**2
        gradient = design.T @ (sample.weight * (expit(z) - y)) + pull * off
        return nll / y.sum(), gradient / y.sum()

    start = target.copy()
    start[0] = first_knot - log_confidence  # the weighting of likes undone, slopes of 1
    bounds = [(None, None), *[(LEAST_SLOPE, None)] * n_slopes, (None, None)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.x[0]), [float(value) for value in found.x[1:]]


def _pieces(logits: NDArray[np.float64], knots: tuple[float, ...]) -> NDArray[np.float64]:
    """How far each logit lies into each piece, (..., n_segments): below 0 in the first alone."""
    lower = np.array([-np.inf, *knots])
    upper = np.array([*knots, np.inf])
    starts = np.array([knots[0], *knots])  # of the first piece its end: it is counted downwards
    inside = np.clip(logits[..., None], lower, upper) - starts
    return np.asarray(inside)


def _is_number(value: Any) -> bool:
    is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_plain and -_LARGEST < value < _LARGEST
