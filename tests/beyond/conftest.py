"""Ratings of random users."""

from __future__ import annotations

import pytest
from scipy.sparse import csr_array

from tests.networks import random_counts


@pytest.fixture
def ratings() -> csr_array:
    """Between 0 and 1, (40, 20)."""
    counts = random_counts(40, 20)
    counts.data = counts.data / counts.data.max()
    return counts
