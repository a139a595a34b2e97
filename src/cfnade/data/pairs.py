"""Pairs of a user and an item: those of a sparse matrix, and numbers to compare sets by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def rows_of(pairs: csr_array) -> NDArray[np.int64]:
    """The row of each stored value, (n_pairs,)."""
    return np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))


def pairs_where(pairs: csr_array, keep: NDArray[np.bool_]) -> csr_array:
    """The stored values to keep, (n_pairs,), in the same shape."""
    ends = np.concatenate([[0], np.cumsum(keep)])[pairs.indptr]
    return csr_array((pairs.data[keep], pairs.indices[keep], ends), shape=pairs.shape)


def pair_keys(
    user: NDArray[np.integer], item: NDArray[np.integer], n_items: int
) -> NDArray[np.int64]:
    """One number for each pair, ascending by user, then item, (n_pairs,)."""
    return user.astype(np.int64) * n_items + item


def keys_of(pairs: csr_array) -> NDArray[np.int64]:
    """`pair_keys` of the stored values, (n_pairs,)."""
    return pair_keys(rows_of(pairs), pairs.indices, pairs.shape[1])
