from __future__ import annotations

import numpy as np
import pytest

from cfnade import ImplicitCFNADE
from cfnade.errors import ConfigError
from cfnade.model.config import ModelConfig
from cfnade.model.factors import FACTORS_UP_TO
from cfnade.several import NetworksConfig
from tests.networks import random_counts

SMALL = {"n_hidden": 8, "max_epochs": 2, "direct": False, "factors": False, "n_networks": 1}


@pytest.mark.parametrize(
    ("warm_start", "n_pairs", "expected"),
    [
        (None, FACTORS_UP_TO, True),
        (None, FACTORS_UP_TO + 1, False),
        (True, FACTORS_UP_TO + 1, True),
        (False, 10, False),
    ],
)
def test_small_data_start_from_factors_unless_told_otherwise(warm_start, n_pairs, expected):
    assert NetworksConfig(None, warm_start).is_warm(n_pairs, ModelConfig(20)) is expected


def test_a_deep_network_starts_at_random_and_refuses_to_do_otherwise():
    deep = ModelConfig(20, n_layers=2)
    assert not NetworksConfig().is_warm(10, deep)
    with pytest.raises(ConfigError, match=r"single layer .* n_layers=2"):
        NetworksConfig(None, True).is_warm(10, deep)


def test_a_fit_starts_from_factors_if_it_is_to():
    counts = random_counts(60, 20)
    usual, warm, random = (
        ImplicitCFNADE(**SMALL, **told).fit(counts).scores(counts)
        for told in ({}, {"warm_start": True}, {"warm_start": False})
    )
    np.testing.assert_array_equal(usual, warm)
    assert np.abs(usual - random).max() > 0.01
