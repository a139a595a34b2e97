"""IMF: implicit matrix factorisation (Hu, Koren, Volinsky 2008), the paper's main baseline.

A thin layer over the ALS of the `implicit` package that gives it the paper's confidence.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from cfnade.baselines._checks import check_stops
from cfnade.baselines._histories import checked_histories, plain_csr
from cfnade.data.feedback import check_alpha, confidence
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, MissingExtraError, TrainingError
from cfnade.threads import available_threads

Progress = Callable[[int, int], None]
"""Called with how many of how many iterations are done."""


class IMF:
    """Scores `x_u . y_i`, with factors that minimise the confidence-weighted squared error.

    The loss is `sum_ui c (like - x_u . y_i)^2 + regularization * (|x|^2 + |y|^2)` over all pairs,
    with the confidence of Eq. 6, `c = 1 + alpha * relative_rating`. `implicit` takes what it is
    given times its own alpha as c, without the 1, so it gets c as data and an alpha of 1. Its
    regularization is not scaled by the number of ratings, as Spark's is: values do not
    carry over.

    Training uses implicit's conjugate gradient solver (its default, 3 steps from where the last
    iteration ended). Scoring solves each user's least-squares problem exactly, given the item
    factors: known and new users are treated alike. An empty history has the factors 0 and so
    scores 0 for every item.

    The same `random_state` gives the same factors, on any number of threads: each row is solved
    on its own.

    Args:
        factors: Length of the factors; 256 in the paper.
        alpha: Rate of confidence.
        regularization: Strength of the L2 penalty, above 0.
        iterations: Alternations between users and items.
        relative_rating: A fitted one to use as it is; None fits one on the training counts.
        random_state: Seed of the first factors.
        n_threads: For `implicit`; None takes what is available.

    Attributes:
        relative_rating_: The one in use.
        als_: implicit's model; its `item_factors` are (n_items, factors).
    """

    relative_rating_: RelativeRating
    als_: Any

    def __init__(
        self,
        factors: int = 256,
        alpha: float = 30.0,
        regularization: float = 100.0,
        iterations: int = 15,
        relative_rating: RelativeRating | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        self.factors = factors
        self.alpha = alpha
        self.regularization = regularization
        self.iterations = iterations
        self.relative_rating = relative_rating
        self.random_state = random_state
        self.n_threads = n_threads

    def fit(self, counts: CountMatrix, *, progress: Progress | None = None) -> IMF:
        """Learn the item factors.

        Args:
            counts: Sparse, (n_users, n_items).
            progress: Called after each iteration.

        Returns:
            Itself.

        Raises:
            ConfigError: If a setting has no meaning.
            MissingExtraError: If `implicit` is not installed.
            TrainingError: If the factors are not finite.
        """
        for fitted in self.fits(counts, [self.iterations], progress=progress):
            self.relative_rating_, self.als_ = fitted.relative_rating_, fitted.als_
        return self

    def fits(
        self, counts: CountMatrix, iterations: Sequence[int], *, progress: Progress | None = None
    ) -> Iterator[IMF]:
        """Fit once and stop at several iterations on the way: tuning them costs one fit.

        Args:
            counts: Sparse, (n_users, n_items).
            iterations: Where to stop, ascending; replaces the one of the constructor.
            progress: Called after each iteration.

        Yields:
            A fitted model of its own for each stop, equal to one fitted for as long.

        Raises:
            ConfigError, MissingExtraError, TrainingError: As in `fit`.
        """
        self._check(iterations)
        counts = as_count_matrix(counts)
        relative_rating = self.relative_rating
        if relative_rating is None:
            relative_rating = RelativeRating().fit(counts)
        confidences = _confidences(relative_rating, counts, self.alpha)
        als = self._new_als()
        done = 0
        for stop in iterations:
            als.iterations = stop - done  # goes on from the factors it has
            _run(als, confidences, done, iterations[-1], progress)
            done = stop
            fitted = copy.copy(self)
            fitted.iterations = stop
            fitted.relative_rating_ = relative_rating
            fitted.als_ = self._new_als()
            fitted.als_.item_factors = als.item_factors.copy()
            yield fitted

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        items = self.als_.item_factors  # (n_items, factors)
        histories = checked_histories(histories, len(items))
        confidences = _confidences(self.relative_rating_, histories, self.alpha)
        with threadpool_limits(1, "blas"):  # implicit itself runs users in parallel
            users = self.als_.recalculate_user(np.arange(histories.shape[0]), confidences)
        return np.asarray(users @ items.T)

    def _check(self, iterations: Sequence[int]) -> None:
        check_alpha(self.alpha)
        if self.factors < 1:
            raise ConfigError(f"IMF needs at least 1 factor, got {self.factors}")
        if not (np.isfinite(self.regularization) and self.regularization > 0):
            raise ConfigError(
                f"the regularization of IMF must be above 0, got {self.regularization}"
            )
        check_stops(iterations)

    def _new_als(self) -> Any:
        try:
            from implicit.als import AlternatingLeastSquares
        except ImportError as error:
            raise MissingExtraError("implicit", "bench", "the IMF baseline") from error
        # implicit warns when BLAS has threads of its own; `_run` and `scores` take them away.
        with threadpool_limits(1, "blas"):
            return AlternatingLeastSquares(
                factors=self.factors,
                regularization=self.regularization,
                alpha=1.0,  # the paper's alpha is in the data
                use_gpu=False,
                num_threads=available_threads() if self.n_threads is None else self.n_threads,
                random_state=self.random_state,
            )


def _confidences(
    relative_rating: RelativeRating, counts: CountMatrix, alpha: float
) -> csr_matrix[np.float32]:
    """Eq. 6 for observed pairs."""
    ratings = relative_rating.transform(counts)
    return plain_csr(ratings, confidence(ratings.data, alpha))


def _run(
    als: Any, confidences: csr_matrix[np.float32], done: int, total: int, progress: Progress | None
) -> None:
    """Run the iterations set on `als`, one user per thread at a time."""
    from implicit.recommender_base import ModelFitError

    def report(iteration: int, seconds: float, loss: float | None) -> None:
        if progress is not None:
            progress(done + iteration + 1, total)

    try:
        with threadpool_limits(1, "blas"):
            als.fit(confidences, show_progress=False, callback=report)
    except ModelFitError as error:
        raise TrainingError(
            f"IMF with {als.factors} factors ended in NaN; raise the regularization "
            f"(now {als.regularization:g}) or lower alpha"
        ) from error
