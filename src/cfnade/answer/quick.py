"""The network for blocks of histories, by torch: hidden layers, and `V h` in 8 bits.

Both factors of `V h` are rounded to whole multiples of a unit. Their product is exact in integers,
so only the rounding of the factors makes an error, and its bound is known.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.model.inference import NumpyNetwork
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


class QuickNetwork:
    """A network, (n_items, n_hidden), for blocks of histories."""

    def __init__(self, network: NumpyNetwork) -> None:
        import torch  # late: answering does without it

        self._network, V = network, network.weights["output_weight"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mapped weights are read-only, and only read here
            inputs = ("like_weight", "dislike_weight")
            self._inputs = {name: torch.from_numpy(network.weights[name]) for name in inputs}
        rounded, norms = np.empty(V.shape, dtype=np.int8), np.empty((2, len(V)))
        self._unit = np.empty(len(V), dtype=np.float32)
        for rows in blocks(len(V), 4 * V.shape[1]):
            self._unit[rows] = _units(V[rows])
            rounded[rows], norms[0, rows] = _rounded(V[rows], self._unit[rows, None])
            norms[1, rows] = _norms(V[rows])
        self._largest_rounding, self._largest = norms.max(axis=1).tolist()
        self._V = torch.from_numpy(rounded).T

    def hidden(self, ratings: csr_array) -> NDArray[np.float32]:
        """As `NumpyNetwork.hidden`, in another order of sums."""
        first_input = self._network.first_input(ratings, row_sums=self._row_sums)
        return self._network.hidden_of(first_input)

    def products(self, hidden: NDArray[np.float32]) -> RoughProducts:
        """Products of V and hidden layers, (n_users, n_hidden).

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

    def _row_sums(self, pairs: csr_array, values: NDArray[np.floating], name: str) -> NDArray[Any]:
        """As `RowSums`: fetches the next rows from memory in advance."""
        from torch import from_numpy
        from torch.nn.functional import embedding_bag

        sums: NDArray[Any] = embedding_bag(
            from_numpy(pairs.indices),
            self._inputs[name],
            from_numpy(pairs.indptr.astype(pairs.indices.dtype, copy=False)),
            mode="sum",
            per_sample_weights=from_numpy(values.astype(np.float32, copy=False)),
            include_last_offset=True,
        ).numpy()
        return sums


def _units(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The unit in which the largest number of each row is `_LARGEST`, (n_rows,)."""
    largest = np.abs(rows).max(axis=1)
    return np.asarray(np.maximum(largest / np.float32(_LARGEST), _LEAST_UNIT))


def _rounded(
    rows: NDArray[np.float32], unit: NDArray[np.float32] | np.float32
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Rows in whole units, and the norms of what rounding changed, (n_rows,)."""
    whole = np.rint(rows / unit)
    return whole.astype(np.int8), _norms(rows - whole.astype(np.float64) * unit)


def _norms(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))
