"""What BPR and logistic MF share: training by `implicit`, and the vectors of new users."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits

from cfnade.baselines.support import Iterative, checked_histories, library, plain_csr, stretches
from cfnade.checks import check_above_zero, check_whole
from cfnade.data.interactions import CountMatrix
from cfnade.errors import TrainingError

_NEWTON_STEPS = 50


class GradientFactors(Iterative):
    """A model of `implicit` that learns a vector for each training user.

    A history from training gets that vector. Any other history gets the vector that minimises the
    model's loss, given the item factors.
    """

    factors: int
    learning_rate: float
    regularization: float
    random_state: int
    item_factors_: NDArray[np.float32]
    user_factors_: NDArray[np.float32]
    _row_of: dict[bytes, int]

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, len(self.item_factors_))
        users = np.empty((histories.shape[0], self.user_factors_.shape[1]), dtype=np.float32)
        for place, n_items in enumerate(np.diff(histories.indptr)):
            row = self._row_of.get(_key(histories, place)) if n_items else None
            if row is None:
                users[place] = self._new_user(histories[[place]])
            else:
                users[place] = self.user_factors_[row]
        return np.asarray(users @ self.item_factors_.T)

    @abstractmethod
    def _new_user(self, history: CountMatrix) -> NDArray[np.float32]:
        """The best vector for one history, empty or new, (k,)."""

    def _train(
        self,
        path: str,
        counts: CountMatrix,
        weights: NDArray[np.float32] | float,
        iterations: Sequence[int],
        learned: dict[str, Any],
        **settings: Any,
    ) -> list[Self]:
        """Train implicit's model (its path) on one thread, and return a copy of each stop.

        `weights` are those of the pairs, `learned` are further attributes of the copies, and
        `settings` are those that only this model has.
        """
        check_whole("factors", self.factors, 1)
        check_above_zero(learning_rate=self.learning_rate, regularization=self.regularization)
        stretches(iterations)  # refuses what does not ascend
        name = type(self).__name__
        module, _, kind = path.rpartition(".")
        make = getattr(library(module, f"the {name} baseline"), kind)
        failure = library("implicit.recommender_base", f"the {name} baseline").ModelFitError
        # Of several users with the same history, the first one counts.
        learned["_row_of"] = {_key(counts, row): row for row in reversed(range(counts.shape[0]))}
        kept: list[Self] = []

        def keep(iteration: int, *ignored: Any) -> None:
            if iteration + 1 in iterations:
                copied = self.copy_at(iteration + 1, **learned)
                copied.user_factors_ = model.user_factors.copy()
                copied.item_factors_ = model.item_factors.copy()
                kept.append(copied)

        with threadpool_limits(1, "blas"):  # implicit warns when BLAS has threads of its own
            model = make(
                factors=self.factors,
                learning_rate=self.learning_rate,
                regularization=self.regularization,
                random_state=self.random_state,
                iterations=iterations[-1],
                num_threads=1,
                **settings,
            )
            try:
                model.fit(plain_csr(counts, weights), show_progress=False, callback=keep)
            except failure as error:
                raise TrainingError(
                    f"{name} ended in NaN; lower the learning rate (now {self.learning_rate:g}) or "
                    f"raise the regularization (now {self.regularization:g})"
                ) from error
        return kept


def _key(counts: CountMatrix, row: int) -> bytes:
    """The history in a row, to find the training user who has it."""
    pairs = slice(counts.indptr[row], counts.indptr[row + 1])
    items = counts.indices[pairs].astype(np.int32)  # one width whatever scipy chose
    key: bytes = items.tobytes() + counts.data[pairs].astype(np.float32).tobytes()
    return key


def logistic_weights(
    features: NDArray[np.float32],
    offset: NDArray[np.float32],
    positive: NDArray[np.float32],
    negative: NDArray[np.float32],
    l2: float,
) -> NDArray[np.float32]:
    """The weights w, (k,), of a logistic regression on `s = features w + offset`, by Newton.

    They minimise `sum(positive log(1 + e^-s) + negative log(1 + e^s)) + l2 / 2 |w|^2`. Features
    are (n, k); offset, positive and negative are (n,).
    """
    F = features.astype(np.float64)
    w = np.zeros(F.shape[1])

    def loss(w: NDArray[np.float64]) -> float:
        s = F @ w + offset
        terms = positive @ np.logaddexp(0.0, -s) + negative @ np.logaddexp(0.0, s)
        return float(terms + l2 / 2 * (w @ w))

    here = loss(w)
    for _ in range(_NEWTON_STEPS):
        p = expit(F @ w + offset)
        gradient = F.T @ (negative * p - positive * (1.0 - p)) + l2 * w
        curvature = (F.T * ((positive + negative) * p * (1.0 - p))) @ F + l2 * np.eye(len(w))
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while loss(w - size * step) > here and size > 1e-6:
            size /= 2
        w = w - size * step
        before, here = here, loss(w)
        if before - here <= 1e-10 * max(abs(here), 1.0):
            break
    return w.astype(np.float32)
