"""A small trained model, and services that run on copies of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from cfnade.serve.model_source import load
from tests.serve.running import running
from tests.storage.saved import KEPT


@pytest.fixture(scope="session")
def loaded():
    """The kept model: twelve films in three groups."""
    return load(KEPT)


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(KEPT, tmp_path / "films"))


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """One service for all tests that only ask."""
    place = tmp_path_factory.mktemp("service")
    with running(KEPT, place / "log.txt") as service:
        yield service
