"""BPR: matrix factorisation for a pairwise loss (Rendle et al. 2009), by `implicit`."""

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
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.errors import MissingExtraError

_NEW_USER_PAIRS = 50  # drawn for each item of a new history


class BPR:
    """Scores `x_u . y_i + b_i`, so that liked items come before others.

    "BPR: Bayesian Personalized Ranking from Implicit Feedback" maximises
    `sum log sigm(s_ui - s_uj) - regularization / 2 (|x_u|^2 + |y_i|^2 + |y_j|^2)` over triples of a
    user, a liked item i and another item j, by stochastic gradient steps. `implicit` draws j in
    proportion to popularity and skips it if the user likes it.

    A user with a history of the training has the vector that training gave; any other
    history gets the best one for the same loss on pairs drawn alike, given the item factors
    (Newton's method). An empty history scores the items' biases.

    Args:
        factors: Length of the factors.
        learning_rate: Step size.
        regularization: Strength of the L2 penalty of every triple, above 0.
        iterations: Passes, each of as many triples as there are pairs.
        random_state: Seed of the first factors and of the triples; on one thread, so that the
            same seed gives the same factors.

    Attributes:
        item_factors_: Then the items' biases, (n_items, factors + 1).
        user_factors_: Then a column of 1, (n_users, factors + 1).
    """

    item_factors_: NDArray[np.float32]
    user_factors_: NDArray[np.float32]
    _known: KnownUsers
    _pair_ends: NDArray[np.int64]

    def __init__(
        self,
        factors: int = 64,
        learning_rate: float = 0.05,
        regularization: float = 0.01,
        iterations: int = 60,
        random_state: int = 0,
    ) -> None:
        self.factors = factors
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.iterations = iterations
        self.random_state = random_state

    def fit(self, counts: CountMatrix) -> BPR:
        """Learn the factors; every count above zero is a like.

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

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[BPR]:
        """Fit once and keep the factors of several iterations on the way.

        Args:
            counts: Sparse, (n_users, n_items).
            iterations: Where to keep them, ascending; replaces the one of the constructor.

        Yields:
            A fitted model of its own for each stop, equal to one fitted for as long.

        Raises:
            ConfigError, MissingExtraError, TrainingError: As in `fit`.
        """
        check_at_least("BPR", 1, factors=self.factors)
        check_above_zero(
            "BPR", learning_rate=self.learning_rate, regularization=self.regularization
        )
        check_stops(iterations)
        counts = as_count_matrix(counts)
        bpr = self._new_bpr(iterations[-1])
        kept = factors_on_the_way("BPR", bpr, plain_csr(counts, 1.0), iterations)
        known = KnownUsers(counts)
        ends = np.cumsum(np.bincount(counts.indices, minlength=counts.shape[1]))
        for stop, (users, items) in zip(iterations, kept, strict=True):
            fitted = copy.copy(self)
            fitted.iterations = stop
            fitted.user_factors_, fitted.item_factors_ = users, items
            fitted._known, fitted._pair_ends = known, ends
            yield fitted

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, len(self.item_factors_))
        users = self._known.vectors(histories, self.user_factors_, self._new_user)
        return np.asarray(users @ self.item_factors_.T)

    def _new_user(self, history: CountMatrix) -> NDArray[np.float32]:
        """The best vector of one history, (factors + 1,)."""
        user = np.zeros(self.factors + 1, dtype=np.float32)
        user[-1] = 1.0
        rng = np.random.default_rng(self.random_state)
        drawn = rng.integers(self._pair_ends[-1], size=history.nnz * _NEW_USER_PAIRS)
        others = np.searchsorted(self._pair_ends, drawn, side="right")
        liked = np.repeat(history.indices, _NEW_USER_PAIRS)
        is_other = ~np.isin(others, history.indices)
        if not is_other.any():
            return user
        ahead = self.item_factors_[liked[is_other]] - self.item_factors_[others[is_other]]
        ones = np.ones(len(ahead), dtype=np.float32)
        user[:-1] = logistic_weights(
            ahead[:, :-1], ahead[:, -1], ones, 0.0 * ones, self.regularization * len(ahead)
        )
        return user

    def _new_bpr(self, iterations: int) -> Any:
        try:
            from implicit.cpu.bpr import BayesianPersonalizedRanking
        except ImportError as error:
            raise MissingExtraError("implicit", "bench", "the BPR baseline") from error
        with threadpool_limits(1, "blas"):
            return BayesianPersonalizedRanking(
                factors=self.factors,
                learning_rate=self.learning_rate,
                regularization=self.regularization,
                iterations=iterations,
                num_threads=1,
                random_state=self.random_state,
            )
