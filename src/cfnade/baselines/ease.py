"""EASE (Steck 2019) and EDLAE (Steck 2020): linear item-item models in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import spotrf, spotri
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from cfnade.baselines.support import checked_histories
from cfnade.beyond.direct import likes_of, shared_watchers
from cfnade.checks import check_above_zero, check_share
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.errors import TrainingError

_ONE_THREAD_ITEMS = 5_000  # one thread inverts a matrix of these in a second or two


@dataclass(eq=False)
class EDLAE:
    """Predicts each item from a history with a part of it hidden: `scores = x B`, x binary.

    The emphasised denoising linear autoencoder ("Autoencoders that don't overfit towards the
    Identity", NeurIPS 2020) with full emphasis on what is hidden:
    `P = inv(X^T X + diag(regularization + n p / (1 - p)))` with n the items' numbers of users and
    p the dropout, `B = -P / diag(P)` by column with a zero diagonal. So the L2 penalty of an
    item grows with its users; with `dropout=0` it is EASE. An empty history scores 0 for every
    item.

    Args:
        regularization: The part of the L2 penalty that is the same for all items.
        dropout: Share of the history that is hidden, below 1.
        max_memory_gb: `fit` refuses a catalogue that needs more; 2 GB hold 22,360 items.
        gram: X^T X of the counts to fit on, if it is known.

    Attributes:
        item_weights_: B, how much an item of the history (row) speaks for another (column),
            (n_items, n_items).
    """

    regularization: float = 200.0
    dropout: float = 0.33
    max_memory_gb: float = 2.0
    gram: NDArray[np.float32] | None = field(default=None, repr=False)
    item_weights_: NDArray[np.float32] = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> Self:
        """Solve for B from sparse counts, (n_users, n_items); a count above 0 is a like."""
        check_above_zero(regularization=self.regularization)
        check_share(dropout=self.dropout)
        counts = as_count_matrix(counts)
        n_items = counts.shape[1]
        needed_gb = _array_gb(n_items)
        if needed_gb > self.max_memory_gb:
            raise TrainingError(
                f"{type(self).__name__} needs {needed_gb:.1f} GB for {n_items:,} items, above "
                f"max_memory_gb={self.max_memory_gb:g}; drop rare items, or raise the limit if the "
                "machine has the memory"
            )
        self.item_weights_ = item_item_weights(counts, self.regularization, self.dropout, self.gram)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, len(self.item_weights_))
        return np.asarray(likes_of(histories) @ self.item_weights_)


@dataclass(eq=False)
class EASE(EDLAE):
    """Predicts each item from the user's other items: `scores = x B`, x binary.

    B minimises `|X - X B|^2 + regularization * |B|^2` with a zero diagonal:
    `P = inv(X^T X + regularization * I)`, `B = -P / diag(P)` by column. Arguments and attributes
    are those of EDLAE without the dropout; the regularization is some tens for sparse data, and up
    to thousands for dense data.
    """

    dropout: float = field(default=0.0, init=False, repr=False)


def shared_gram(counts: CountMatrix) -> NDArray[np.float32] | None:
    """X^T X for several fits on the same counts; None if it would need much memory."""
    if 2 * _array_gb(counts.shape[1]) > EASE.max_memory_gb:
        return None
    return shared_watchers(likes_of(as_count_matrix(counts)))


def _array_gb(n_items: int) -> float:
    """Of one float32 array of items by items."""
    return 4 * n_items**2 / 1e9


def item_item_weights(
    counts: csr_array, l2: float, dropout: float = 0.0, gram: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """B of EDLAE, or of EASE without dropout, (n_items, n_items), made in one float32 array."""
    P = shared_watchers(likes_of(counts)) if gram is None else gram.copy()
    diagonal = np.diag_indices_from(P)
    P[diagonal] += l2 + P[diagonal] * (dropout / (1.0 - dropout))
    # On a busy machine two BLAS threads wait for each other: 8 s instead of 0.1 s at 1,865 items.
    n_threads = 1 if len(P) <= _ONE_THREAD_ITEMS else None
    with threadpool_limits(n_threads, "blas"):
        _invert_in_place(P)
    P /= -np.diag(P).copy()  # divides column j by P_jj
    np.fill_diagonal(P, 0.0)
    return P


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
