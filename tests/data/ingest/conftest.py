from __future__ import annotations

import pytest


@pytest.fixture
def two_threads(monkeypatch) -> None:
    """DuckDB needs memory for each thread: a limit has a meaning only with their number."""
    monkeypatch.setattr("cfnade.data.ingest.scan.available_threads", lambda: 2)
