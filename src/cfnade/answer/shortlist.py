"""The best items of many histories, exactly, without the exact score of every item.

`V h` is most of the work. Cheaper products with a known error leave few items that can be among the
best: in 8 bits (`QuickNetwork`), or of a few columns (`RotatedWeights`). Only these items are
scored (docs/decisions/0028).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.filters import at_least, best_of_chunks, nth_good
from cfnade.answer.quick import QuickNetwork
from cfnade.answer.rotation import RotatedWeights
from cfnade.model.inference import NumpyNetwork
from cfnade.scorer import BLOCK_BYTES, blocks, rows_per_block

_MANY = 32  # to score one item in 32 on its own takes as long as the whole product
_CACHE_BYTES = BLOCK_BYTES * 9 // 64  # of scores compared at once: they stay in a small cache
_PAIRS = 512  # scored at once: their weights stay in the cache


Best: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Rows, columns and scores: row by row, best first, ties in the order of columns."""

Added: TypeAlias = Callable[[slice], NDArray[np.float32]]
"""What the direct path adds for some users; minus infinity for items that may not be recommended,
(n_users, n_items)."""


class Shortlist:
    """Finds the best items for hidden layers of a network.

    A score is `h v + d` and the direct path, in float32, summed in one fixed order: it depends
    neither on the products nor on other rows.
    """

    def __init__(self, network: NumpyNetwork) -> None:
        self._network = network
        self._V, self._d = network.weights["output_weight"], network.bias
        # Bounds what rounding to float32 changes in a score and in its estimate.
        rounding = 2.0**-23 * (self._V.shape[1] + 16)
        largest = np.sqrt((_squares(self._V) + self._d.astype(np.float64) ** 2).max())
        self._rounding = rounding * largest
        self._rotation = RotatedWeights(self._V, self._d, rounding)

    def best(
        self, hidden: NDArray[np.float32], added: Added, n: int, quick: QuickNetwork | None = None
    ) -> Best:
        """At most n best items for each hidden layer.

        Args:
            hidden: (n_users, n_hidden).
            added: Called with consecutive slices of the users.
            n: Most items for each, at least 1.
            quick: For products in 8 bits; None for those in float32. The result is the same.
        """
        n_items, found = len(self._V), []
        most = n_items // _MANY
        rounding = self._rounding * np.sqrt(1.0 + _squares(hidden))
        is_quick = quick is not None and n <= most // 4  # else too many may be on the list
        is_rotated = not is_quick and self._rotation.pays and n <= most
        if quick is not None and is_quick:
            n_units, unit, error = quick.products(hidden)
            error += rounding
            space = np.empty((rows_per_block(n_items, _CACHE_BYTES), n_items), dtype=np.float32)
        elif is_rotated:
            limits = self._rotation.limits(hidden)
        else:
            products = self._network.output(hidden)
        for rows in blocks(len(hidden), n_items, _CACHE_BYTES):
            own = added(rows)
            if is_quick:
                near = space[: len(own)]
                np.copyto(near, n_units[rows], casting="unsafe")
                near *= unit
                row, column = self._near_best(near, own, n, error[rows])
            elif is_rotated:
                row, column = self._within_limits(limits[rows], own, n, hidden[rows])
            else:
                row, column = self._near_best(products[rows], own, n, rounding[rows])
            is_too_rough = row.size > most * len(own)
            if is_rotated:
                self._rotation.judge(len(own), in_vain=is_too_rough)
            if is_too_rough and (is_quick or is_rotated):
                near = self._network.output(hidden[rows])
                row, column = self._near_best(near, own, n, rounding[rows])
            found.append((row + rows.start, column, own[row, column]))
        row, column, score = self._scored(hidden, *map(np.concatenate, zip(*found, strict=True)))
        is_among = np.arange(row.size) - np.searchsorted(row, row) < n
        return row[is_among], column[is_among], score[is_among]

    def scores(
        self,
        hidden: NDArray[np.float32],
        row: NDArray[np.int64],
        column: NDArray[np.int64],
        added: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Scores of some pairs of a hidden layer and an item, as in `best`, (n_pairs,) each."""
        score = np.empty(row.size, dtype=np.float32)
        for start in range(0, row.size, _PAIRS):
            part = slice(start, start + _PAIRS)
            np.einsum("ij,ij->i", hidden[row[part]], self._V[column[part]], out=score[part])
        score += self._d[column]
        score += added
        return score

    def _near_best(
        self,
        products: NDArray[np.float32],
        added: NDArray[np.float32],
        n: int,
        error: NDArray[np.float64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of the items that may be among the best n; changes the products.

        At least n estimates reach the n-th good one, so n scores reach it less the error. A score
        that does so has an estimate that is lower by at most the error once more. The sums with
        the direct path are rounded relative to themselves: 2^-20 covers this.
        """
        products += self._d
        products += added
        good = nth_good(products, n)
        least = good - (2.0 * error + 2.0**-20 * np.abs(good))
        return at_least(products, least.astype(np.float32))

    def _within_limits(
        self,
        limits: NDArray[np.float32],
        added: NDArray[np.float32],
        n: int,
        hidden: NDArray[np.float32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As `_near_best`, from limits that no `h v + d` exceeds: n good items are scored first."""
        limits += added
        row, column = best_of_chunks(limits, n)
        row, _, score = self._scored(hidden, row, column, added[row, column])
        starts, ends = (np.searchsorted(row, np.arange(len(hidden)), s) for s in ("left", "right"))
        has_n = ends - starts >= n
        reached = np.full(len(hidden), -np.inf, dtype=np.float32)
        reached[has_n] = score[starts[has_n] + n - 1]
        return at_least(limits, reached - np.float32(2.0**-20) * np.abs(reached))

    def _scored(
        self,
        hidden: NDArray[np.float32],
        row: NDArray[np.int64],
        column: NDArray[np.int64],
        added: NDArray[np.float32],
    ) -> Best:
        """Score pairs in the order of rows and columns, (n_pairs,), and sort them."""
        score = self.scores(hidden, row, column, added)
        # One key for both: rows, then scores as integers in descending order.
        bits = (0.0 - score).view(np.int32).astype(np.int64)
        order = np.argsort((row << 32) + np.where(bits < 0, bits ^ 0x7FFFFFFF, bits), kind="stable")
        return row[order], column[order], score[order]


def _squares(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
