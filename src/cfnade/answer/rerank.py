"""Rearranges the best items of a history: diversity, limits by category, and pinned items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.shortlist import Best, Shortlist

N_CANDIDATES = 200
"""Best items that a list is chosen from, or three times its length if that is more."""

Columns: TypeAlias = NDArray[np.int64]

Alike: TypeAlias = Callable[[Columns, Columns], NDArray[np.floating]]
"""Similarity of some items to others, at most 1, (n, m)."""


@dataclass(frozen=True, eq=False)
class Reranking:
    """What to change in a list, by column of a model's items."""

    shift: NDArray[np.float32] | None = None
    """Added to the score of each item, (n_items,)."""
    diversity: float = 0.0
    """Weight of dissimilarity, at least 0 and below 1."""
    pins: dict[int, int] = field(default_factory=dict)
    """Column of the item at each pinned place, from 0, in the order of places."""
    features: csr_array | None = None
    """Features of the items, (n_items, n_features), if some are limited."""
    room: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Most items with each feature, infinity without a limit, (n_features,)."""

    def best(
        self,
        shortlist: Shortlist,
        alike: Alike,
        hidden: NDArray[np.float32],
        added: NDArray[np.float32],
        n: int,
    ) -> tuple[Best, NDArray[np.float32]]:
        """The lists of many histories, row by row, each in its order.

        Args:
            shortlist: Finds the best items.
            alike: Similarity of items.
            hidden: Hidden layers, (n_users, n_hidden).
            added: What is added to the scores, (n_users, n_items).
            n: Most items of a list.

        Returns:
            Rows, columns and scores with the shift; and scores without it, (n_listed,).
        """
        shifted = added if self.shift is None else added + self.shift
        is_chosen = self.diversity > 0 or self.features is not None
        n_pool = max(N_CANDIDATES, 3 * n) + len(self.pins) if is_chosen else n
        row, column, score = shortlist.best(hidden, shifted.__getitem__, n_pool)
        if is_chosen or self.pins:
            ends = np.searchsorted(row, np.arange(1, len(hidden)))
            pools = zip(np.split(column, ends), np.split(score, ends), strict=True)
            lists = []
            for user, pool in enumerate(pools):
                own = slice(user, user + 1)
                lists.append(self._list(shortlist, alike, hidden[own], shifted[own], n, pool))
            row = np.repeat(np.arange(len(lists)), [found.size for found in lists])
            column = np.concatenate([np.empty(0, dtype=np.int64), *lists])
            score = shortlist.scores(hidden, row, column, shifted[row, column])
        own_score = score
        if self.shift is not None:
            own_score = shortlist.scores(hidden, row, column, added[row, column])
        return (row, column, score), own_score

    def _list(
        self,
        shortlist: Shortlist,
        alike: Alike,
        hidden: NDArray[np.float32],
        shifted: NDArray[np.float32],
        n: int,
        pool: tuple[Columns, NDArray[np.float32]],
    ) -> Columns:
        """The list of one history, (at most n,), chosen from its best items and their scores."""
        pins = {place: item for place, item in self.pins.items() if shifted[0, item] > -np.inf}
        growing = _GrowingList(self, alike, pins, n)
        columns, scores = pool
        while growing.n_missing and columns.size:
            growing.extend(columns, scores)
            if self.features is None:
                break
            # Limits may have closed the pool: go on with the best of the items left open.
            rest = np.where(growing.is_closed(), np.float32(-np.inf), shifted)
            _, columns, scores = shortlist.best(hidden, rest.__getitem__, pool[0].size)
        return growing.columns()


class _GrowingList:
    """A list whose places are filled one after the other; pinned items are in it from the start."""

    def __init__(self, asked: Reranking, alike: Alike, pins: dict[int, int], n: int) -> None:
        self._asked, self._alike, self._pins = asked, alike, pins
        self._listed = list(pins.values())
        self._room = asked.room.copy()
        self._scale: float | None = None
        self.n_missing = n - len(pins)
        for item in self._listed:
            self._use_room(item)

    def extend(self, columns: Columns, scores: NDArray[np.float32]) -> None:
        """Fill places with some of these items, (n_pool,), best first."""
        is_new = ~np.isin(columns, self._listed)
        columns, scores = columns[is_new], scores[is_new]
        diversity = self._asked.diversity
        value = (1.0 - diversity) * self._relevance(columns, scores)
        if diversity:
            within = self._alike(columns, columns)  # (n_pool, n_pool)
            listed = np.array(self._listed, dtype=np.int64)
            closest = self._alike(columns, listed).max(axis=1, initial=0.0)  # (n_pool,)
        value[self._is_full(columns)] = -np.inf
        while self.n_missing and columns.size:
            best = int((value - diversity * closest if diversity else value).argmax())
            if value[best] == -np.inf:
                break
            value[best] = -np.inf
            self._listed.append(int(columns[best]))
            self.n_missing -= 1
            if diversity:
                np.maximum(closest, within[best], out=closest)
            if self._use_room(columns[best]):
                value[self._is_full(columns)] = -np.inf

    def columns(self) -> Columns:
        """The list: pins at their places, or at the end of a list that is shorter."""
        found = self._listed[len(self._pins) :]
        for place, item in self._pins.items():
            found.insert(place, item)
        return np.array(found, dtype=np.int64)

    def is_closed(self) -> NDArray[np.bool_]:
        """Whether each item is in the list already, or has a feature without room, (n_items,)."""
        assert self._asked.features is not None
        is_closed = np.asarray(self._asked.features @ (self._room <= 0) > 0)
        is_closed[self._listed] = True
        return is_closed

    def _relevance(self, columns: Columns, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Scores over the range that they have without the shift, in the first pool."""
        if self._scale is None:
            shift = self._asked.shift
            plain = scores if shift is None else scores - shift[columns]
            self._scale = float(np.ptp(plain)) if plain.size else 0.0
        return np.asarray(scores, dtype=np.float64) / (self._scale or 1.0)

    def _use_room(self, item: int) -> bool:
        """Count an item that was listed; returns whether a feature has no room now."""
        features = self._asked.features
        if features is None:
            return False
        own = features.indices[features.indptr[item] : features.indptr[item + 1]]
        self._room[own] -= 1
        return bool((self._room[own] <= 0).any())

    def _is_full(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether each item has a feature without room, (n,)."""
        if self._asked.features is None:
            return np.zeros(columns.size, dtype=np.bool_)
        return np.asarray(self._asked.features[columns] @ (self._room <= 0) > 0)
