"""CF-NADE for ratings in numpy: Eq. 2-4 with all known ratings as the context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from cfnade.errors import ArtifactError
from cfnade.model.config import RatingConfig

FOLD_IN_L2 = 6.0
"""Penalty on what a new column adds to the mean column."""

_PAIRS = 4096  # predicted at a time: their weights take 40 MB with five levels


@dataclass(frozen=True, eq=False)
class NumpyRatingNetwork:
    """The weights W^k, V^k and d^k of Eq. 3 and 4, however training shared them between ratings."""

    config: RatingConfig
    weights: Mapping[str, NDArray[np.float32]]
    """By name; see `RatingConfig.weight_shapes`."""

    def __post_init__(self) -> None:
        for name, shape in self.config.weight_shapes().items():
            weight: Any = self.weights.get(name)
            if weight is None or weight.shape != shape or weight.dtype != np.float32:
                raise ArtifactError(f"the weight {name} must be float32 of shape {shape}")

    def hidden(self, levels: csr_array) -> NDArray[np.float32]:
        """What the output layer reads for each row (h of Eq. 4, after all layers).

        Known ratings are from 1 to K, sparse, (n_rows, n_columns). Returns (n_rows, n_hidden), or
        (n_rows, n_factors) of the low-rank version.
        """
        config, weights = self.config, self.weights
        entered = table_rows(levels, config.n_levels) @ weights["input_weight"]
        if config.n_factors:
            entered = entered @ weights["input_mix"]
        hidden = np.tanh(entered + weights["hidden_bias"])
        for layer in range(config.n_layers - 1):
            U, b = weights[f"deep_weight_{layer}"], weights[f"deep_bias_{layer}"]
            hidden = np.tanh(hidden @ U.T + b)
        return np.asarray(hidden @ weights["output_mix"] if config.n_factors else hidden)

    @cached_property
    def mean_column(self) -> NDArray[np.float32]:
        """Means over the columns of V^k and, in the last place, d^k, (K, width + 1)."""
        shape, tables = (self.config.n_columns, self.config.n_levels, -1), self.weights
        V, d = (tables[name].reshape(shape) for name in ("output_weight", "output_bias"))
        return np.concatenate([V.mean(axis=0), d.mean(axis=0)], axis=1)

    def scores(
        self, hidden: NDArray[np.float32], rows: NDArray[Any], columns: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Scores s^k of some pairs (Eq. 3), (n_pairs, K); `hidden` is that of all rows."""
        K = self.config.n_levels
        V = self.weights["output_weight"].reshape(self.config.n_columns, K, -1)
        found: NDArray[np.float64] = np.empty((len(rows), K))
        for start in range(0, len(rows), _PAIRS):
            at = slice(start, start + _PAIRS)
            found[at] = (V[columns[at]] @ hidden[rows[at], :, None])[:, :, 0]
        found += self.weights["output_bias"].reshape(-1, K)[columns]
        return found

    def folded_in(
        self, rated: NDArray[np.float32], levels: NDArray[Any], asked: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Scores in a column that training did not have, from its ratings alone.

        Its V^k and d^k are those of the mean column, moved towards the ratings: the penalised
        likelihood of Eq. 2 has one maximum.

        Args:
            rated: Hidden layer of the rows that were rated, (n_rated, width).
            levels: Their ratings from 1 to K, (n_rated,).
            asked: Hidden layer of the rows to predict, (n_asked, width).

        Returns:
            (n_asked, K).
        """
        mean = self.mean_column
        x, z = (np.pad(each, ((0, 0), (0, 1)), constant_values=1.0) for each in (rated, asked))
        is_level = np.equal.outer(levels, np.arange(1, len(mean) + 1))  # (n_rated, K)

        def cost(moved: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            change = moved.reshape(mean.shape)
            p = softmax(x @ (mean + change).T, axis=1)
            loss = -np.log(p[is_level]).sum() + 0.5 * FOLD_IN_L2 * (change**2).sum()
            return float(loss), ((p - is_level).T @ x + FOLD_IN_L2 * change).ravel()

        from scipy.optimize import minimize

        found = minimize(cost, np.zeros(mean.size), jac=True, method="L-BFGS-B").x
        return np.asarray(z @ (mean + found.reshape(mean.shape)).T, dtype=np.float64)


def table_rows(levels: csr_array, n_levels: int, *, share: bool = False) -> csr_array:
    """Ones at the rows of the input table that ratings add up, (n_rows, n_columns K).

    That is row `column * K + k` for rating k; with sharing also those of all lower ratings.
    """
    n_each = levels.data.astype(np.int64) if share else np.ones(levels.nnz, dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(n_each)])
    first = levels.indices.astype(np.int64) * n_levels + levels.data - n_each
    places = np.arange(ends[-1]) + np.repeat(first - ends[:-1], n_each)
    ones, shape = np.ones(len(places), dtype=np.float32), levels.shape
    return csr_array((ones, places, ends[levels.indptr]), shape=(shape[0], shape[1] * n_levels))
