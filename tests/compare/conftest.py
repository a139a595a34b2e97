"""Small data to compare models on."""

from __future__ import annotations

import pytest

from cfnade.compare.protocol import Protocol
from cfnade.data.interactions import Interactions
from tests.networks import group_counts


@pytest.fixture(scope="session")
def data() -> Interactions:
    return Interactions.from_matrix(group_counts())


@pytest.fixture(scope="session")
def protocol(data: Interactions) -> Protocol:
    return Protocol(data)
