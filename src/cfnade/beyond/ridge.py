"""Ridge regression of many targets on many sparse features, by conjugate gradients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

_TOLERANCE = 1e-2  # length of the residual over that of the right side
_MOST_STEPS = 50
_TARGETS = 32  # at once: they stay in the cache
_TINY = np.float32(1e-30)


def ridge(
    rows: csr_array,
    targets: NDArray[np.float32],
    weight: NDArray[np.float32],
    l2: float,
    n_threads: int = 1,
) -> NDArray[np.float32]:
    """Coefficients M that minimise `sum weight |rows M - targets|^2 + l2 |M|^2`.

    By conjugate gradients, each target on its own: there may be tens of thousands of features.
    Features are scaled by the diagonal of the system, which halves the number of steps.

    Args:
        rows: Features, sparse, (n_items, n_features).
        targets: (n_items, n_targets).
        weight: At least 0, (n_items,).
        l2: Above 0.
        n_threads: Blocks of targets at once.

    Returns:
        (n_features, n_targets).
    """
    root = np.sqrt(weight).astype(np.float32)
    X = csr_array(diags_array(root) @ rows)
    diagonal = np.bincount(X.indices, X.data.astype(np.float64) ** 2, minlength=X.shape[1])
    used = np.flatnonzero(diagonal)
    scale = (1.0 / np.sqrt(diagonal[used] + l2)).astype(np.float32)
    X = csr_array(X[:, used] @ diags_array(scale)).astype(np.float32)
    Xt = X.T.tocsr()
    penalty = np.float32(l2) * scale[:, None] ** 2

    def solve(columns: slice) -> None:
        residual = Xt @ np.ascontiguousarray(root[:, None] * targets[:, columns])
        M, direction = np.zeros_like(residual), residual.copy()
        length = _squares(residual)  # of each target
        enough = _TOLERANCE**2 * length
        for _ in range(_MOST_STEPS):
            if (length <= enough).all():
                break
            product = Xt @ (X @ direction) + penalty * direction
            step = length / np.maximum(np.einsum("ij,ij->j", direction, product), _TINY)
            M += step * direction
            residual -= step * product
            before, length = length, _squares(residual)
            direction *= length / np.maximum(before, _TINY)
            direction += residual
        coefficients[used, columns] = scale[:, None] * M

    coefficients = np.zeros((rows.shape[1], targets.shape[1]), dtype=np.float32)
    columns = [slice(at, at + _TARGETS) for at in range(0, targets.shape[1], _TARGETS)]
    with ThreadPoolExecutor(n_threads) as threads:
        for _ in threads.map(solve, columns):
            pass
    return coefficients


def _squares(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(np.einsum("ij,ij->j", values, values))
