"""Limits that no score exceeds, from a few columns of V: a third of the work where V allows it.

V is rotated so that a few columns hold most of it. The product with these columns and a bound on
the rest (Cauchy-Schwarz) give the limits (docs/decisions/0028).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfnade.scorer import blocks

_REST = 0.2  # share of V, in squares, outside the kept columns at most
_SAMPLE = 4096  # items that the rotation is found from
_ENOUGH = 64  # users from which it is judged whether the limits pay


class RotatedWeights:
    """The first columns of V, rotated, with a bound on the others and the bias d.

    Rounding to float32 is in the bound: `rounding` is what it changes in a score and in its limit,
    relative to the norms of (h, 1) and (v, d).
    """

    def __init__(
        self, V: NDArray[np.float32], d: NDArray[np.float32], least_rounding: float
    ) -> None:
        self._axes = _principal_axes(V)  # (n_hidden, n_kept)
        n_kept = self._axes.shape[1]
        self._rounding = least_rounding + 2.0**-23 * n_kept
        self.pays = 2 * n_kept <= V.shape[1]
        """Whether to ask for limits: few columns are kept, and few users needed all of them."""
        self._n_asked = self._n_in_vain = 0
        self._by_unit = np.empty((n_kept + 2 if self.pays else 0, len(V)), dtype=np.float32)
        for rows in blocks(len(V) if self.pays else 0, 2 * V.shape[1]):
            self._by_unit[:, rows] = self._rotated(V[rows], d[rows]).T

    def limits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """No `h v + d` exceeds its limit, (n_users, n_items)."""
        ones = np.ones(len(hidden), dtype=np.float32)
        return np.asarray(self._rotated(hidden, ones).astype(np.float32) @ self._by_unit)

    def judge(self, n_asked: int, *, in_vain: bool) -> None:
        """Learn for how many users the limits were of use."""
        self._n_asked += n_asked
        self._n_in_vain += n_asked * in_vain
        if self._n_asked >= _ENOUGH:
            self.pays = 2 * self._n_in_vain < self._n_asked

    def _rotated(
        self, single: NDArray[np.float32], last: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Kept columns, a bound for the others, and the last column, (n_rows, n_kept + 2).

        For h with 1 and v with d, the product of two such rows is at least `h v + d`.
        """
        rows = single.astype(np.float64)
        kept = rows @ self._axes
        squares = _squares(rows)
        rest = np.maximum(squares - _squares(kept), 0.0)
        bound = np.sqrt(rest + self._rounding * (squares + last.astype(np.float64) ** 2))
        return np.column_stack([kept, (1.0 + self._rounding) * bound, last])


def _principal_axes(V: NDArray[np.float32]) -> NDArray[np.float64]:
    """Orthogonal axes that hold V except for the share `_REST`, (n_hidden, n_kept)."""
    some = V[:: max(1, len(V) // _SAMPLE)].astype(np.float64)
    gram = some.T @ some
    if not np.isfinite(gram).all():  # of a model that was not verified: keep all columns
        return np.eye(len(gram))
    squares, axes = np.linalg.eigh(gram)  # ascending
    n_rest = np.searchsorted(np.cumsum(squares), _REST * squares.sum())
    return np.asarray(axes[:, n_rest:])


def _squares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
