"""How well probabilities hold on held-out items: Brier score, calibration error, reliability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfnade.answer.probability import Calibrator
from cfnade.data.interactions import CountMatrix
from cfnade.data.splitting import sample_users
from cfnade.errors import DataError
from cfnade.scorer import Scorer

N_BINS = 20  # of the calibration error, with the same number of pairs each
N_POINTS = 10  # of a reliability plot, with the same number of held-out pairs each
MOST_PAIRS = 10_000_000  # judged at most; users are drawn at random


@dataclass(frozen=True)
class Reliability:
    """How well one kind of value holds as a probability."""

    brier: float
    """Mean of `(probability - outcome)^2` over all pairs."""

    brier_skill: float
    """1 - Brier score / that of always predicting the base rate; 1 is perfect."""

    ece: float
    """Expected calibration error: mean distance between the mean probability and the observed
    share, over bins with the same number of pairs."""

    mean_probability: float
    """Over all pairs; compare it with the base rate."""

    points: list[tuple[float, float]]
    """Mean probability and observed share, ascending, of groups of pairs with the same number of
    held-out ones: the points of a reliability plot."""


@dataclass(frozen=True)
class Calibration:
    """How well the values of one model hold as probabilities, before and after calibration."""

    n_users: int
    n_pairs: int
    """Pairs of these users and items not in their history."""

    base_rate: float
    """Share of the pairs that were held out."""

    calibrated: Reliability
    """The probability, as `ImplicitCFNADE.probability` gives it."""

    unweighted: Reliability
    """The sigmoid of the score with the weighting of likes undone, `p / (p + c (1 - p))`."""

    sigmoid: Reliability
    """The sigmoid of the score, which only ranks."""


def reliabilities(calibration: Calibration) -> dict[str, Reliability]:
    """The three by label."""
    return {
        "calibrated": calibration.calibrated,
        "weighting undone": calibration.unweighted,
        "sigmoid": calibration.sigmoid,
    }


def judge_probabilities(
    scorer: Scorer,
    calibrator: Calibrator,
    histories: CountMatrix,
    held_out: CountMatrix,
    *,
    rng: int | np.random.Generator = 0,
) -> Calibration:
    """Compare probabilities with outcomes, over all items not in the histories.

    Args:
        scorer: Its scores are logits.
        calibrator: Turns scores into probabilities.
        histories: Counts that the scorer sees, (n_users, n_items).
        held_out: Counts that it does not see, (n_users, n_items).
        rng: Seed or generator, for drawing users.

    Returns:
        Figures for the probabilities, and for two uncalibrated values.

    Raises:
        DataError: If nothing is held out.
    """
    n_items = histories.shape[1]
    chosen = sample_users(held_out, max(1, MOST_PAIRS // n_items), rng)
    users = np.flatnonzero(np.diff(chosen.indptr))
    if users.size == 0:
        raise DataError("there are no held-out pairs to judge probabilities on")
    known = histories[users]
    is_unseen = known.toarray() == 0
    came_true = (chosen[users].toarray() > 0)[is_unseen]
    logits = np.asarray(scorer.scores(known))[is_unseen]
    n_history = np.broadcast_to(np.diff(known.indptr)[:, None], is_unseen.shape)[is_unseen]
    order = np.argsort(logits)  # that of two of the three
    logits, came_true, n_history = logits[order], came_true[order], n_history[order]
    return Calibration(
        int(users.size),
        int(came_true.size),
        float(came_true.mean()),
        reliability(calibrator.probability(logits, n_history), came_true),
        reliability(calibrator.unweighted(logits), came_true),
        reliability(expit(logits.astype(np.float64)), came_true),
    )


def reliability(probability: NDArray[np.float64], came_true: NDArray[np.bool_]) -> Reliability:
    """Compare probabilities, (n_pairs,), with outcomes, (n_pairs,)."""
    order = np.argsort(probability, kind="stable")
    p, y = probability[order], came_true[order].astype(np.float64)
    n, rate = p.size, float(y.mean())
    brier = float(np.mean((p - y) ** 2))
    ends = np.linspace(0, n, min(N_BINS, n) + 1).astype(np.int64)
    gaps = np.abs(np.add.reduceat(p - y, ends[:-1]))  # of each bin, times its pairs
    variance = rate * (1.0 - rate)
    return Reliability(
        brier=brier,
        brier_skill=1.0 - brier / variance if variance > 0 else 0.0,
        ece=float(gaps.sum() / n),
        mean_probability=float(p.mean()),
        points=_points(p, y),
    )


def _points(p: NDArray[np.float64], y: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Points of the plot, from the highest probabilities down, so that none is left over there."""
    n_true = np.cumsum(y[::-1])
    n_points = int(min(N_POINTS, n_true[-1]))
    if n_points == 0:
        return [(float(p.mean()), 0.0)]
    wanted = np.rint(np.linspace(0, n_true[-1], n_points + 1)[1:-1])
    ends = np.concatenate([[0], np.searchsorted(n_true, wanted) + 1, [p.size]])
    sums = (np.add.reduceat(values[::-1], ends[:-1]) for values in (p, y))
    means = (total / np.diff(ends) for total in sums)
    return [(float(a), float(b)) for a, b in zip(*means, strict=True)][::-1]
