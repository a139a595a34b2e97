"""Tiny data and a seeded generator for all tests."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.networks import group_counts

with contextlib.suppress(ImportError):  # the example for LensKit is tested without it
    from hypothesis import settings

    settings.register_profile("no-deadline", deadline=None)  # on a busy machine anything is slow
    settings.load_profile("no-deadline")


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by Playwright, for tests marked `browser`."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CFNADE_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed; make test-browser")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()
