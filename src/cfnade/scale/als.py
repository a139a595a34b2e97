"""IMF as the paper ran it: Spark MLlib's ALS with implicit preferences, as a baseline.

Like `cfnade.baselines.IMF`, it minimises `sum_ui c (like - x_u . y_i)^2` with
`c = 1 + alpha * relative_rating` plus an L2 penalty. But Spark multiplies the penalty of each user
and item by their number of likes, `reg * (sum_u n_u |x_u|^2 + sum_i n_i |y_i|^2)`, where
`implicit` has `regularization * (|x|^2 + |y|^2)`. One row agrees at `regularization = reg * n`, so
settings of one do not carry over to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.baselines.support import checked_histories
from cfnade.baselines.weighted_als import solve_rows
from cfnade.checks import check_at_least
from cfnade.compare.contender import Contender
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating, confidence
from cfnade.errors import ConfigError, TrainingError
from cfnade.scale.cluster import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "imf-spark"
"""Name of the contender in commands."""


@dataclass(eq=False)
class IMFSpark:
    """Scores `x_u . y_i` with item factors from Spark MLlib.

    A user's factors are the exact solution given the items', as in Spark's last half step: known
    and new users are treated alike, and scoring needs no Spark.

    With `session=None` the same steps are taken here: unit vectors at random for the users, then in
    turn the exact solutions for items and users, in 64 bits, kept in 32. Only the random numbers
    differ. That takes a fraction of the time, as Spark's steps run in Java where the machine has no
    native LAPACK for it.

    Args:
        factors: Length of the factors; 256 in the paper.
        alpha: Rate of confidence.
        regularization: Spark's `regParam`, scaled by the number of likes; above 0.
        iterations: Alternations between items and users.
        relative_rating: A fitted one; None fits one on the training counts.
        random_state: Seed of the first factors.
        session: Returns the Spark session; None takes the steps without Spark.

    Attributes:
        relative_rating_: The fitted one.
        item_factors_: (n_items, factors); 0 for items without a like.
    """

    factors: int = 256
    alpha: float = 30.0
    regularization: float = 0.1
    iterations: int = 10
    relative_rating: RelativeRating | None = None
    random_state: int = 0
    session: Callable[[], SparkSession] | None = spark_session
    relative_rating_: RelativeRating = field(init=False, repr=False)
    item_factors_: NDArray[np.float32] = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> IMFSpark:
        """Learn the item factors on Spark from counts, (n_users, n_items).

        Raises:
            ConfigError: If a setting is invalid, or Spark does not start.
            MissingExtraError: If pyspark is not installed.
            TrainingError: If the factors are not finite.
        """
        check_at_least(0, alpha=self.alpha)
        if min(self.factors, self.iterations) < 1 or not self.regularization > 0:
            raise ConfigError("IMF needs factors and iterations of at least 1, regularization > 0")
        counts = as_count_matrix(counts)
        self.relative_rating_ = self.relative_rating or RelativeRating().fit(counts)
        ratings = self.relative_rating_.transform(counts)
        if self.session is None:
            self.item_factors_ = self._without_spark(ratings)
        else:
            self.item_factors_ = np.zeros((counts.shape[1], self.factors), dtype=np.float32)
            for item, factors in self._als(ratings, self.session()).itemFactors.toLocalIterator():
                self.item_factors_[item] = factors
        if not np.isfinite(self.item_factors_).all():
            raise TrainingError("IMF on Spark ended in NaN; raise the regularization")
        return self

    def _without_spark(self, ratings: csr_array) -> NDArray[np.float32]:
        rng, of_items = np.random.default_rng(self.random_state), ratings.T.tocsr()
        start = rng.standard_normal((ratings.shape[0], self.factors))
        start *= (np.diff(ratings.indptr) > 0)[:, None] / np.linalg.norm(start, axis=1)[:, None]
        items = self.half_step(of_items, start.astype(np.float32))
        for _ in range(self.iterations - 1):
            items = self.half_step(of_items, self.half_step(ratings, items))
        return items

    def _als(self, ratings: csr_array, session: SparkSession) -> Any:
        import pyarrow as pa
        from pyspark.ml.recommendation import ALS

        users, items = (indices.astype(np.int32) for indices in ratings.tocoo().coords)
        table = pa.table({"user": users, "item": items, "rating": ratings.data})
        als = ALS(
            rank=self.factors,
            maxIter=self.iterations,
            regParam=self.regularization,
            implicitPrefs=True,
            alpha=self.alpha,
            seed=self.random_state,
            userCol="user",
            itemCol="item",
            ratingCol="rating",
        )
        return als.fit(session.createDataFrame(table))

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, len(self.item_factors_))
        users = self.half_step(self.relative_rating_.transform(histories), self.item_factors_)
        return np.asarray(users @ self.item_factors_.T)

    def half_step(self, ratings: csr_array, others: NDArray[np.float32]) -> NDArray[np.float32]:
        """Solve `(Y'Y + Y' (C - 1) Y + reg n I) x = Y' C 1` for each row, with its n likes.

        Args:
            ratings: Relative ratings, (n_rows, n_others).
            others: Y, (n_others, factors).

        Returns:
            (n_rows, factors), 0 without a like.
        """
        n_rows, n_others = ratings.shape
        likes = csr_array(
            (np.ones(ratings.nnz), ratings.indices, ratings.indptr), shape=ratings.shape
        )
        return solve_rows(
            likes,
            others.astype(np.float64),
            np.ones(n_rows),
            np.ones(n_others),
            self.regularization * np.maximum(np.diff(ratings.indptr), 1),
            weights=confidence(ratings.data, self.alpha),
        )


def imf_spark(
    seed: int = 0, session: Callable[[], SparkSession] | None = spark_session
) -> Contender:
    """IMF on Spark as a contender: 256 factors, as in the paper; `session` as in `IMFSpark`."""
    return Contender(
        IMFSpark,
        {"factors": 256, "alpha": 30.0, "regularization": 0.1},
        {
            "regularization": (3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
            "alpha": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3),
        },
        fixed={"random_state": seed, "session": session},
        uses_ratings=True,
    )
