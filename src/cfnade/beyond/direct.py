"""The direct path beside `V h`: each item's strongest neighbours, found by regression.

The network squeezes a history through its hidden layer and loses pairs of rare items on the way.
The direct path adds them back: `logits = d + V h + x B`, with a few entries in each column of B.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from cfnade.threads import available_threads

Neighbours: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Neighbours of each item and their weights, (n_items, n_neighbours) each."""

LEAST_WATCHERS = 3
"""Watchers that an item needs for a regression."""

_ITEMS = 64  # regressions at once
_GRAM_ROWS = 1024  # of shared watchers at once, so that their sparse form stays small
_LEAST_PENALTY = np.float32(1e-5)  # per watcher; below it, like items are singular in float32
_TABLES = 5  # of neighbours: found, chosen, as a sparse matrix, and those of a network before
_LONG_HISTORIES = 8  # bound of the mean square of history lengths over the square of their mean
_MAX_ROUNDS = 12  # of the active-set method; hardly any regression takes so many
_TOLERANCE = 1e-4  # slope that counts as 0, in units of the largest


class NeighbourRegression:
    """Finds the neighbours of each item.

    Least squares with weights of at least 0, as in SLIM (Ning and Karypis 2011). For item j the
    candidates S are the items that, taken one at a time, explain most of it. With G the watchers
    that two items share, b minimises `b (G_SS + l2) b / 2 - b G_Sj` over `b >= 0`. These are small
    systems, one per item, so the catalogue may be large. Items with one or two watchers are left
    out: they would take most of the time and change nothing.
    """

    def __init__(
        self,
        counts: csr_array,
        n_candidates: int = 100,
        max_users: int | None = None,
        n_threads: int | None = None,
    ) -> None:
        """Count the watchers that items share.

        Args:
            counts: Sparse, (n_users, n_items).
            n_candidates: Items that may become neighbours of an item.
            max_users: For a large catalogue: use at most this many users, and count the watchers
                that are needed for each item when its turn comes. None uses all, and counts the
                watchers of all pairs of items once, in a dense array.
            n_threads: None takes all.
        """
        self.n_items = counts.shape[1]
        self._n_threads = n_threads or available_threads()
        if max_users is not None and max_users < counts.shape[0]:
            counts = counts[np.arange(max_users) * counts.shape[0] // max_users]
        n_watchers = np.bincount(counts.indices, minlength=self.n_items)
        self._items = np.flatnonzero(n_watchers >= LEAST_WATCHERS)  # the number of each one
        self._n_watchers = n_watchers[self._items].astype(np.float32)
        self.n_candidates = min(n_candidates, max(self._items.size - 1, 1))
        self._likes = likes_of(counts[:, self._items])
        self._watchers = self._likes.T.tocsr()  # (n_numbers, n_users)
        self._shared = shared_watchers(self._likes) if max_users is None else None

    def neighbours(
        self, l2: float, n_neighbours: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The strongest neighbours of each item.

        Args:
            l2: Strength of the L2 penalty, above 0.
            n_neighbours: Neighbours to keep.

        Returns:
            Their columns and weights, strongest first, (n_items, n_neighbours) each. Missing
            neighbours are the item itself with weight 0.
        """
        neighbours = np.repeat(np.arange(self.n_items)[:, None], n_neighbours, axis=1)
        strength = np.zeros((self.n_items, n_neighbours), dtype=np.float32)
        n_kept, n_numbers = min(n_neighbours, self.n_candidates), self._items.size

        def find(start: int) -> None:
            numbers = np.arange(start, min(start + _ITEMS, n_numbers))
            candidates, weights = self._regress(numbers, np.float32(l2))
            order = np.argsort(-weights, axis=1, kind="stable")[:, :n_kept]
            weights = np.take_along_axis(weights, order, axis=1)
            chosen = self._items[np.take_along_axis(candidates, order, axis=1)]
            items = self._items[numbers]
            neighbours[items, :n_kept] = np.where(weights > 0.0, chosen, items[:, None])
            strength[items, :n_kept] = weights

        # The systems are small: BLAS is fastest alone, and blocks of them run side by side.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self._n_threads) as threads:
            for _ in threads.map(find, range(0, n_numbers if n_numbers > 1 else 0, _ITEMS)):
                pass
        return neighbours, strength

    def _regress(
        self, numbers: NDArray[np.int64], l2: np.float32
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Candidates of each item and their weights, (n_regressed, n_candidates) each."""
        penalty = np.maximum(l2, _LEAST_PENALTY * self._n_watchers)  # (n_numbers,)
        find = self._candidates if self._shared is None else self._candidates_in_array
        candidates, wanted = find(numbers, self._n_watchers + penalty)
        systems = self._shared_among(candidates)
        diagonal = np.arange(self.n_candidates)
        systems[:, diagonal, diagonal] += penalty[candidates]
        return candidates, non_negative_weights(systems, wanted)

    def _candidates_in_array(
        self, numbers: NDArray[np.int64], scale: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The items that explain most of each item alone, and the watchers they share with it.

        What an item explains is its shared watchers squared, divided by `scale`, (n_numbers,).

        Returns:
            (n_regressed, n_candidates) each.
        """
        assert self._shared is not None
        itself = np.arange(numbers.size), numbers
        shared = self._shared[numbers]
        shared[itself] = 0.0
        explained = shared**2 / scale
        explained[itself] = -1.0  # never an item for itself
        candidates = np.stack([_largest(row, self.n_candidates) for row in explained])
        return candidates, np.take_along_axis(shared, candidates, axis=1)

    def _candidates(
        self, numbers: NDArray[np.int64], scale: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The same from sparse rows: most pairs of items share nobody."""
        rows = csr_array(self._watchers[numbers] @ self._likes)
        n = self.n_candidates
        candidates = np.empty((numbers.size, n), dtype=np.int64)
        wanted = np.zeros((numbers.size, n), dtype=np.float32)
        for place, number in enumerate(numbers):
            own = slice(rows.indptr[place], rows.indptr[place + 1])
            others, shared = rows.indices[own], rows.data[own]
            is_other = others != number
            others, shared = others[is_other], shared[is_other]
            if others.size > n:
                best = np.argpartition(-(shared**2) / scale[others], n - 1)[:n]
                others, shared = others[best], shared[best]
            # Further ones share nobody with the item, so their weight is 0 whichever they are.
            candidates[place], candidates[place, : others.size] = number, others
            wanted[place, : others.size] = shared
        return candidates, wanted

    def _shared_among(self, groups: NDArray[np.int64]) -> NDArray[np.float32]:
        """G of each group of items alone, (n_groups, n_in_group, n_in_group)."""
        if self._shared is not None:
            places = groups[:, :, None] * len(self._shared) + groups[:, None, :]
            return self._shared.reshape(-1).take(places)
        return np.stack([self._gram_of(group) for group in groups])

    def _gram_of(self, group: NDArray[np.int64]) -> NDArray[np.float32]:
        """G of one group, counted on those who watched any of it, (n_in_group, n_in_group)."""
        found = self._watchers[group]
        is_watcher = np.zeros(found.shape[1], dtype=np.bool_)
        is_watcher[found.indices] = True
        place_of = np.cumsum(is_watcher) - 1
        likes = np.zeros((group.size, int(place_of[-1]) + 1), dtype=np.float32)
        likes[np.repeat(np.arange(group.size), np.diff(found.indptr)), place_of[found.indices]] = 1
        return np.asarray(likes @ likes.T)


def _largest(values: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Places of the n largest values; most are 0, and selecting among so many ties is slow."""
    above = np.flatnonzero(values > 0.0)
    if above.size >= n:
        return above[np.argpartition(-values[above], n - 1)[:n]]
    return np.concatenate([above, np.flatnonzero(values == 0.0)[: n - above.size]])


def likes_of(counts: csr_array) -> csr_array:
    """The counts with 1.0 for each of them, float32."""
    likes = counts.astype(np.float32, copy=True)
    likes.data[:] = 1.0
    return likes


def shared_watchers(likes: csr_array) -> NDArray[np.float32]:
    """G = X^T X: how many users two items share (exact in float32 up to 16.7 million)."""
    X, Xt = likes, likes.T.tocsr()
    n_items = X.shape[1]
    gram = np.empty((n_items, n_items), dtype=np.float32)
    for start in range(0, n_items, _GRAM_ROWS):
        rows = slice(start, min(start + _GRAM_ROWS, n_items))
        gram[rows] = (Xt[rows] @ X).toarray()
    return gram


def non_negative_weights(
    systems: NDArray[np.float32], wanted: NDArray[np.float32]
) -> NDArray[np.float32]:
    """For each system the `b >= 0` with the least `b A b / 2 - b y`.

    By block principal pivoting (Portugal, Judice and Vicente 1994): solve for the free weights with
    the rest at 0, fix negative weights at 0, free those that would rise, and repeat until nothing
    changes. That takes about six rounds, where coordinate descent takes fifty passes.

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
    for _ in range(_MAX_ROUNDS):
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


def regression_bytes(
    n_users: int, n_items: int, n_pairs: int, n_candidates: int, max_users: int | None
) -> int:
    """Memory that finding neighbours and adding them takes at most, beside the counts."""
    n_candidates = min(n_candidates, n_items)
    found = n_items * n_candidates * 12 * _TABLES
    found += min(_ITEMS, n_items) * n_candidates**2 * 13
    if max_users is None:
        return found + min(_ITEMS, n_items) * n_items * 16 + 4 * n_items**2
    n_counted = min(n_users, max_users)
    length = n_pairs / max(n_users, 1)  # of a history
    # Shared watchers of a block, and the likes of a group as a dense array.
    shared = _ITEMS * min(n_items, int(_LONG_HISTORIES * n_pairs / max(n_items, 1) * length))
    return found + 16 * shared + 4 * n_counted * n_candidates + 16 * int(length * n_counted)
