"""Two floors that any model must beat: popularity, and chance."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines._histories import checked_histories
from cfnade.data.interactions import CountMatrix, as_count_matrix


class Popularity:
    """Scores an item by how many users interacted with it, the same for everyone.

    Users count once each, however often they came back: ten heavy watchers do not make an
    item popular.

    Attributes:
        n_users_per_item_: (n_items,).
    """

    n_users_per_item_: NDArray[np.float32]

    def fit(self, counts: CountMatrix) -> Popularity:
        """Count the users of each item in the counts, (n_users, n_items)."""
        counts = as_count_matrix(counts)
        n_users_per_item = np.bincount(counts.indices, minlength=counts.shape[1])
        self.n_users_per_item_ = n_users_per_item.astype(np.float32)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.n_users_per_item_.size)
        return np.tile(self.n_users_per_item_, (histories.shape[0], 1))


class RandomScorer:
    """Scores at random: what chance reaches, MPR about 50 %.

    A user is only a history here as well, so the numbers are drawn anew for each history and
    the same history always gets the same ones, whoever is scored along with it.

    Args:
        rng: Seed or generator.

    Attributes:
        n_items_: Number of items seen in `fit`.
        seed_: What the draws of every history start from.
    """

    n_items_: int
    seed_: int

    def __init__(self, rng: int | np.random.Generator = 0) -> None:
        self.rng = rng

    def fit(self, counts: CountMatrix) -> RandomScorer:
        """Take note of the number of items in the counts, (n_users, n_items)."""
        self.n_items_ = as_count_matrix(counts).shape[1]
        self.seed_ = int(np.random.default_rng(self.rng).integers(2**32))
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.n_items_)
        items = histories.indices.astype(np.int64)  # one width whatever scipy chose
        scores = np.empty(histories.shape, dtype=np.float32)
        for user, (start, end) in enumerate(
            zip(histories.indptr[:-1], histories.indptr[1:], strict=True)
        ):
            key = zlib.crc32(histories.data[start:end].tobytes(), zlib.crc32(items[start:end]))
            scores[user] = np.random.default_rng([self.seed_, key]).random(
                self.n_items_, dtype=np.float32
            )
        return scores
