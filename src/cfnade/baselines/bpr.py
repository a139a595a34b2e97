"""BPR: matrix factorisation with a pairwise loss (Rendle et al. 2009), by `implicit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines.gradient_factors import GradientFactors, logistic_weights
from cfnade.data.interactions import CountMatrix, as_count_matrix

_NEW_USER_PAIRS = 50  # drawn for each item of a new history


@dataclass(eq=False)
class BPR(GradientFactors):
    """Scores `x_u . y_i + b_i`, trained to rank liked items before others.

    "BPR: Bayesian Personalized Ranking from Implicit Feedback" maximises
    `sum log sigm(s_ui - s_uj) - regularization / 2 (|x_u|^2 + |y_i|^2 + |y_j|^2)` over triples of a
    user, a liked item i and another item j, by stochastic gradient steps. `implicit` draws j in
    proportion to popularity and skips it if the user likes it.

    A new history gets the vector that minimises the same loss on pairs drawn the same way. An
    empty history scores the items' biases.

    Args:
        factors: Length of the factors.
        learning_rate: Step size.
        regularization: L2 penalty of every triple, above 0.
        iterations: Passes, each over as many triples as there are pairs.
        random_state: Seed of the first factors and of the triples. Training uses one thread, so
            the same seed gives the same factors.

    Attributes:
        item_factors_: With the items' biases as last column, (n_items, factors + 1).
        user_factors_: With a last column of 1, (n_users, factors + 1).
    """

    factors: int = 64
    learning_rate: float = 0.05
    regularization: float = 0.01
    iterations: int = 60
    random_state: int = 0
    _pair_ends: NDArray[np.int64] = field(init=False, repr=False)

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations; see `Iterative`."""
        counts = as_count_matrix(counts)
        pair_ends = np.cumsum(np.bincount(counts.indices, minlength=counts.shape[1]))
        path, learned = "implicit.cpu.bpr.BayesianPersonalizedRanking", {"_pair_ends": pair_ends}
        yield from self._train(path, counts, 1.0, iterations, learned)

    def _new_user(self, history: CountMatrix) -> NDArray[np.float32]:
        """The best vector for one history, (factors + 1,)."""
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
