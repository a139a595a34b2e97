"""Tiny data and a seeded generator for all tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.networks import group_counts


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def counts(rng: np.random.Generator) -> csr_array:
    """Sixty users of two taste groups, twenty items, counts from 1 upwards."""
    return group_counts(rng)
