"""Item kNN: the summed similarities to the items of the history, by `implicit`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines.support import checked_histories, library, rated_or_one
from cfnade.checks import check_choice, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.threads import available_threads

Similarity: TypeAlias = Literal["cosine", "tfidf", "bm25"]


@dataclass(eq=False)
class ItemKNN:
    """Scores `x S`: S keeps the most similar items of each item.

    Items are compared by the vectors of their users (Sarwar et al. 2001), by one of:
    `cosine`; `tfidf`, the cosine with each user weighted by `log(n_items) - log(1 + n_u)`, so that
    users who like everything count little; `bm25`, the inner product of that weight times
    `r (k1 + 1) / (k1 (1 - b + b n_i / mean n) + r)`, k1 = 1.2 and b = 0.75, which is not divided
    by lengths and so favours popular items.

    Args:
        neighbours: Items kept for each, itself included.
        similarity: See above.
        weigh_counts: Use relative ratings, not 1, in vectors and histories.
        relative_rating: A fitted one to use; None fits one on the training counts.
        n_threads: For `implicit`; None uses all available ones.

    Attributes:
        relative_rating_: The one in use.
        similarity_: S, sparse, (n_items, n_items).
    """

    neighbours: int = 100
    similarity: Similarity = "cosine"
    weigh_counts: bool = False
    relative_rating: RelativeRating | None = None
    n_threads: int | None = None
    relative_rating_: RelativeRating = field(init=False, repr=False)
    similarity_: Any = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> ItemKNN:
        """Find the neighbours of each item from sparse counts, (n_users, n_items)."""
        check_whole("neighbours", self.neighbours, 1)
        check_choice("similarity", self.similarity, get_args(Similarity))
        implicit = library("implicit.nearest_neighbours", "the kNN baseline")
        kinds = {
            "cosine": implicit.CosineRecommender,
            "tfidf": implicit.TFIDFRecommender,
            "bm25": implicit.BM25Recommender,
        }
        counts = as_count_matrix(counts)
        self.relative_rating_ = self.relative_rating or RelativeRating().fit(counts)
        n_threads = self.n_threads or available_threads()
        knn = kinds[self.similarity](K=self.neighbours, num_threads=n_threads)
        with warnings.catch_warnings():  # implicit warns about its own weighting's sparse form
            warnings.simplefilter("ignore")
            knn.fit(self._weights(counts), show_progress=False)
        self.similarity_ = knn.similarity.astype(np.float32)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.similarity_.shape[0])
        return np.asarray((self._weights(histories) @ self.similarity_).toarray())

    def _weights(self, counts: CountMatrix) -> Any:
        return rated_or_one(counts, self.relative_rating_, weigh_counts=self.weigh_counts)
