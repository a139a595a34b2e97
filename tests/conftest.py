"""Tiny data and a seeded generator for all tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.networks import group_counts

with contextlib.suppress(ImportError):  # the example for LensKit is tested without it
    from hypothesis import settings

    settings.register_profile("no-deadline", deadline=None)  # on a busy machine anything is slow
    settings.load_profile("no-deadline")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what commands store for later out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def counts(rng: np.random.Generator) -> csr_array:
    """Sixty users of two taste groups, twenty items, counts from 1 upwards."""
    return group_counts(rng)
