"""The direct path beside `V h`: for each item, the few others that speak for it, by regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from cfnade.beyond.closed_form import likes_of, shared_watchers

DENSE_UP_TO = 20_000
"""Items up to which all pairs are counted in one dense array, of 1.6 GB at most; above it in a
sparse one, as most pairs of so many items share nobody."""

N_CANDIDATES = 100
"""Items that may speak for each item; twice that above `DENSE_UP_TO` items, where each has more
others that are close to it."""

MOST_USERS = 50_000
"""Users at most, evenly taken, on whom the sparse array is counted."""

_ITEMS = 64  # regressed on at once
_LEAST_PENALTY = np.float32(1e-5)  # of an item's watchers; below, alike items are one in float32
_TABLES = 5  # of neighbours: found, chosen, as a sparse matrix, and those of a network before
_LONG_HISTORIES = 4  # mean square of the histories' lengths at most, by the square of their mean
_MOST_ROUNDS = 12  # of a regression; few take so many, and are then all but done
_TOLERANCE = 1e-4  # slope that counts as none, in units of the largest


class NeighbourRegression:
    """Finds the items that speak for each item.

    It is a least squares without negative weights, as in SLIM (Ning and Karypis 2011): nothing
    speaks against an item. For each item only some candidates may speak: those that would, each
    alone, explain most of it. With S the candidates of item j, G how many watchers two items share
    and D the penalty, b minimises `b (G_SS + D_SS) b / 2 - b G_Sj` over all `b >= 0`. These are
    small systems, one for each item, so the catalogue may be large.
    """

    def __init__(
        self, counts: csr_array, dropout: float = 0.0, n_candidates: int | None = None
    ) -> None:
        """Count what items share.

        Args:
            counts: Sparse, (n_users, n_items).
            dropout: Share of the history that is hidden, as in EDLAE: a penalty that grows with
                the watchers of an item.
            n_candidates: How many items may speak for each; None for `usual_candidates`.
        """
        self.n_items = counts.shape[1]
        if self.n_items > DENSE_UP_TO:
            counts = counts[:: -(-counts.shape[0] // MOST_USERS)]
        likes = likes_of(counts)
        by_item = likes.T.tocsr()
        if n_candidates is None:
            n_candidates = usual_candidates(self.n_items)
        self.n_candidates = min(n_candidates, max(self.n_items - 1, 1))
        self._n_watchers = np.diff(by_item.indptr).astype(np.float32)
        self._hidden = np.float32(dropout / (1.0 - dropout)) * self._n_watchers
        self._shared: NDArray[np.float32] | csr_array = (
            shared_watchers(counts) if self.n_items <= DENSE_UP_TO else by_item @ likes
        )

    def neighbours(
        self, l2: float, n_neighbours: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The items that speak most for each item.

        Args:
            l2: Strength of the L2 penalty, above 0.
            n_neighbours: How many to keep for each item.

        Returns:
            Their columns and their weights, strongest first, (n_items, n_neighbours) each. Where
            fewer speak for an item, the rest is the item itself with weight 0.
        """
        neighbours = np.repeat(np.arange(self.n_items)[:, None], n_neighbours, axis=1)
        strength = np.zeros((self.n_items, n_neighbours), dtype=np.float32)
        n_kept = min(n_neighbours, self.n_candidates)
        with threadpool_limits(1, "blas"):  # the systems are small
            for start in range(0, self.n_items, _ITEMS):
                items = np.arange(start, min(start + _ITEMS, self.n_items))
                candidates, weights = self._regress(items, np.float32(l2))
                order = np.argsort(-weights, axis=1, kind="stable")[:, :n_kept]
                weights = np.take_along_axis(weights, order, axis=1)
                chosen = np.take_along_axis(candidates, order, axis=1)
                speaks_for = weights > 0.0
                neighbours[items, :n_kept] = np.where(speaks_for, chosen, items[:, None])
                strength[items, :n_kept] = np.where(speaks_for, weights, 0.0)
        return neighbours, strength

    def _regress(
        self, items: NDArray[np.int64], l2: np.float32
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Candidates of each item and their weights, (n_items, n_candidates) each."""
        penalty = l2 + self._hidden  # D, (n_items,)
        penalty = np.maximum(penalty, _LEAST_PENALTY * self._n_watchers)
        shared = self._shared_by(items)
        shared[np.arange(len(items)), items] = 0.0
        explained = shared**2 / (self._n_watchers + penalty)  # by each alone
        explained[np.arange(len(items)), items] = -1.0  # never an item for itself
        n_others = self.n_items - self.n_candidates
        candidates = np.argpartition(explained, n_others, axis=1)[:, n_others:]
        systems = np.stack([self._shared_among(chosen) for chosen in candidates])
        diagonal = np.arange(self.n_candidates)
        systems[:, diagonal, diagonal] += penalty[candidates]
        wanted = np.take_along_axis(shared, candidates, axis=1)
        return candidates, non_negative_weights(systems, wanted)

    def _shared_by(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of G, a copy, (len(items), n_items)."""
        rows = self._shared[items]
        return rows if isinstance(rows, np.ndarray) else np.asarray(rows.toarray())

    def _shared_among(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """G of some items alone, (len(items), len(items))."""
        if isinstance(self._shared, np.ndarray):
            return self._shared[np.ix_(items, items)]
        return np.asarray(self._shared[items][:, items].toarray())


def non_negative_weights(
    systems: NDArray[np.float32], wanted: NDArray[np.float32]
) -> NDArray[np.float32]:
    """For each system the `b >= 0` with the least `b A b / 2 - b y`.

    By block principal pivoting (Portugal, Judice and Vicente 1994): solve for the weights that are
    free, the others being 0; hold at 0 what comes out negative, free what would rise from 0; again,
    until nothing changes. That takes about six rounds, where coordinate descent takes fifty passes.

    Args:
        systems: A, symmetric and positive definite, (n_systems, n_weights, n_weights).
        wanted: y, (n_systems, n_weights).

    Returns:
        (n_systems, n_weights).
    """
    weights = np.zeros_like(wanted)
    is_free = np.ones(wanted.shape, dtype=np.bool_)
    diagonal = np.arange(wanted.shape[1])
    unfinished = np.arange(len(wanted))  # systems that are not done
    for _ in range(_MOST_ROUNDS):
        A, y, free = systems[unfinished], wanted[unfinished], is_free[unfinished]
        among_free = A * (free[:, :, None] & free[:, None, :])
        among_free[:, diagonal, diagonal] = A[:, diagonal, diagonal]
        b = np.linalg.solve(among_free, (y * free)[:, :, None])
        slope = (y[:, :, None] - A @ b)[:, :, 0]
        b = b[:, :, 0]
        weights[unfinished] = np.maximum(b, 0.0)
        rises = slope > _TOLERANCE * np.abs(y).max(axis=1, keepdims=True)
        is_wrong = np.where(free, b < 0.0, rises)
        is_free[unfinished] = free ^ is_wrong
        unfinished = unfinished[is_wrong.any(axis=1)]
        if unfinished.size == 0:
            break
    return weights


def usual_candidates(n_items: int) -> int:
    """How many items may speak for each of so many."""
    return N_CANDIDATES if n_items <= DENSE_UP_TO else 2 * N_CANDIDATES


def regression_bytes(n_users: int, n_items: int, n_pairs: int) -> int:
    """Memory that finding neighbours and adding them takes at most, beside the counts."""
    n_candidates = min(usual_candidates(n_items), n_items)
    found = n_items * n_candidates * 12 * _TABLES
    at_once = min(_ITEMS, n_items) * (n_items * 16 + n_candidates**2 * 13)
    if n_items <= DENSE_UP_TO:
        return found + at_once + 4 * n_items**2
    n_counted = n_pairs * min(1.0, MOST_USERS / max(n_users, 1))
    n_shared = _LONG_HISTORIES * n_counted * n_pairs / max(n_users, 1)
    return found + at_once + int(8 * min(n_shared, n_items**2))
