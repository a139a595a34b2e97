"""Logistic matrix factorisation (Johnson 2014), by `implicit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines.gradient_factors import GradientFactors, logistic_weights
from cfnade.checks import check_at_least, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating


@dataclass(eq=False)
class LogisticMF(GradientFactors):
    """Scores the logit of a like, `x_u . y_i + b_u + b_i`.

    "Logistic Matrix Factorization for Implicit Feedback Data" (NIPS workshop 2014) maximises
    `sum alpha r log p + sum log(1 - p) - regularization / 2 (|x|^2 + |y|^2 + |b|^2)`, the first sum
    over observed pairs with r their relative rating, the second over sampled ones, by AdaGrad,
    alternating between users and items. `implicit` 0.7 draws `negatives` samples for each observed
    item in proportion to popularity, but at most `factors + 2` for a user.

    A new history gets the vector that minimises the same loss, with the samples at their expected
    weights. An empty history scores the items' biases.

    Args:
        factors: Length of the factors.
        alpha: Weight of an observed pair, times its relative rating.
        regularization: L2 penalty, above 0.
        learning_rate: Step size.
        negatives: Sampled items for each observed one.
        iterations: Alternations between users and items.
        relative_rating: A fitted one to use; None fits one on the training counts.
        random_state: Seed of the first factors and of the samples. Training uses one thread, so
            the same seed gives the same factors.

    Attributes:
        relative_rating_: The one in use.
        item_factors_: Then the items' biases and a column of 1, (n_items, factors + 2).
        user_factors_: Then a column of 1 and the users' biases, (n_users, factors + 2).
    """

    factors: int = 64
    alpha: float = 3.0
    regularization: float = 1.0
    learning_rate: float = 1.0
    negatives: int = 30
    iterations: int = 30
    relative_rating: RelativeRating | None = None
    random_state: int = 0
    relative_rating_: RelativeRating = field(init=False, repr=False)
    _popularity: NDArray[np.float32] = field(init=False, repr=False)

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations; see `Iterative`."""
        check_at_least(0, alpha=self.alpha)
        check_whole("negatives", self.negatives, 1)
        counts = as_count_matrix(counts)
        relative_rating = self.relative_rating or RelativeRating().fit(counts)
        weights = self.alpha * relative_rating.transform(counts).data
        n_users = np.bincount(counts.indices, minlength=counts.shape[1])
        popularity = np.asarray(n_users / max(counts.nnz, 1), dtype=np.float32)
        learned = {"relative_rating_": relative_rating, "_popularity": popularity}
        path = "implicit.lmf.LogisticMatrixFactorization"
        yield from self._train(path, counts, weights, iterations, learned, neg_prop=self.negatives)

    def _new_user(self, history: CountMatrix) -> NDArray[np.float32]:
        """The best vector for one history, (factors + 2,)."""
        user = np.zeros(self.factors + 2, dtype=np.float32)
        user[-2] = 1.0
        if history.nnz == 0:
            return user
        positive = np.zeros(len(self.item_factors_), dtype=np.float32)
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
