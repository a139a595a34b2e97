"""First weights from a truncated singular value decomposition: seconds that may save epochs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

_OVERSAMPLING = 16
_POWER_ITERATIONS = 2


def item_factors(
    likes: csr_array, n_factors: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Leading right singular vectors of the likes, each row divided by its length's root.

    By random projections (Halko, Martinsson, Tropp 2011): a few passes over the likes.

    Args:
        likes: Any matrix with a stored value for each like, (n_users, n_items).
        n_factors: How many; those beyond the rank of the likes are 0.
        rng: Source of randomness.

    Returns:
        Vectors as columns, (n_items, n_factors), and singular values, largest first,
        (n_factors,).
    """
    lengths = np.diff(likes.indptr)
    root = np.sqrt(np.maximum(lengths, 1), dtype=np.float32)
    values = np.repeat(1.0 / root, lengths).astype(np.float32)
    X = csr_array((values, likes.indices, likes.indptr), shape=likes.shape)
    n_drawn = min(n_factors + _OVERSAMPLING, *X.shape)
    basis = X.T @ rng.standard_normal((X.shape[0], n_drawn), dtype=np.float32)
    for _ in range(_POWER_ITERATIONS):
        basis, _ = np.linalg.qr(basis)
        basis = X.T @ (X @ basis)
    basis, _ = np.linalg.qr(basis)  # (n_items, n_drawn)
    projected = X @ basis
    values, rotation = np.linalg.eigh(projected.T @ projected)  # ascending
    n_kept = min(n_factors, n_drawn)
    vectors = np.zeros((X.shape[1], n_factors), dtype=np.float32)
    vectors[:, :n_kept] = (basis @ rotation)[:, ::-1][:, :n_kept]
    singular = np.zeros(n_factors, dtype=np.float32)
    singular[:n_kept] = np.sqrt(np.maximum(values[::-1][:n_kept], 0.0))
    return vectors, singular
