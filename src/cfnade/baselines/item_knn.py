"""Item kNN: what the most similar items of the history add up to, by `implicit`."""

from __future__ import annotations

import warnings
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines._checks import check_at_least
from cfnade.baselines._histories import checked_histories, plain_csr
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, MissingExtraError
from cfnade.threads import available_threads

Similarity: TypeAlias = Literal["cosine", "tfidf", "bm25"]


class ItemKNN:
    """Scores `x S`: S keeps, for each item, its most similar items.

    Two items are as similar as the vectors of their users are (Sarwar et al. 2001), by one of:
    `cosine`; `tfidf`, the cosine with each user weighted by `log(n_items) - log(1 + n_u)`, so that
    who likes everything says little; `bm25`, the inner product of that weight times
    `r (k1 + 1) / (k1 (1 - b + b n_i / mean n) + r)`, k1 = 1.2 and b = 0.75, which is not divided
    by lengths and so favours popular items.

    Args:
        neighbours: Items kept for each, itself among them.
        similarity: See above.
        weigh_counts: The vectors and histories hold relative ratings, not 1.
        relative_rating: A fitted one to use as it is; None fits one on the training counts.
        n_threads: For `implicit`; None takes what is available.

    Attributes:
        relative_rating_: The one in use.
        similarity_: S, sparse, (n_items, n_items).
    """

    relative_rating_: RelativeRating
    similarity_: Any

    def __init__(
        self,
        neighbours: int = 100,
        similarity: Similarity = "cosine",
        weigh_counts: bool = False,
        relative_rating: RelativeRating | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.neighbours = neighbours
        self.similarity = similarity
        self.weigh_counts = weigh_counts
        self.relative_rating = relative_rating
        self.n_threads = n_threads

    def fit(self, counts: CountMatrix) -> ItemKNN:
        """Find the neighbours of each item.

        Args:
            counts: Sparse, (n_users, n_items).

        Returns:
            Itself.

        Raises:
            ConfigError: If a setting has no meaning.
            MissingExtraError: If `implicit` is not installed.
        """
        check_at_least("kNN", 1, neighbours=self.neighbours)
        if self.similarity not in get_args(Similarity):
            raise ConfigError(
                f"similarity must be one of {', '.join(get_args(Similarity))}; "
                f"got {self.similarity!r}"
            )
        try:
            from implicit import nearest_neighbours
        except ImportError as error:
            raise MissingExtraError("implicit", "bench", "the kNN baseline") from error
        counts = as_count_matrix(counts)
        self.relative_rating_ = self.relative_rating or RelativeRating().fit(counts)
        kinds = {
            "cosine": nearest_neighbours.CosineRecommender,
            "tfidf": nearest_neighbours.TFIDFRecommender,
            "bm25": nearest_neighbours.BM25Recommender,
        }
        n_threads = available_threads() if self.n_threads is None else self.n_threads
        knn = kinds[self.similarity](K=self.neighbours, num_threads=n_threads)
        with warnings.catch_warnings():  # implicit's own weighting is not in the form it asks for
            warnings.simplefilter("ignore")
            knn.fit(self._weights(counts), show_progress=False)
        self.similarity_ = knn.similarity.astype(np.float32)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.similarity_.shape[0])
        return np.asarray((self._weights(histories) @ self.similarity_).toarray())

    def _weights(self, counts: CountMatrix) -> Any:
        ratings = self.relative_rating_.transform(counts)
        return plain_csr(ratings, ratings.data if self.weigh_counts else 1.0)
