"""Bootstrap intervals over users: how much a metric varies with the users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfnade.metrics.formulas import UserSums

# More users than this are first summed in this many random groups of (nearly) equal size, and
# groups are drawn instead of users: the interval keeps its width, and the time is bounded.
_MAX_GROUPS = 20_000

_CHUNK = 50  # resamples per matrix product: 8 MB of draws at most


def bootstrap_means(
    metrics: list[UserSums], *, n_bootstrap: int, rng: int | np.random.Generator
) -> NDArray[np.float64]:
    """Means of the metrics over users drawn with replacement, (n_bootstrap, n_metrics).

    All metrics are of the same users and share the draws, so differences of columns are paired.
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


def paired_intervals(
    sums: list[UserSums], reference: UserSums, *, n_bootstrap: int, rng: int | np.random.Generator
) -> list[tuple[float, float]]:
    """95 % interval of the difference of each mean to that of a reference, on the same users.

    Two models share much of the spread between users, so these intervals are far narrower than
    the models' own suggest. A difference is significant if its interval does not contain 0.
    """
    means = bootstrap_means([*sums, reference], n_bootstrap=n_bootstrap, rng=rng)
    differences = means[:, :-1] - means[:, -1:]  # (n_bootstrap, n_metrics)
    # BLAS may round two equal columns differently, and no difference is exactly 0.
    is_same = [np.array_equal(each.total, reference.total) for each in sums]
    differences[:, is_same] = 0.0
    return [percentile_interval(column) for column in differences.T]


def percentile_interval(values: NDArray[np.float64], coverage: float = 0.95) -> tuple[float, float]:
    """The middle part of bootstrapped values, (n_bootstrap,), as (low, high)."""
    tail = (1.0 - coverage) / 2
    low, high = np.quantile(values, [tail, 1.0 - tail])
    return float(low), float(high)
