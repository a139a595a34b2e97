"""Implicit matrix factorisation (Hu, Koren, Volinsky 2008) of what a network is trained on.

The paper's rival, and a good companion: it is linear and solved exactly, where the network is
neither, so the two err on different items. `beyond/units.py` gives its scores hidden units: some
stand beside a trained network, and others are where the network starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from cfnade.beyond.units import LinearUnits
from cfnade.data.feedback import confidence
from cfnade.model.config import MANY_WATCHERS, ModelConfig
from cfnade.model.inputs import with_values

FACTORS_UP_TO = 500_000
"""Pairs up to which a factorisation is made, unless it is asked for: each takes up to half a
minute there, and gives the more the fewer pairs there are to train a network on."""

MORE_FACTORS_BELOW = 20
"""Watchers of an item, on average, below which there are twice as many factors: there they are
quick to find and worth it, as in searches of IMF."""

FACTOR_ALPHAS = (10.0, 30.0, 100.0, 300.0, 1000.0)
"""Rates of confidence that are looked at."""

_N_ITERATIONS = 10
_FACTOR_L2 = 28.0  # over the root of 1 + alpha: what searches of IMF end at, on most data
_MOST_L2 = 0.1  # of the largest singular value, at which all factors would be 0
_LINEAR_L2 = 0.1  # of that: a new history is held less than the factors were
_START = 0.01  # spread of the first factors
_POWER_STEPS = 20


@dataclass(frozen=True)
class FactorPlan:
    """What kind of factorisation suits data of some size.

    Decided once for all parts of a fit, which differ a little in size.
    """

    n_factors: int
    alpha: float
    """Rate of confidence, of `FACTOR_ALPHAS`."""

    is_quick: bool
    """Whether it takes seconds."""

    @classmethod
    def of(cls, n_pairs: int, n_users: int, n_items: int) -> FactorPlan:
        """For so many users, items and pairs of them."""
        return cls(
            n_factors_for(n_pairs, n_users, n_items),
            usual_factor_alpha(n_pairs, n_items),
            n_pairs <= FACTORS_UP_TO,
        )


class Factorisations:
    """Matrix factorisations of the same ratings, one for each alpha, made once they are needed."""

    def __init__(self, ratings: csr_array, model: ModelConfig, plan: FactorPlan) -> None:
        """Prepare.

        Args:
            ratings: Relative ratings, sparse, (n_users, n_items).
            model: The network that their scores will stand in.
            plan: How many factors, and the usual alpha.
        """
        self.plan = plan
        self._ratings, self._model = ratings, model
        self._units: dict[float, LinearUnits] = {}  # by alpha

    def units(self, alpha: float) -> LinearUnits:
        """Hidden units with the scores of the factorisation, for one alpha."""
        if alpha not in self._units:
            ratings = self._ratings
            sure = with_values(ratings, confidence(ratings.data, alpha))
            l2 = min(_FACTOR_L2 * math.sqrt(1.0 + alpha), _MOST_L2 * largest_singular_value(sure))
            rng = np.random.default_rng(0)
            factors = als_item_factors(sure, self.plan.n_factors, l2, _N_ITERATIONS, rng)
            self._units[alpha] = LinearUnits.from_factors(
                factors, _LINEAR_L2 * l2, ratings, self._model
            )
        return self._units[alpha]


def n_factors_for(n_pairs: int, n_users: int, n_items: int) -> int:
    """How many factors there are for data of this size."""
    n_factors = 512 if n_pairs < MORE_FACTORS_BELOW * n_items else 256
    return max(1, min(n_factors, min(n_users, n_items) // 2))


def usual_factor_alpha(n_pairs: int, n_items: int) -> float:
    """The rate of confidence that searches of IMF end at, on data of this density.

    The fewer watchers an item has, the more each of them has to say: 10 where there are many, and
    from there with the square of what is missing, up to 1,000.
    """
    n_watchers = max(n_pairs / max(n_items, 1), 1e-9)
    wanted = 10.0 * max(MANY_WATCHERS / n_watchers, 1.0) ** 2
    return min(FACTOR_ALPHAS, key=lambda alpha: abs(math.log(alpha / wanted)))


def als_item_factors(
    confidence: csr_array,
    n_factors: int,
    l2: float,
    n_iterations: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Factors y of the items, of `sum c (t - x y)^2 + l2 (sum |x|^2 + sum |y|^2)`.

    The sum goes over all users and items, with t = 0 and c = 1 where nothing was observed.
    Alternating least squares: users given items, then items given users.

    Args:
        confidence: Of the likes, at least 1, sparse, (n_users, n_items).
        n_factors: Length of x and y.
        l2: Strength of the penalty.
        n_iterations: Over users and items.
        rng: Of the first factors.

    Returns:
        (n_items, n_factors); 0 for items that nobody has.
    """
    by_user = csr_array(confidence, dtype=np.float32)
    by_item = csr_array(by_user.T)
    size = (by_user.shape[1], n_factors)
    items = _START * rng.standard_normal(size, dtype=np.float32)
    for _ in range(n_iterations):
        users = solve_rows(by_user, items, l2)
        items = solve_rows(by_item, users, l2)
    return items


def solve_rows(
    confidence: csr_array, others: NDArray[np.float32], l2: float
) -> NDArray[np.float32]:
    """The best factors of one side, given those of the other.

    Row by row `x = (Y'Y + l2 + Y' (C - 1) Y)^-1 Y' C t`, where only the rows y of the likes are in
    C - 1. With fewer likes than factors it is cheaper by Woodbury's identity: with
    `P = (Y'Y + l2)^-1` and the diagonal matrix `D = (C - 1)^-1`, both of the likes alone,
    `x = P Y' (Y P Y' + D)^-1 D c`, a system as large as the likes.

    Args:
        confidence: Of the likes, sparse, (n_rows, n_others).
        others: Y, (n_others, n_factors).
        l2: Strength of the penalty.

    Returns:
        (n_rows, n_factors).
    """
    n_factors = others.shape[1]
    gram = others.T @ others + np.float32(l2) * np.eye(n_factors, dtype=np.float32)
    projected = others @ np.linalg.inv(gram.astype(np.float64)).astype(np.float32)  # Y P
    found = np.zeros((confidence.shape[0], n_factors), dtype=np.float32)
    for row in np.flatnonzero(np.diff(confidence.indptr)):
        liked = slice(confidence.indptr[row], confidence.indptr[row + 1])
        columns, c = confidence.indices[liked], confidence.data[liked]
        Y = others[columns]  # (n_liked, n_factors)
        beyond = np.maximum(c - 1.0, np.float32(1e-6))
        if len(columns) < n_factors:
            YP = projected[columns]
            system = YP @ Y.T
            system.flat[:: len(columns) + 1] += 1.0 / beyond
            found[row] = np.linalg.solve(system, c / beyond) @ YP
        else:
            factor = cho_factor(gram + (Y.T * beyond) @ Y, check_finite=False)
            found[row] = cho_solve(factor, Y.T @ c, check_finite=False)
    return found


def largest_singular_value(matrix: csr_array) -> float:
    """Of a matrix without negative entries, by the power method.

    With this for `l2` the best factors of such confidences are all 0.
    """
    vector = np.ones(matrix.shape[1], dtype=np.float64)
    value = 0.0
    for _ in range(_POWER_STEPS):
        vector = matrix.T @ (matrix @ vector)
        length = float(np.linalg.norm(vector))
        if length == 0.0:
            return 0.0
        vector /= length
        value = math.sqrt(length)
    return value
