"""LRec (Sedhain et al. 2016): a linear model of its own for each user, over all items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd
from scipy.sparse.linalg import svds
from scipy.special import expit

from cfnade.baselines.support import checked_histories
from cfnade.beyond.direct import likes_of
from cfnade.checks import check_above_zero, check_choice, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import share_logit

Loss: TypeAlias = Literal["squared", "logistic"]


@dataclass(eq=False)
class LRec:
    """Scores `F w_u`: a regression of the user's likes on who else likes each item.

    "On the Effectiveness of Linear Models for One-Class Collaborative Filtering" (AAAI 2016): items
    are the examples, an item's features are its users, X^T, the targets are the user's likes t,
    and each user's weights minimise `sum_i loss(t_i, x_i . w) + regularization / 2 |w|^2` over all
    items. Only inner products of items matter, so the features are cut to the `rank` leading
    singular vectors, `F = V S` with `X = U S V^T`, which is exact at full rank. The logistic loss,
    the paper's choice, has a free intercept and is minimised by accelerated gradient steps for all
    users of a block at once; the squared loss has the closed form
    `scores = t F inv(F^T F + regularization) F^T`.

    Args:
        regularization: L2 penalty, above 0.
        loss: `squared` or `logistic`.
        rank: Singular vectors kept.
        steps: Gradient steps of the logistic loss.

    Attributes:
        features_: F, (n_items, at most rank).
        lengths_: Squared singular values, (at most rank,).
    """

    regularization: float = 100.0
    loss: Loss = "squared"
    rank: int = 512
    steps: int = 60
    features_: NDArray[np.float32] = field(init=False, repr=False)
    lengths_: NDArray[np.float32] = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> LRec:
        """Find the items' features from sparse counts, (n_users, n_items)."""
        check_above_zero(regularization=self.regularization)
        check_whole("rank", self.rank, 1)
        check_whole("steps", self.steps, 1)
        check_choice("loss", self.loss, get_args(Loss))
        X = likes_of(as_count_matrix(counts))
        if self.rank < min(X.shape) // 2:
            _, S, Vt = svds(X, k=self.rank, v0=np.ones(min(X.shape), dtype=np.float32))
        else:  # small enough for a full decomposition
            _, S, Vt = svd(X.toarray(), full_matrices=False)
            S, Vt = S[: self.rank], Vt[: self.rank]
        self.features_ = np.ascontiguousarray((Vt * S[:, None]).T, dtype=np.float32)
        self.lengths_ = (S**2).astype(np.float32)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        F = self.features_  # (n_items, rank)
        likes = likes_of(checked_histories(histories, len(F)))
        if self.loss == "squared":
            weights = (likes @ F) / (self.lengths_ + np.float32(self.regularization))
            return np.asarray(weights @ F.T)
        return self._logistic_scores(likes.toarray())

    def _logistic_scores(self, likes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits of the users' own regressions, (n_users, n_items)."""
        F, strength = self.features_, np.float32(self.regularization)
        n_users, n_items = likes.shape
        # The curvature is at most a quarter of that of squares; with an intercept beside F it is
        # at most twice that of its two blocks, which are diagonal.
        step = 1.0 / (0.5 * self.lengths_ + strength)
        intercept_step = np.float32(2.0 / n_items)
        weights = np.zeros((n_users, F.shape[1]), dtype=np.float32)
        intercept = share_logit(likes.sum(axis=1), n_items)[:, None]  # the best by itself
        ahead, intercept_ahead = weights, intercept
        momentum = 1.0
        for _ in range(self.steps):
            residual = expit(ahead @ F.T + intercept_ahead) - likes  # (n_users, n_items)
            moved = ahead - step * (residual @ F + strength * ahead)
            slope = residual.sum(axis=1, keepdims=True)
            moved_intercept = intercept_ahead - intercept_step * slope
            following = 0.5 + np.sqrt(0.25 + momentum**2)  # Nesterov's sequence
            pull = np.float32((momentum - 1.0) / following)
            ahead = moved + pull * (moved - weights)
            intercept_ahead = moved_intercept + pull * (moved_intercept - intercept)
            weights, intercept, momentum = moved, moved_intercept, following
        return np.asarray(weights @ F.T + intercept, dtype=np.float32)
