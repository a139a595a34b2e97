"""Linear item-item weights in closed form: EASE and EDLAE, every item speaking for every other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import spotrf, spotri
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from cfnade.errors import TrainingError

_ONE_THREAD_UP_TO = 5_000  # items; one thread inverts these in a second or two
_GRAM_ROWS = 1024  # rows of the Gram matrix made at once, so that its sparse form stays small


def item_item_weights(counts: csr_array, l2: float, dropout: float = 0.0) -> NDArray[np.float32]:
    """How much each item of a history speaks for each other item: EASE, or EDLAE with dropout.

    With `P = inv(X^T X + diag(l2 + n p / (1 - p)))`, X binary, n the items' numbers of watchers
    and p the dropout, `B = -P / diag(P)` by column, with a zero diagonal. It is the best linear
    prediction of each item from a history of which the share p is hidden (Steck 2019, 2020). All
    of it happens in one float32 array.

    Args:
        counts: Sparse, (n_users, n_items).
        l2: Strength of the L2 penalty, above 0.
        dropout: Share of the history that is hidden; 0 gives EASE.

    Returns:
        B, (n_items, n_items): row is the item of the history, column the one predicted.

    Raises:
        TrainingError: If l2 is too small to invert the matrix.
    """
    P = shared_watchers(counts)
    diagonal = np.diag_indices_from(P)
    P[diagonal] += l2 + P[diagonal] * (dropout / (1.0 - dropout))
    # On a busy machine two BLAS threads wait for each other: 8 s instead of 0.1 s at 1,865 items.
    n_threads = 1 if len(P) <= _ONE_THREAD_UP_TO else None
    with threadpool_limits(n_threads, "blas"):
        _invert_in_place(P)
    P /= -np.diag(P).copy()  # divides column j by P_jj
    np.fill_diagonal(P, 0.0)
    return P


def likes_of(counts: csr_array) -> csr_array:
    """The counts with 1.0 for each of them, float32."""
    likes = counts.astype(np.float32, copy=True)
    likes.data[:] = 1.0
    return likes


def shared_watchers(counts: csr_array) -> NDArray[np.float32]:
    """G = X^T X: how many users two items share (exact in float32 up to 16.7 million)."""
    X = likes_of(counts)
    Xt = X.T.tocsr()
    n_items = X.shape[1]
    gram = np.empty((n_items, n_items), dtype=np.float32)
    for start in range(0, n_items, _GRAM_ROWS):
        rows = slice(start, min(start + _GRAM_ROWS, n_items))
        gram[rows] = (Xt[rows] @ X).toarray()
    return gram


def _invert_in_place(matrix: NDArray[np.float32]) -> None:
    """Invert a symmetric positive definite matrix by Cholesky, without a second array."""
    # LAPACK counts by columns: the transposed view is what it can overwrite, and its upper
    # triangle is our lower one.
    factor, failed = spotrf(matrix.T, lower=False, overwrite_a=True)
    if failed == 0:
        _, failed = spotri(factor, lower=False, overwrite_c=True)
    if failed != 0:
        raise TrainingError("the item-item matrix cannot be inverted; raise the regularization")
    for row in range(len(matrix)):
        matrix[row, row + 1 :] = matrix[row + 1 :, row]
