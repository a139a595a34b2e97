"""Logistic regression on a few features, by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_L2 = 1.0
_STEPS = 25  # at most
_TOLERANCE = 1e-8


def logistic_regression(
    features: NDArray[np.floating],
    is_true: NDArray[np.bool_],
    weight: NDArray[np.floating] | None = None,
) -> NDArray[np.float64]:
    """Weights of a logistic regression, the constant first, (1 + n_features,).

    Features are standardised for the small penalty, and the weights turned back; a constant one
    gets the weight 0. A row may stand for several, `weight` of them, (n_rows,).
    """
    n_alike = np.ones(len(features)) if weight is None else weight
    mean = np.average(features, axis=0, weights=n_alike)
    spread = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=n_alike))
    spread[spread <= 1e-9 * np.abs(mean)] = np.inf  # a constant feature says nothing
    X = np.hstack([np.ones((len(features), 1)), (features - mean) / spread])
    weights = np.zeros(X.shape[1])
    penalty = _L2 * np.eye(X.shape[1])
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(X @ weights, -30.0, 30.0)))
        gradient = X.T @ (n_alike * (is_true - p)) - _L2 * weights
        step = np.linalg.solve((X * (n_alike * p * (1.0 - p))[:, None]).T @ X + penalty, gradient)
        weights += step
        if np.abs(step).max() < _TOLERANCE:
            break
    slopes = weights[1:] / spread
    return np.concatenate([[weights[0] - slopes @ mean], slopes])
