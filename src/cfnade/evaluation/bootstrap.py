"""Bootstrap intervals over users: how much a metric would move with other users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfnade.evaluation.metrics import UserSums

# More users than this are first added up in as many random groups of (nearly) equal size, and
# groups are drawn instead of users. The interval keeps its width (the spread of a sum of users is
# the spread of users), known to about 1 / sqrt(2 * groups) = 0.5 %, and the time is bounded.
_MAX_GROUPS = 20_000

_CHUNK = 50  # resamples per matrix product: 8 MB of draws at most


def bootstrap_means(
    metrics: list[UserSums], *, n_bootstrap: int, rng: int | np.random.Generator
) -> NDArray[np.float64]:
    """Means of the metrics over users drawn with replacement.

    All metrics share the same draws, so differences between columns are paired.

    Args:
        metrics: Sums of the same users in each.
        n_bootstrap: How often to draw as many users as there are.
        rng: Seed or generator.

    Returns:
        (n_bootstrap, n_metrics).
    """
    rng = np.random.default_rng(rng)
    sums = np.stack([column for each in metrics for column in (each.total, each.weight)], axis=1)
    if len(sums) > _MAX_GROUPS:
        group = rng.permutation(len(sums)) % _MAX_GROUPS
        sums = np.stack([np.bincount(group, weights=column) for column in sums.T], axis=1)
    n = len(sums)
    means = np.empty((n_bootstrap, len(metrics)))
    for start in range(0, n_bootstrap, _CHUNK):
        size = min(_CHUNK, n_bootstrap - start)
        drawn = np.stack(
            [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(size)]
        )  # (size, n): how often each user is in the resample
        resampled = drawn.astype(np.float64) @ sums  # (size, 2 * n_metrics)
        means[start : start + size] = resampled[:, 0::2] / resampled[:, 1::2]
    return means


def percentile_interval(values: NDArray[np.float64], coverage: float = 0.95) -> tuple[float, float]:
    """The middle part of bootstrapped values, (n_bootstrap,), as (low, high)."""
    tail = (1.0 - coverage) / 2
    low, high = np.quantile(values, [tail, 1.0 - tail])
    return float(low), float(high)
