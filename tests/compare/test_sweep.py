from __future__ import annotations

import json

import pytest

from cfnade.compare.registry import contender
from cfnade.compare.sweep import sweep
from cfnade.errors import ConfigError
from tests.networks import SMALL


def test_a_sweep_has_a_point_for_each_model_and_alpha(data):
    settings = {"imf": {"factors": 2}, "cfnade": SMALL}
    swept = sweep(data, [3.0, 30.0], dataset="groups", settings=settings, max_trials=2)
    assert [(p.model, p.alpha) for p in swept.points] == [
        ("cfnade", 3.0), ("imf", 3.0), ("cfnade", 30.0), ("imf", 30.0),
    ]  # fmt: skip
    for point in swept.points:
        assert point.settings["alpha"] == point.alpha
        assert point.interval[0] <= point.mpr <= point.interval[1]
    json.dumps(swept.to_json())


def test_a_sweep_refuses_no_alpha_and_an_invalid_one(data):
    with pytest.raises(ConfigError, match="at least one alpha"):
        sweep(data, [])
    with pytest.raises(ConfigError, match="alpha must be"):
        sweep(data, [-1.0])


def test_any_model_with_an_alpha_can_be_swept_and_others_are_refused(data):
    paper = contender("cfnade-paper").holding(learning_rate=3e-3, n_hidden=8, max_epochs=2)
    models = {"cfnade-paper": paper, "logistic-mf": contender("logistic-mf").holding(factors=2)}
    swept = sweep(data, [3.0], models=models, max_trials=1)
    assert [(p.model, p.settings["alpha"]) for p in swept.points] == [
        ("cfnade-paper", 3.0), ("logistic-mf", 3.0),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="popularity has no alpha to sweep"):
        sweep(data, [3.0], models=["popularity"])
