"""A table and a model trained on it, for all commands."""

from __future__ import annotations

import pytest

from cfnade.cli.main import run
from tests.cli.helpers import QUICK, write_catalogue, write_events


@pytest.fixture(scope="session")
def events(tmp_path_factory):
    """An event log: one row for each count."""
    return write_events(tmp_path_factory.mktemp("data") / "events.csv")


@pytest.fixture(scope="session")
def model(events, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    assert run(["fit", str(events), "--out", str(folder), *QUICK]) == 0
    return folder


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory):
    """A table of what is known about items."""
    return write_catalogue(tmp_path_factory.mktemp("data") / "catalogue.csv")


@pytest.fixture(scope="session")
def described_model(events, catalogue, tmp_path_factory):
    """Fitted with the table."""
    folder = tmp_path_factory.mktemp("models") / "described"
    arguments = ["fit", str(events), "--items", str(catalogue), "--out", str(folder), *QUICK]
    assert run(arguments) == 0
    return folder
