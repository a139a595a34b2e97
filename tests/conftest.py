"""Tiny data and a seeded generator for all tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def counts(rng: np.random.Generator) -> csr_array:
    """Sixty users of two taste groups, twenty items, counts from 1 upwards."""
    in_group = np.arange(60)[:, None] % 2 == np.arange(20)[None, :] % 2
    watched = rng.random((60, 20)) < np.where(in_group, 0.7, 0.05)
    return csr_array(np.where(watched, rng.geometric(0.3, (60, 20)), 0).astype(float))
