"""Strengths of features are judged on items that are held back; planted genres come back."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade import ImplicitCFNADE, hold_out
from cfnade.beyond.features import FeatureStrengths
from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.fit.cold_judge import HALVES, LEVELS, LIKE_GAINS, ColdJudge
from tests.fit.test_cold_start import plays
from tests.networks import SMALL


@pytest.fixture(scope="module")
def judge() -> ColdJudge:
    """Of genres that matter, and of a column of chance."""
    counts = plays().counts
    n, rng = counts.shape[1], np.random.default_rng(0)
    columns = {
        "genre": Entries(range(n), [f"g{12 * k // n}" for k in range(n)], np.ones(n)),
        "chance": Entries(range(n), [f"c{k}" for k in rng.integers(4, size=n)], np.ones(n)),
    }
    features = ItemFeatures.from_entries(n, columns, dict.fromkeys(columns, "values"))
    histories, held_out = hold_out(counts, rng=0)
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 60}).fit(histories)
    return ColdJudge(model.scorer_, features, histories, held_out, seed=0, n_threads=1)


def test_a_column_that_says_something_is_better_than_one_of_chance(judge):
    assert judge.can_judge
    genre = judge.cost_of_held_back({"chance": 0.0}, 3.0)
    assert genre < 0.8 * judge.cost_of_held_back({"genre": 0.0}, 3.0)
    assert judge.find_columns()["genre"] == 1.0


def test_strengths_are_values_that_were_tried(judge):
    found = judge.find_rest(FeatureStrengths(l2=3.0, columns={"chance": 0.0}))
    assert found.l2 == 3.0 and dict(found.columns) == {"chance": 0.0}
    assert found.level in LEVELS and found.half in HALVES and found.like_gain in LIKE_GAINS
