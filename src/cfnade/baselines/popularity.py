"""Two floors that any model must beat: popularity and chance."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines.support import checked_histories
from cfnade.data.interactions import CountMatrix, as_count_matrix


@dataclass(eq=False)
class Popularity:
    """Scores an item by its number of users, whatever their counts; the same for everyone.

    Attributes:
        n_users_per_item_: (n_items,).
    """

    n_users_per_item_: NDArray[np.float32] = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> Popularity:
        """Count the users of each item in the counts, (n_users, n_items)."""
        counts = as_count_matrix(counts)
        n_users = np.bincount(counts.indices, minlength=counts.shape[1])
        self.n_users_per_item_ = n_users.astype(np.float32)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.n_users_per_item_.size)
        return np.tile(self.n_users_per_item_, (histories.shape[0], 1))


@dataclass(eq=False)
class RandomScorer:
    """Scores at random: MPR about 50 %.

    A history always gets the same scores, whichever others are scored with it.

    Args:
        rng: Seed or generator.

    Attributes:
        n_items_: Number of items seen in `fit`.
        seed_: Drawn in `fit`; combined with each history.
    """

    rng: int | np.random.Generator = 0
    n_items_: int = field(init=False, repr=False)
    seed_: int = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> RandomScorer:
        """Store the number of items in the counts, (n_users, n_items)."""
        self.n_items_ = as_count_matrix(counts).shape[1]
        self.seed_ = int(np.random.default_rng(self.rng).integers(2**32))
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.n_items_)
        items = histories.indices.astype(np.int64)  # one width whatever scipy chose
        scores = np.empty(histories.shape, dtype=np.float32)
        for user, (start, end) in enumerate(pairwise(histories.indptr)):
            key = zlib.crc32(histories.data[start:end].tobytes(), zlib.crc32(items[start:end]))
            rng = np.random.default_rng([self.seed_, key])
            scores[user] = rng.random(self.n_items_, dtype=np.float32)
        return scores
