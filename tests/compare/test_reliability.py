from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import brier_score_loss

from cfnade import DataError
from cfnade.answer.probability import Calibrator
from cfnade.compare import reliability as module
from cfnade.compare.reliability import judge_probabilities, reliability

CURVE = Calibrator(-2.0, (0.0,), (1.0, 0.5), 0.3, 1, 9, 0.1, 5, 4.0)


def slow_ece(p, y, n_bins):
    """Bins of an equal number of pairs, one after the other."""
    pairs = sorted(zip(p, y, strict=True), key=lambda pair: pair[0])
    total = 0.0
    for b in range(n_bins):
        bin_ = pairs[len(pairs) * b // n_bins : len(pairs) * (b + 1) // n_bins]
        mean, share = (sum(column) / len(bin_) for column in zip(*bin_, strict=True))
        total += len(bin_) / len(pairs) * abs(mean - share)
    return total


def test_the_figures_are_those_of_plain_loops_and_of_scikit_learn(rng):
    p = rng.random(1003) ** 3
    y = rng.random(1003) < p**2
    found = reliability(p, y)
    assert found.brier == pytest.approx(brier_score_loss(y, p))
    assert found.ece == pytest.approx(slow_ece(p, y.astype(float), module.N_BINS), abs=1e-12)
    rate = y.mean()
    base = brier_score_loss(y, np.full(1003, rate))
    assert found.brier_skill == pytest.approx(1 - found.brier / base)
    assert found.mean_probability == pytest.approx(p.mean())


def test_every_point_of_the_plot_holds_as_many_held_out_pairs(rng):
    p = rng.random(5000)
    y = rng.random(5000) < p / 10
    found = reliability(p, y).points
    assert len(found) == module.N_POINTS
    predicted, came_true = np.array(found).T
    assert (np.diff(predicted) > 0).all()
    n_true = y.sum()
    order = np.argsort(-p)
    first = order[: np.flatnonzero(np.cumsum(y[order]) == round(n_true / 10))[0] + 1]
    assert found[-1] == pytest.approx((p[first].mean(), y[first].mean()))
    assert (np.abs(came_true - predicted / 10) < 0.05).all()


def test_perfect_and_constant_probabilities():
    y = np.array([False] * 90 + [True] * 10)
    perfect = reliability(y.astype(float), y)
    assert (perfect.brier, perfect.brier_skill, perfect.ece) == (0.0, 1.0, 0.0)
    constant = reliability(np.full(100, 0.1), y)
    assert constant.brier_skill == pytest.approx(0.0)


def test_nothing_or_everything_that_comes_true_is_no_error():
    never = reliability(np.array([0.1, 0.2]), np.array([False, False]))
    assert never.points == [(pytest.approx(0.15), 0.0)] and never.brier_skill == 0.0
    always = reliability(np.array([0.1, 0.2]), np.array([True, True]))
    assert always.points == [(0.1, 1.0), (0.2, 1.0)]


class Fixed:
    def __init__(self, logits):
        self.logits = logits

    def scores(self, histories):
        rows = np.flatnonzero(np.diff(histories.indptr) >= 0)
        return self.logits[rows]


def test_pairs_are_those_of_items_not_in_the_history(rng):
    known = csr_array([[1.0, 0, 0, 0], [0, 2.0, 1.0, 0]])
    held_out = csr_array([[0, 1.0, 0, 0], [0, 0, 0, 1.0]])
    logits = rng.normal(size=(2, 4))
    found = judge_probabilities(Fixed(logits), CURVE, known, held_out)
    assert (found.n_users, found.n_pairs, found.base_rate) == (2, 5, 2 / 5)
    unseen = [(0, 1, 1), (0, 2, 0), (0, 3, 0), (1, 0, 0), (1, 3, 1)]
    raw = [1 / (1 + np.exp(-logits[u, i])) for u, i, _ in unseen]
    y = np.array([t for *_, t in unseen])
    assert found.sigmoid.brier == pytest.approx(np.mean((np.array(raw) - y) ** 2))
    undone = np.array([p / (p + 4.0 * (1 - p)) for p in raw])
    assert found.unweighted.brier == pytest.approx(np.mean((undone - y) ** 2))
    curve = [CURVE.probability(np.array([logits[u, i]]), u + 1)[0] for u, i, _ in unseen]
    assert found.calibrated.brier == pytest.approx(np.mean((np.array(curve) - y) ** 2))


def test_nothing_held_out_is_refused():
    known = csr_array([[1.0, 0]])
    with pytest.raises(DataError, match="no held-out pairs"):
        judge_probabilities(Fixed(np.zeros((1, 2))), CURVE, known, csr_array((1, 2)))
