"""Linear item-item weights in closed form: EASE, and the direct path beside `V h`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import spotrf, spotri
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from cfnade.errors import TrainingError

_ONE_THREAD_UP_TO = 5_000  # items; one thread inverts these in a second or two
_GRAM_ROWS = 1024  # rows of the Gram matrix made at once, so that its sparse form stays small
_COLUMNS = 1024  # columns looked through for neighbours at once
_SYSTEMS = 128  # items whose candidates are regressed on at once


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
    P = _gram(counts)
    diagonal = np.diag_indices_from(P)
    P[diagonal] += l2 + P[diagonal] * (dropout / (1.0 - dropout))
    # On a busy machine two BLAS threads wait for each other: 8 s instead of 0.1 s at 1,865 items.
    n_threads = 1 if len(P) <= _ONE_THREAD_UP_TO else None
    with threadpool_limits(n_threads, "blas"):
        _invert_in_place(P)
    P /= -np.diag(P).copy()  # divides column j by P_jj
    np.fill_diagonal(P, 0.0)
    return P


def regressed_neighbours(
    counts: csr_array, l2: float, dropout: float, n_neighbours: int, n_candidates: int = 200
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The items that speak most for each item, where they are too many for an inverse.

    The least squares of `item_item_weights`, but of all items only some candidates may speak for
    each: those that would, each alone, explain most of it. With S the candidates of item j,
    `b = inv(G_SS + D_SS) G_Sj`: one small system for each item, and no array of items by items.

    Args:
        counts: Sparse, (n_users, n_items).
        l2: Strength of the L2 penalty, above 0.
        dropout: Share of the history that is hidden.
        n_neighbours: How many to keep for each item.
        n_candidates: How many may speak for each item.

    Returns:
        As of `strongest_neighbours`.
    """
    X = likes_of(counts)
    Xt, by_item = X.T.tocsr(), X.tocsc()
    n_items = X.shape[1]
    n_candidates = min(n_candidates, max(n_items - 1, 1))
    n_watchers = np.diff(Xt.indptr).astype(np.float32)
    penalty = l2 + n_watchers * np.float32(dropout / (1.0 - dropout))  # D, (n_items,)
    neighbours = np.repeat(np.arange(n_items)[:, None], n_neighbours, axis=1)
    strength = np.zeros((n_items, n_neighbours), dtype=np.float32)
    n_kept = min(n_neighbours, n_candidates)
    for start in range(0, n_items, _SYSTEMS):
        items = np.arange(start, min(start + _SYSTEMS, n_items))
        shared = (Xt[items] @ X).toarray()  # rows of G
        shared[np.arange(len(items)), items] = 0.0
        explained = shared**2 / (n_watchers + penalty)
        candidates = np.argpartition(explained, n_items - n_candidates)[:, n_items - n_candidates :]
        systems = np.empty((len(items), n_candidates, n_candidates), dtype=np.float32)
        for system, chosen in zip(systems, candidates, strict=True):
            columns = by_item[:, chosen]
            system[:] = (columns.T @ columns).toarray()
        diagonal = np.arange(n_candidates)
        systems[:, diagonal, diagonal] += penalty[candidates]
        wanted = np.take_along_axis(shared, candidates, axis=1)
        weights = np.linalg.solve(systems, wanted[:, :, None])[:, :, 0]
        order = np.argsort(-weights, axis=1, kind="stable")[:, :n_kept]
        weights = np.take_along_axis(weights, order, axis=1)
        speaks_for = weights > 0.0
        kept = neighbours[items, :n_kept]
        kept[speaks_for] = np.take_along_axis(candidates, order, axis=1)[speaks_for]
        neighbours[items, :n_kept] = kept
        strength[items, :n_kept] = np.where(speaks_for, weights, 0.0)
    return neighbours, strength


def strongest_neighbours(
    weights: NDArray[np.float32], n_neighbours: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The items that speak most for each item; what speaks against it is left out.

    Args:
        weights: As of `item_item_weights`, (n_items, n_items).
        n_neighbours: How many to keep for each item.

    Returns:
        Their columns and their weights, strongest first, (n_items, n_neighbours) each. Where
        fewer speak for an item, the rest is the item itself with weight 0.
    """
    n_items = len(weights)
    neighbours = np.repeat(np.arange(n_items)[:, None], n_neighbours, axis=1)
    strength = np.zeros((n_items, n_neighbours), dtype=np.float32)
    n_kept = min(n_neighbours, n_items)
    for start in range(0, n_items, _COLUMNS):
        columns = slice(start, min(start + _COLUMNS, n_items))
        block = np.ascontiguousarray(weights[:, columns].T)  # a row for each item predicted
        strongest = np.argpartition(block, n_items - n_kept, axis=1)[:, n_items - n_kept :]
        values = np.take_along_axis(block, strongest, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        values = np.take_along_axis(values, order, axis=1)
        speaks_for = values > 0.0
        kept = neighbours[columns, :n_kept]
        kept[speaks_for] = np.take_along_axis(strongest, order, axis=1)[speaks_for]
        strength[columns, :n_kept] = np.where(speaks_for, values, 0.0)
    return neighbours, strength


def direct_weight(neighbours: NDArray[np.int64], weight: NDArray[np.float32]) -> csr_array:
    """B as a sparse matrix: row is the item of the history, column the one predicted.

    Args:
        neighbours: Items that speak for each item, (n_items, n_neighbours).
        weight: How much each of them does, (n_items, n_neighbours).

    Returns:
        (n_items, n_items).
    """
    n_items, n_neighbours = neighbours.shape
    ends = np.arange(0, neighbours.size + 1, n_neighbours)
    by_column = csr_array((weight.ravel(), neighbours.ravel(), ends), shape=(n_items, n_items))
    return by_column.T.tocsr()


def likes_of(counts: csr_array) -> csr_array:
    """The counts with 1.0 for each of them, float32."""
    likes = counts.astype(np.float32, copy=True)
    likes.data[:] = 1.0
    return likes


def _gram(counts: csr_array) -> NDArray[np.float32]:
    """X^T X: how many users two items share (exact in float32 up to 16.7 million)."""
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
