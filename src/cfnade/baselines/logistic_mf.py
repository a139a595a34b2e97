"""Logistic matrix factorisation (Johnson 2014), by `implicit`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cfnade.baselines._checks import check_above_zero, check_at_least, check_stops
from cfnade.baselines._factors import factors_on_the_way
from cfnade.baselines._histories import checked_histories, plain_csr
from cfnade.baselines._known_users import KnownUsers, logistic_weights
from cfnade.data.feedback import check_alpha
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import MissingExtraError


class LogisticMF:
    """The logit of a like is `x_u . y_i + b_u + b_i`.

    "Logistic Matrix Factorization for Implicit Feedback Data" (NIPS workshop 2014) maximises
    `sum alpha r log p + sum log(1 - p) - regularization / 2 (|x|^2 + |y|^2 + |b|^2)`, the first sum
    over observed pairs with r their relative rating, the second over sampled ones, by AdaGrad,
    alternating between users and items. `implicit` draws the samples in proportion to the
    items' popularity, `negatives` for each observed item, but at most `factors + 2` for a user
    (so in its version 0.7): with few factors it sees few.

    A user with a history of the training has the vector that training gave; any other
    history gets the best one for the same loss, given the item factors (Newton's method; the
    samples at their expected weights). An empty history scores the items' biases.

    Args:
        factors: Length of the factors.
        alpha: Weight of an observed pair, times its relative rating.
        regularization: Strength of the L2 penalty, above 0.
        learning_rate: Step size.
        negatives: Sampled items for each observed one.
        iterations: Alternations between users and items.
        relative_rating: A fitted one to use as it is; None fits one on the training counts.
        random_state: Seed of the first factors and of the samples; on one thread, so that the
            same seed gives the same factors.

    Attributes:
        relative_rating_: The one in use.
        item_factors_: Then the items' biases and a column of 1, (n_items, factors + 2).
        user_factors_: Then a column of 1 and the users' biases, (n_users, factors + 2).
    """

    relative_rating_: RelativeRating
    item_factors_: NDArray[np.float32]
    user_factors_: NDArray[np.float32]
    _known: KnownUsers
    _popularity: NDArray[np.float32]

    def __init__(
        self,
        factors: int = 64,
        alpha: float = 3.0,
        regularization: float = 1.0,
        learning_rate: float = 1.0,
        negatives: int = 30,
        iterations: int = 30,
        relative_rating: RelativeRating | None = None,
        random_state: int = 0,
    ) -> None:
        self.factors = factors
        self.alpha = alpha
        self.regularization = regularization
        self.learning_rate = learning_rate
        self.negatives = negatives
        self.iterations = iterations
        self.relative_rating = relative_rating
        self.random_state = random_state

    def fit(self, counts: CountMatrix) -> LogisticMF:
        """Learn the factors.

        Args:
            counts: Sparse, (n_users, n_items).

        Returns:
            Itself.

        Raises:
            ConfigError: If a setting has no meaning.
            MissingExtraError: If `implicit` is not installed.
            TrainingError: If the factors are not finite.
        """
        for fitted in self.fits(counts, [self.iterations]):
            self.__dict__.update(fitted.__dict__)
        return self

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[LogisticMF]:
        """Fit once and keep the factors of several iterations on the way.

        Args:
            counts: Sparse, (n_users, n_items).
            iterations: Where to keep them, ascending; replaces the one of the constructor.

        Yields:
            A fitted model of its own for each stop, equal to one fitted for as long.

        Raises:
            ConfigError, MissingExtraError, TrainingError: As in `fit`.
        """
        self._check(iterations)
        counts = as_count_matrix(counts)
        relative_rating = self.relative_rating or RelativeRating().fit(counts)
        lmf = self._new_lmf(iterations[-1])
        ratings = relative_rating.transform(counts)
        weights = plain_csr(ratings, self.alpha * ratings.data)
        kept = factors_on_the_way("logistic MF", lmf, weights, iterations)
        known, popularity = KnownUsers(counts), _shares(counts)
        for stop, (users, items) in zip(iterations, kept, strict=True):
            fitted = copy.copy(self)
            fitted.iterations = stop
            fitted.relative_rating_ = relative_rating
            fitted.user_factors_, fitted.item_factors_ = users, items
            fitted._known, fitted._popularity = known, popularity
            yield fitted

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, len(self.item_factors_))
        users = self._known.vectors(histories, self.user_factors_, self._new_user)
        return np.asarray(users @ self.item_factors_.T)

    def _new_user(self, history: CountMatrix) -> NDArray[np.float32]:
        """The best vector of one history, (factors + 2,)."""
        user = np.zeros(self.factors + 2, dtype=np.float32)
        user[-2] = 1.0
        if history.nnz == 0:
            return user
        n_items = len(self.item_factors_)
        positive = np.zeros(n_items, dtype=np.float32)
        positive[history.indices] = self.alpha * self.relative_rating_.transform(history).data
        n_sampled = min(self.factors + 2, history.nnz * self.negatives)
        free = np.delete(np.arange(self.factors + 2), -2)  # all but the column of 1
        user[free] = logistic_weights(
            self.item_factors_[:, free],
            self.item_factors_[:, -2],
            positive,
            n_sampled * self._popularity,
            self.regularization,
        )
        return user

    def _check(self, iterations: Sequence[int]) -> None:
        check_alpha(self.alpha)
        check_at_least("logistic MF", 1, factors=self.factors, negatives=self.negatives)
        check_above_zero(
            "logistic MF", regularization=self.regularization, learning_rate=self.learning_rate
        )
        check_stops(iterations)

    def _new_lmf(self, iterations: int) -> Any:
        try:
            from implicit.lmf import LogisticMatrixFactorization
        except ImportError as error:
            raise MissingExtraError("implicit", "bench", "logistic MF") from error
        with threadpool_limits(1, "blas"):
            return LogisticMatrixFactorization(
                factors=self.factors,
                learning_rate=self.learning_rate,
                regularization=self.regularization,
                iterations=iterations,
                neg_prop=self.negatives,
                num_threads=1,
                random_state=self.random_state,
            )


def _shares(counts: CountMatrix) -> NDArray[np.float32]:
    """Each item's share of all pairs, (n_items,)."""
    n_users = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.asarray(n_users / max(counts.nnz, 1), dtype=np.float32)
