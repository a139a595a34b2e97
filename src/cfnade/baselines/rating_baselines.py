"""Models of ratings to compare with: means and matrix factorisation; see `rating_networks` too.

Each has `fit(table)`, and `expected(rows, columns)` by place in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.rating_table import RatingTable


@dataclass
class BiasedMeans:
    """Mean, user bias and item bias, with ridge penalty `l2`; an infinite one leaves the mean."""

    l2: float = 5.0
    n_iterations: int = 10

    def fit(self, ratings: RatingTable) -> Self:
        """Fit both biases in turn."""
        places, n, values = ratings.pairs, ratings.levels.shape, ratings.values
        self.mean_, self.biases_ = float(values.mean()), [np.zeros(n[0]), np.zeros(n[1])]
        for step in range(2 * self.n_iterations):
            own, other = step % 2, 1 - step % 2
            left = values - self.mean_ - self.biases_[other][places[other]]
            total = np.bincount(places[own], left, n[own])
            self.biases_[own] = total / (np.bincount(places[own], minlength=n[own]) + self.l2)
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of pairs, (n_pairs,)."""
        return np.asarray(self.mean_ + self.biases_[0][rows] + self.biases_[1][columns])


@dataclass
class BiasedFactors(BiasedMeans):
    """Matrix factorisation with biases, by ALS; `l2` is scaled by the ratings of each row."""

    l2: float = 0.05
    n_iterations: int = 15
    n_factors: int = 30
    random_state: int = 0

    def fit(self, ratings: RatingTable) -> Self:
        """Solve for all users, then for all items, again and again."""
        self.range_, self.mean_ = ratings.scale[[0, -1]], float(ratings.values.mean())
        left = ratings.levels.astype(np.float64)
        left.data = ratings.values - self.mean_
        both = [left, csr_array(left.T)]
        rng = np.random.default_rng(self.random_state)
        self.factors_ = [0.1 * rng.normal(size=(n, self.n_factors)) for n in left.shape]
        self.biases_ = [np.zeros(n) for n in left.shape]
        for step in range(2 * self.n_iterations):
            own, other = step % 2, 1 - step % 2
            fixed = np.pad(self.factors_[other], ((0, 0), (0, 1)), constant_values=1.0)
            matrix = both[own]
            for row in np.flatnonzero(np.diff(matrix.indptr)):
                at = slice(matrix.indptr[row], matrix.indptr[row + 1])
                known = fixed[matrix.indices[at]]  # (n_rated, n_factors + 1)
                target = matrix.data[at] - self.biases_[other][matrix.indices[at]]
                ridge = self.l2 * len(known) * np.eye(known.shape[1])
                solved = np.linalg.solve(known.T @ known + ridge, known.T @ target)
                self.factors_[own][row], self.biases_[own][row] = solved[:-1], solved[-1]
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of pairs, (n_pairs,)."""
        products = (self.factors_[0][rows] * self.factors_[1][columns]).sum(axis=1)
        return np.asarray(np.clip(super().expected(rows, columns) + products, *self.range_))
