"""Pairs of a user and an item as numbers, by which sets of pairs are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def rows_of(pairs: csr_array) -> NDArray[np.int64]:
    """The row of each stored value, (n_pairs,)."""
    return np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))


def pair_keys(
    user: NDArray[np.integer], item: NDArray[np.integer], n_items: int
) -> NDArray[np.int64]:
    """One number for each pair, ascending by user, then item, (n_pairs,)."""
    return user.astype(np.int64) * n_items + item


def keys_of(pairs: csr_array) -> NDArray[np.int64]:
    """`pair_keys` of the stored values, (n_pairs,)."""
    return pair_keys(rows_of(pairs), pairs.indices, pairs.shape[1])
