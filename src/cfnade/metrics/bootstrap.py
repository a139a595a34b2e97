"""Bootstrap intervals over users: how much a metric would move with other users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfnade.errors import DataError
from cfnade.metrics.formulas import UserSums

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


def paired_intervals(
    metrics: list[UserSums],
    reference: UserSums,
    *,
    n_bootstrap: int,
    rng: int | np.random.Generator,
) -> list[tuple[float, float]]:
    """95 % interval of each mean less that of the reference, over the same draws of users.

    Much of the spread between users is shared by two models, so this is far narrower than
    the models' own intervals suggest.

    Args:
        metrics: Of models judged on the same users.
        reference: Of the model they are held against.
        n_bootstrap: Resamples of users.
        rng: Seed or generator.

    Returns:
        (low, high) for each; with 0 in it, the difference is within the noise.

    Raises:
        DataError: If the users differ.
    """
    for each in metrics:
        if not np.array_equal(each.weight, reference.weight):
            raise DataError(
                f"{each.weight.size} and {reference.weight.size} users were judged, or other pairs "
                "of theirs; judge both models on one split"
            )
    means = bootstrap_means([*metrics, reference], n_bootstrap=n_bootstrap, rng=rng)
    differences = means[:, :-1] - means[:, -1:]  # (n_bootstrap, n_metrics)
    return [percentile_interval(column) for column in differences.T]


def percentile_interval(values: NDArray[np.float64], coverage: float = 0.95) -> tuple[float, float]:
    """The middle part of bootstrapped values, (n_bootstrap,), as (low, high)."""
    tail = (1.0 - coverage) / 2
    low, high = np.quantile(values, [tail, 1.0 - tail])
    return float(low), float(high)
