from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.beyond.factors import FACTORS_UP_TO, FactorPlan
from cfnade.errors import ArtifactError, ConfigError
from cfnade.fit.networks import NetworksConfig
from cfnade.model.config import ModelConfig
from tests.networks import random_counts

SMALL = {"n_hidden": 8, "max_epochs": 2, "direct": False, "factors": False, "n_networks": 1}


@pytest.mark.parametrize(
    ("told", "n_pairs", "expected"),
    [
        (None, FACTORS_UP_TO, True),
        (None, FACTORS_UP_TO + 1, False),
        (True, FACTORS_UP_TO + 1, True),
        (False, 10, False),
    ],
)
def test_small_data_start_from_factors_unless_told_otherwise(told, n_pairs, expected):
    plan = FactorPlan.of(n_pairs, 1_000, 20)
    networks = NetworksConfig(start_from_factors=told)
    assert networks.starts_from_factors(plan, ModelConfig(20)) is expected


def test_a_deep_network_starts_at_random_and_refuses_to_do_otherwise():
    deep, plan = ModelConfig(20, n_layers=2), FactorPlan.of(10, 5, 20)
    assert not NetworksConfig().starts_from_factors(plan, deep)
    with pytest.raises(ConfigError, match=r"single layer .* n_layers=2"):
        NetworksConfig(start_from_factors=True).starts_from_factors(plan, deep)


def test_a_fit_starts_from_factors_if_it_is_to():
    counts = random_counts(60, 20)
    usual, warm, random = (
        ImplicitCFNADE(**SMALL, **told).fit(counts).scores(counts)
        for told in ({}, {"start_from_factors": True}, {"start_from_factors": False})
    )
    np.testing.assert_array_equal(usual, warm)
    assert np.abs(usual - random).max() > 0.01


@pytest.mark.parametrize(
    "counts",
    [np.ones((1, 1)), np.ones((10, 1)), np.ones((1, 5)), np.ones((10, 4))],
    ids=["one pair", "one item", "one user", "all alike"],
)
def test_where_factors_say_nothing_the_start_is_random(counts):
    counts = csr_array(counts)
    usual, random = (
        ImplicitCFNADE(n_hidden=8, max_epochs=2, start_from_factors=told).fit(counts).scores(counts)
        for told in (None, False)
    )
    np.testing.assert_array_equal(usual, random)
    assert np.abs(usual).max() < 20.0


def test_a_fit_is_not_resumed_with_another_start_or_another_judge(tmp_path):
    counts = random_counts(60, 20)
    small = {**SMALL, "item_l2": 0.1, "direct": True, "direct_gain": 2.0}
    ImplicitCFNADE(**small).fit(counts, checkpoint=tmp_path)
    longer = {**small, "max_epochs": 4}
    for changes, told in (
        ({"start_from_factors": False}, "other start"),
        ({"direct_gain": 5.0}, "other judged with"),
    ):
        with pytest.raises(ArtifactError, match=told):
            ImplicitCFNADE(**{**longer, **changes}).fit(counts, checkpoint=tmp_path, resume=True)
    ImplicitCFNADE(**longer).fit(counts, checkpoint=tmp_path, resume=True)


def test_epochs_are_judged_with_the_direct_path_on_small_data(monkeypatch):
    counts = random_counts(80, 20)
    settings = {**SMALL, "max_epochs": 4, "direct": True, "direct_gain": 300.0, "item_l2": 0.1}

    def looks() -> list[float | None]:
        model = ImplicitCFNADE(**settings, direct_l2=1.0, direct_neighbours=5).fit(counts)
        return [epoch.validation_mpr for epoch in model.epochs_]

    with_direct = looks()
    monkeypatch.setattr("cfnade.fit.pipeline.DIRECT_LOOK_UP_TO", 0)
    alone = looks()
    assert len(with_direct) == len(alone) and with_direct != alone
