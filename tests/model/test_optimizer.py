from __future__ import annotations

import pytest
import torch

from cfnade.model.config import TrainingConfig
from cfnade.model.optimizer import RowOptimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_with_all_rows_it_is_torchs_own(name, weight_decay):
    torch.manual_seed(0)
    weights = {"a": torch.randn(5, 3), "b": torch.randn(4)}
    own = {key: torch.nn.Parameter(weight.clone()) for key, weight in weights.items()}
    kind = torch.optim.Adam if name == "adam" else torch.optim.SGD
    torchs = kind(own.values(), lr=0.1, weight_decay=weight_decay)
    ours = RowOptimizer(weights, TrainingConfig(optimizer=name, weight_decay=weight_decay))
    for _ in range(4):
        gradients = {key: torch.randn_like(weight) for key, weight in weights.items()}
        ours.step({key: gradient.clone() for key, gradient in gradients.items()}, {}, 0.1)
        for key, parameter in own.items():
            parameter.grad = gradients[key]
        torchs.step()
    for key, weight in weights.items():
        torch.testing.assert_close(weight, own[key].detach())


def test_rows_that_are_not_named_rest():
    weights = {"a": torch.ones(6, 2), "b": torch.ones(3)}
    optimizer = RowOptimizer(weights, TrainingConfig())
    gradients = {"a": torch.ones(6, 2), "b": torch.ones(3)}
    optimizer.step(gradients, {"a": [slice(0, 1), slice(4, 6)]}, 0.1)
    moved = (weights["a"] != 1.0).all(dim=1)
    assert moved.tolist() == [True, False, False, False, True, True]
    assert (weights["b"] != 1.0).all()
    assert optimizer.state["mean/a"][1:4].abs().sum() == 0


def test_no_rows_at_all_is_a_step_too():
    weights = {"a": torch.ones(6, 2), "b": torch.ones(3)}
    RowOptimizer(weights, TrainingConfig()).step(
        {"a": torch.ones(6, 2), "b": torch.ones(3)}, {"a": []}, 0.1
    )
    assert (weights["a"] == 1.0).all() and (weights["b"] != 1.0).all()
