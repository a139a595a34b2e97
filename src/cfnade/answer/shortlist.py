"""The best items of many histories, exactly, without the score of every item.

`V h` is most of the work. V is rotated so that a few columns hold most of it. The product with
these columns and a bound on the rest (Cauchy-Schwarz) give a limit that no score exceeds. Only
items whose limit reaches the n-th best score are scored (docs/decisions/0028).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.filters import at_least, best_of_chunks
from cfnade.model.inference import NumpyNetwork
from cfnade.scorer import blocks

_REST = 0.2  # share of V, in squares, outside the kept columns at most
_SAMPLE = 4096  # items that the rotation is found from
_MANY = 32  # to score one item in 32 on its own takes as long as the whole product
_ENOUGH = 64  # users from which it is judged whether the rotation pays
_PAIRS = 512  # scored at once: their weights stay in the cache


Best: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Rows, columns and scores: row by row, best first, ties in the order of columns."""


class Shortlist:
    """Finds the best items for hidden layers of a network.

    A score is `h v + d` and the direct path, in float32, summed in one fixed order: it depends
    neither on the limits nor on other rows.
    """

    def __init__(self, network: NumpyNetwork) -> None:
        self._network = network
        self._V, self._d = network.weights["output_weight"], network.bias
        n_items, n_hidden = self._V.shape
        self._Q = _principal_axes(self._V)
        self._is_rotated = 2 * self._Q.shape[1] <= n_hidden
        # Bounds what rounding changes in a score and in its limit, relative to the norms.
        self._slack = 2.0**-23 * (sum(self._Q.shape) + 16)
        self._rounding = np.empty(n_items, dtype=np.float32)
        n_columns = self._Q.shape[1] + 2 if self._is_rotated else 0
        self._by_unit = np.empty((n_columns, n_items), dtype=np.float32)
        for rows in blocks(n_items, 2 * n_hidden):
            V, d = self._V[rows].astype(np.float64), self._d[rows].astype(np.float64)
            self._rounding[rows] = self._rounding_of(V, d)
            if self._is_rotated:
                self._by_unit[:, rows] = self._rotated(V, d).T

    def best(self, hidden: NDArray[np.float32], added: NDArray[np.float32], n: int) -> Best:
        """At most n best items for each hidden layer.

        Args:
            hidden: (n_users, n_hidden).
            added: What the direct path adds; minus infinity for items that may not be recommended,
                (n_users, n_items).
            n: Most items for each, at least 1.
        """
        most = len(self._V) // _MANY
        is_rough = self._is_rotated and n <= most
        limits = self._rough_limits(hidden) if is_rough else self._limits(hidden)
        limits += added
        some = self._scored(hidden, added, *best_of_chunks(limits, n))
        reached = _nth_best(some, n, len(hidden))
        row, column = at_least(limits, reached)
        too_many = np.flatnonzero(np.bincount(row, minlength=len(hidden)) > most)
        if is_rough and too_many.size:
            limits[too_many] = self._limits(hidden[too_many]) + added[too_many]
            row, column = at_least(limits, reached)
            if len(hidden) >= _ENOUGH:
                self._is_rotated = 2 * too_many.size < len(hidden)  # else it does not pay
        row, column, score = self._scored(hidden, added, row, column)
        is_among = np.arange(row.size) - np.searchsorted(row, row) < n
        return row[is_among], column[is_among], score[is_among]

    def scores(
        self,
        hidden: NDArray[np.float32],
        added: NDArray[np.float32],
        row: NDArray[np.int64],
        column: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Scores of some pairs of a hidden layer and an item, (n_pairs,), as in `best`."""
        score = np.empty(row.size, dtype=np.float32)
        for start in range(0, row.size, _PAIRS):
            part = slice(start, start + _PAIRS)
            np.einsum("ij,ij->i", hidden[row[part]], self._V[column[part]], out=score[part])
        score += self._d[column]
        score += added[row, column]
        return score

    def _rough_limits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Limits from the kept columns, (n_users, n_items)."""
        rotated = self._rotated(hidden.astype(np.float64), np.ones(len(hidden)))
        return np.asarray(rotated.astype(np.float32) @ self._by_unit)

    def _limits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Limits that differ from the scores by rounding alone, (n_users, n_items)."""
        limits = self._network.output(hidden)
        limits += self._d
        rounding = self._rounding_of(hidden.astype(np.float64), np.ones(len(hidden)))
        limits += rounding.astype(np.float32)[:, None] * self._rounding
        return limits

    def _rotated(self, rows: NDArray[np.float64], last: NDArray[np.float64]) -> NDArray[np.float64]:
        """Kept columns, a bound for the others, and the last column, (n_rows, n_kept + 2).

        For h with 1 and v with d, the product of two such rows is at least `h v + d`.
        """
        kept = rows @ self._Q
        rest = np.maximum(_squares(rows) - _squares(kept), 0.0)
        bound = np.sqrt(rest + self._rounding_of(rows, last) ** 2)
        return np.column_stack([kept, (1.0 + self._slack) * bound, last])

    def _rounding_of(
        self, rows: NDArray[np.float64], last: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(self._slack * (_squares(rows) + last**2)))

    def _scored(
        self,
        hidden: NDArray[np.float32],
        added: NDArray[np.float32],
        row: NDArray[np.int64],
        column: NDArray[np.int64],
    ) -> Best:
        """Score pairs in the order of rows and columns, (n_pairs,), and sort them."""
        score = self.scores(hidden, added, row, column)
        # One key for both: rows, then scores as integers in descending order.
        bits = (0.0 - score).view(np.int32).astype(np.int64)
        order = np.argsort((row << 32) + np.where(bits < 0, bits ^ 0x7FFFFFFF, bits), kind="stable")
        return row[order], column[order], score[order]


def _nth_best(found: Best, n: int, n_rows: int) -> NDArray[np.float32]:
    """A bit less than the n-th best score of each row, (n_rows,); minus infinity if there is none.

    Less, because a limit is rounded when the direct path is added to it.
    """
    row, _, score = found
    starts, ends = (np.searchsorted(row, np.arange(n_rows), s) for s in ("left", "right"))
    has_n = ends - starts >= n
    reached = np.full(n_rows, -np.inf, dtype=np.float32)
    reached[has_n] = score[starts[has_n] + n - 1]
    reached -= np.float32(2.0**-20) * np.abs(reached)
    return reached


def _principal_axes(V: NDArray[np.float32]) -> NDArray[np.float64]:
    """Orthogonal axes that hold V except for the share `_REST`, (n_hidden, n_kept)."""
    some = V[:: max(1, len(V) // _SAMPLE)].astype(np.float64)
    squares, axes = np.linalg.eigh(some.T @ some)  # ascending
    n_rest = np.searchsorted(np.cumsum(squares), _REST * squares.sum())
    return np.asarray(axes[:, n_rest:])


def _squares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
