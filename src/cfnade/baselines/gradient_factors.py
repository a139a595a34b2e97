"""What BPR and logistic MF share: `implicit`'s factors at several stops, and new users' vectors.

Both learn a vector for each training user. A history from training gets that vector; any other
history gets the vector that minimises the model's loss, given the item factors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits

from cfnade.baselines.support import library
from cfnade.data.interactions import CountMatrix
from cfnade.errors import TrainingError

Factors = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Of users, (n_users, k), and of items, (n_items, k)."""

_NEWTON_STEPS = 50


def factors_at_stops(
    name: str,
    make: Callable[..., Any],
    settings: dict[str, Any],
    user_items: Any,
    stops: Sequence[int],
) -> list[Factors]:
    """Fit a model of `implicit` on one thread and keep its factors at each stop.

    `make` is its class and `settings` are without the iterations.

    Raises:
        TrainingError: If factors are not finite.
    """
    failure = library("implicit.recommender_base", name).ModelFitError
    kept: list[Factors] = []

    def keep(iteration: int, *ignored: Any) -> None:
        if iteration + 1 in stops:
            kept.append((model.user_factors.copy(), model.item_factors.copy()))

    with threadpool_limits(1, "blas"):  # implicit warns when BLAS has threads of its own
        model = make(**settings, iterations=stops[-1], num_threads=1)
        try:
            model.fit(user_items, show_progress=False, callback=keep)
        except failure as error:
            raise TrainingError(
                f"{name} ended in NaN; lower the learning rate (now {model.learning_rate:g}) or "
                f"raise the regularization (now {model.regularization:g})"
            ) from error
    return kept


class KnownUsers:
    """Finds the training user who has a given history: the first one if several do."""

    def __init__(self, counts: CountMatrix) -> None:
        self._row_of: dict[bytes, int] = {}
        for row in range(counts.shape[0]):
            self._row_of.setdefault(_key(counts, row), row)

    def vectors(
        self,
        histories: CountMatrix,
        trained: NDArray[np.float32],
        new_vector: Callable[[CountMatrix], NDArray[np.float32]],
    ) -> NDArray[np.float32]:
        """A vector for each history, (n_histories, k).

        Args:
            histories: (n_histories, n_items).
            trained: The vectors of the training users, (n_users, k).
            new_vector: Gives the vector of an empty or new history, (1, n_items).
        """
        vectors = np.empty((histories.shape[0], trained.shape[1]), dtype=np.float32)
        for place, n_items in enumerate(np.diff(histories.indptr)):
            row = self._row_of.get(_key(histories, place)) if n_items else None
            vectors[place] = new_vector(histories[[place]]) if row is None else trained[row]
        return vectors


def _key(counts: CountMatrix, row: int) -> bytes:
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
    """The weights w of a weighted logistic regression on `s = features w + offset`, by Newton.

    They minimise `sum(positive log(1 + e^-s) + negative log(1 + e^s)) + l2 / 2 |w|^2`.

    Features are (n, k); offset, positive and negative are (n,); w is (k,).
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
