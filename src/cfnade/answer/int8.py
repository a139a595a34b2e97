"""`V h` in 8 bits, with a bound on its error: by torch, four times as fast as in float32.

Both factors are rounded to whole multiples of a unit. Their product is exact in integers, so only
the rounding of the factors makes an error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfnade.scorer import blocks

_LARGEST = 127  # of 8 bits, with a sign
_LEAST_UNIT = np.float32(1e-30)  # of a vector of zeros


class RoughProducts(NamedTuple):
    """Products with some hidden layers."""

    n_units: NDArray[np.int32]
    """Whole numbers, (n_users, n_items)."""
    unit: NDArray[np.float32]
    """What one is worth, (n_items,)."""
    error: NDArray[np.float64]
    """No product is further from the exact one, for each user, (n_users,)."""


class Int8Weights:
    """V, (n_items, n_hidden), in 8 bits."""

    def __init__(self, V: NDArray[np.float32]) -> None:
        import torch  # late: answering does without it

        rounded, norms = np.empty(V.shape, dtype=np.int8), np.empty((2, len(V)))
        self._unit = np.empty(len(V), dtype=np.float32)
        for rows in blocks(len(V), 4 * V.shape[1]):
            self._unit[rows] = _units(V[rows])
            rounded[rows], norms[0, rows] = _rounded(V[rows], self._unit[rows, None])
            norms[1, rows] = _norms(V[rows])
        self._largest_rounding, self._largest = norms.max(axis=1).tolist()
        self._V = torch.from_numpy(rounded).T

    def products(self, hidden: NDArray[np.float32]) -> RoughProducts:
        """Multiply by hidden layers, (n_users, n_hidden).

        With h' and v' for what h and v are rounded to, `h v - h' v' = (h - h') v + h' (v - v')`.
        By Cauchy-Schwarz its size is at most `|h - h'| |v| + |h'| |v - v'|`.
        """
        import torch

        unit = _units(hidden).max()
        rounded, rounding = _rounded(hidden, unit)
        error = rounding * self._largest + (_norms(hidden) + rounding) * self._largest_rounding
        n_units = np.empty((len(hidden), len(self._unit)), dtype=np.int32)
        torch._int_mm(torch.from_numpy(rounded), self._V, out=torch.from_numpy(n_units))
        return RoughProducts(n_units, unit * self._unit, error)


def _units(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The unit in which the largest number of each row is `_LARGEST`, (n_rows,)."""
    return np.maximum(np.abs(rows).max(axis=1) / np.float32(_LARGEST), _LEAST_UNIT)


def _rounded(
    rows: NDArray[np.float32], unit: NDArray[np.float32] | np.float32
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Rows in whole units, and the norms of what rounding changed, (n_rows,)."""
    whole = np.rint(rows / unit)
    return whole.astype(np.int8), _norms(rows - whole.astype(np.float64) * unit)


def _norms(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
