"""Counts of two groups of users with different tastes, for many tests."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array


def group_counts() -> csr_array:
    """Sixty users of two taste groups, twenty items, counts from 1 upwards."""
    rng = np.random.default_rng(0)
    in_group = np.arange(60)[:, None] % 2 == np.arange(20)[None, :] % 2
    watched = rng.random((60, 20)) < np.where(in_group, 0.7, 0.05)
    return csr_array(np.where(watched, rng.geometric(0.3, (60, 20)), 0).astype(float))
