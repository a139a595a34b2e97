"""IMF: implicit matrix factorisation (Hu, Koren, Volinsky 2008), by `implicit`'s ALS.

The paper's main baseline, with the paper's confidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from cfnade.baselines.support import Iterative, checked_histories, library, plain_csr, stretches
from cfnade.checks import check_above_zero, check_at_least, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating, confidence
from cfnade.errors import TrainingError
from cfnade.threads import available_threads

# Scores then differ from the exact ones by about 1e-5. At 512 factors a Cholesky solution takes
# five times as long.
_SCORING_STEPS = 50


@dataclass(eq=False)
class IMF(Iterative):
    """Scores `x_u . y_i`, with factors that minimise the confidence-weighted squared error.

    The loss is `sum_ui c (like - x_u . y_i)^2 + regularization * (|x|^2 + |y|^2)` over all pairs,
    with the confidence of Eq. 6, `c = 1 + alpha * relative_rating`. Unlike Spark's, the
    regularization is not scaled by the number of ratings, so values do not carry over.

    Training uses conjugate gradients (3 steps from where the last iteration ended). Scoring
    solves each user's least-squares problem given the item factors, to about five digits, so
    known and new users are treated alike. An empty history scores 0 for every item. The same
    `random_state` gives the same factors on any number of threads.

    Args:
        factors: Length of the factors; 256 in the paper.
        alpha: Rate of confidence.
        regularization: L2 penalty, above 0.
        iterations: Alternations between users and items.
        relative_rating: A fitted one to use; None fits one on the training counts.
        random_state: Seed of the first factors.
        n_threads: For `implicit`; None uses all available ones.

    Attributes:
        relative_rating_: The one in use.
        als_: implicit's model; its `item_factors` are (n_items, factors).
    """

    factors: int = 256
    alpha: float = 30.0
    regularization: float = 100.0
    iterations: int = 15
    relative_rating: RelativeRating | None = None
    random_state: int = 0
    n_threads: int | None = None
    relative_rating_: RelativeRating = field(init=False, repr=False)
    als_: Any = field(init=False, repr=False)

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations; see `Iterative`."""
        check_at_least(0, alpha=self.alpha)
        check_whole("factors", self.factors, 1)
        check_above_zero(regularization=self.regularization)
        counts = as_count_matrix(counts)
        relative_rating = self.relative_rating or RelativeRating().fit(counts)
        confidences = _confidences(relative_rating, counts, self.alpha)
        als = self._new_als()
        failure = library("implicit.recommender_base", "the IMF baseline").ModelFitError
        for stop, n_more in stretches(iterations):
            als.iterations = n_more  # continues from the factors it has
            try:
                with threadpool_limits(1, "blas"):  # implicit itself runs users in parallel
                    als.fit(confidences, show_progress=False)
            except failure as error:
                raise TrainingError(
                    f"IMF with {self.factors} factors ended in NaN; raise the regularization "
                    f"(now {self.regularization:g}) or lower alpha"
                ) from error
            fitted_als = self._new_als()
            fitted_als.cg_steps = _SCORING_STEPS
            fitted_als.item_factors = als.item_factors.copy()
            yield self.copy_at(stop, relative_rating_=relative_rating, als_=fitted_als)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        items = self.als_.item_factors  # (n_items, factors)
        histories = checked_histories(histories, len(items))
        confidences = _confidences(self.relative_rating_, histories, self.alpha)
        users = np.zeros((histories.shape[0], self.factors), dtype=np.float32)
        with threadpool_limits(1, "blas"):
            self.als_.solver(confidences, users, items, self.regularization, self.als_.num_threads)
        return np.asarray(users @ items.T)

    def _new_als(self) -> Any:
        als = library("implicit.als", "the IMF baseline").AlternatingLeastSquares
        with threadpool_limits(1, "blas"):  # implicit warns when BLAS has threads of its own
            return als(
                factors=self.factors,
                regularization=self.regularization,
                alpha=1.0,  # the paper's alpha is in the data
                use_gpu=False,
                num_threads=self.n_threads or available_threads(),
                random_state=self.random_state,
            )


def _confidences(
    relative_rating: RelativeRating, counts: CountMatrix, alpha: float
) -> csr_matrix[np.float32]:
    """Eq. 6 for observed pairs: `implicit` takes c itself, with the 1."""
    ratings = relative_rating.transform(counts)
    return plain_csr(ratings, confidence(ratings.data, alpha))
