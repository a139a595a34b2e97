"""Serving in numpy is the network that was trained in torch, under every setting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.data.feedback import confidence
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.model.network import ACTIVATIONS, CFNADENetwork
from cfnade.storage.tensors import weight_shapes, wrong_weights

N_ITEMS = 25


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 300.0])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_logits_are_equal(rng, activation, input_scale, alpha, n_layers):
    config = ModelConfig(N_ITEMS, 6, n_layers, activation, alpha, input_scale)
    network = CFNADENetwork(config)
    generator = torch.Generator().manual_seed(1)
    # Unbounded activations multiply a confidence of 301 up: such weights are small when trained.
    std = 0.3 if input_scale != "none" else 0.3 / (1.0 + alpha)
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0.0, std, generator=generator)
    weights = {name: weight.detach().numpy() for name, weight in network.named_parameters()}
    assert wrong_weights(config, weights) is None
    assert set(weights) == set(weight_shapes(config))

    watched = rng.random((12, N_ITEMS)) < 0.3
    watched[0] = False  # an empty history
    watched[1] = True  # one of everything
    ratings = csr_array(np.where(watched, 1.0 - rng.random((12, N_ITEMS)), 0.0))
    context = ratings.copy()
    context.data = confidence(ratings.data, alpha)
    hidden = network.hidden(context, np.ones(N_ITEMS, dtype=bool))
    expected = network.logits(hidden)
    actual = NumpyNetwork(config, weights).logits(ratings)
    np.testing.assert_allclose(actual, expected.detach().numpy(), atol=1e-5)
