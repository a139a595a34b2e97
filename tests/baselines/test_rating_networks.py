from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from scipy.sparse import csr_array

from cfnade.baselines.rating_baselines import BiasedMeans
from cfnade.baselines.rating_networks import AutoRec, RatingRBM, _AutoRecRun, _RBMRun
from cfnade.data.rating_table import read_ratings
from cfnade.model.config import RatingConfig, TrainingConfig
from tests.baselines.test_rating_baselines import rmse
from tests.planted_ratings import planted_ratings

SMALL = {"n_hidden": 16, "batch_size": 16, "learning_rate": 0.02, "max_epochs": 60}


@pytest.mark.parametrize("kind", [AutoRec, RatingRBM])
def test_it_finds_what_biases_cannot_and_repeats_itself(kind):
    train, test = read_ratings(planted_ratings()).split(0.1, 0)
    model = kind(**SMALL, weight_decay=1e-3).fit(train)
    assert rmse(model, test) < 0.8 * rmse(BiasedMeans().fit(train), test)
    again = kind(**SMALL, weight_decay=1e-3).fit(train)
    np.testing.assert_array_equal(model.expected(*test.pairs), again.expected(*test.pairs))


def test_the_loss_of_autorec_equals_loops(rng):
    values = csr_array(rng.normal(size=(3, 4)) * (rng.random((3, 4)) < 0.7)).astype(np.float32)
    config = RatingConfig(4, 1, 2)
    run = _AutoRecRun(config, TrainingConfig(), values, share=False)
    weights = {n: w.detach().numpy() for n, w in run.network.named_parameters()}
    expected = 0.0
    for row in values.toarray():
        entered = row @ weights["input_weight"] + weights["hidden_bias"]
        hidden = 1 / (1 + np.exp(-entered))
        for column in np.flatnonzero(row):
            found = weights["output_weight"][column] @ hidden + weights["output_bias"][column]
            expected += 0.5 * (found - row[column]) ** 2
    assert float(run.loss(values, rng).detach()) == pytest.approx(expected, rel=1e-5)


def test_the_gradient_of_the_machine_is_contrastive_divergence(rng, monkeypatch):
    """By W of one rating: its hidden probability in the data, minus that in the reconstruction."""
    levels = csr_array(np.array([[1, 2, 0]], dtype=np.uint8))
    config = RatingConfig(3, 2, 4)
    run = _RBMRun(config, TrainingConfig(), levels, share=False)
    drawn = torch.tensor([[1], [1]])  # the reconstruction: rating 2 for both
    monkeypatch.setattr(torch, "multinomial", lambda *_, **__: drawn)
    run.loss(levels, rng).backward()
    _, b, W, _ = run.network.parameters()
    table = W.detach()
    in_data = torch.sigmoid(table[0] + table[3] + b.detach())  # (column 0, 1), (column 1, 2)
    in_drawn = torch.sigmoid(table[1] + table[3] + b.detach())
    torch.testing.assert_close(W.grad[0], -in_data)
    torch.testing.assert_close(W.grad[1], in_drawn)
    torch.testing.assert_close(W.grad[3], in_drawn - in_data)
    assert (W.grad[[2, 4, 5]] == 0).all()
