"""Implicit matrix factorisation (Hu, Koren, Volinsky 2008) of what a network is trained on.

The paper's rival, and a good companion: it is linear and solved exactly, where the network is
neither, so the two err on different items. `model/units.py` gives its scores hidden units.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

_START = 0.01  # spread of the first factors
_POWER_STEPS = 20


def als_item_factors(
    confidence: csr_array,
    n_factors: int,
    l2: float,
    n_iterations: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Factors y of the items, of `sum c (t - x y)^2 + l2 (sum |x|^2 + sum |y|^2)`.

    The sum goes over all users and items, with t = 0 and c = 1 where nothing was observed.
    Alternating least squares: users given items, then items given users.

    Args:
        confidence: Of the likes, at least 1, sparse, (n_users, n_items).
        n_factors: Length of x and y.
        l2: Strength of the penalty.
        n_iterations: Over users and items.
        rng: Of the first factors.

    Returns:
        (n_items, n_factors); 0 for items that nobody has.
    """
    by_user = csr_array(confidence, dtype=np.float32)
    by_item = csr_array(by_user.T)
    size = (by_user.shape[1], n_factors)
    items = _START * rng.standard_normal(size, dtype=np.float32)
    for _ in range(n_iterations):
        users = solve_rows(by_user, items, l2)
        items = solve_rows(by_item, users, l2)
    return items


def solve_rows(
    confidence: csr_array, others: NDArray[np.float32], l2: float
) -> NDArray[np.float32]:
    """The best factors of one side, given those of the other.

    Row by row `x = (Y'Y + l2 + Y' (C - 1) Y)^-1 Y' C t`, where only the rows y of the likes are in
    C - 1. With fewer likes than factors it is cheaper by Woodbury's identity: with
    `P = (Y'Y + l2)^-1` and the diagonal matrix `D = (C - 1)^-1`, both of the likes alone,
    `x = P Y' (Y P Y' + D)^-1 D c`, a system as large as the likes.

    Args:
        confidence: Of the likes, sparse, (n_rows, n_others).
        others: Y, (n_others, n_factors).
        l2: Strength of the penalty.

    Returns:
        (n_rows, n_factors).
    """
    n_factors = others.shape[1]
    gram = others.T @ others + np.float32(l2) * np.eye(n_factors, dtype=np.float32)
    projected = others @ np.linalg.inv(gram.astype(np.float64)).astype(np.float32)  # Y P
    found = np.zeros((confidence.shape[0], n_factors), dtype=np.float32)
    for row in np.flatnonzero(np.diff(confidence.indptr)):
        liked = slice(confidence.indptr[row], confidence.indptr[row + 1])
        columns, c = confidence.indices[liked], confidence.data[liked]
        Y = others[columns]  # (n_liked, n_factors)
        beyond = np.maximum(c - 1.0, np.float32(1e-6))
        if len(columns) < n_factors:
            YP = projected[columns]
            system = YP @ Y.T
            system.flat[:: len(columns) + 1] += 1.0 / beyond
            found[row] = np.linalg.solve(system, c / beyond) @ YP
        else:
            factor = cho_factor(gram + (Y.T * beyond) @ Y, check_finite=False)
            found[row] = cho_solve(factor, Y.T @ c, check_finite=False)
    return found


def largest_singular_value(matrix: csr_array) -> float:
    """Of a matrix without negative entries, by the power method.

    With this for `l2` the best factors of such confidences are all 0.
    """
    vector = np.ones(matrix.shape[1], dtype=np.float64)
    value = 0.0
    for _ in range(_POWER_STEPS):
        vector = matrix.T @ (matrix @ vector)
        length = float(np.linalg.norm(vector))
        if length == 0.0:
            return 0.0
        vector /= length
        value = math.sqrt(length)
    return value
