from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.model.input_layer import InputLayer
from cfnade.model.ordering import Window, split_batch
from tests.model.test_network import random_network


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("window", [Window(9, 2, 4), Window(9, 7, 4), Window(9, 0, 9)])
def test_what_enters_and_its_gradients_equal_the_plain_network(rng, input_scale, window):
    network = random_network(n_items=9, n_hidden=4, input_scale=input_scale, activation="identity")
    likes = rng.random((6, 9)) < 0.4
    likes[0] = False  # an empty history
    batch = csr_array(np.where(likes, 1.0 + 3.0 * rng.random((6, 9)), 0.0))
    context, _ = split_batch(batch, window)
    by_input = torch.from_numpy(rng.normal(size=(6, 4)))

    plain = network.hidden(context, window.in_context)
    plain.backward(by_input)
    layer = InputLayer(network.like_weight, network.dislike_weight, network.config)
    other = Window(9, 5, 3)  # buffers are used again
    layer.forward(split_batch(batch, other)[0], other)
    layer.gradient(by_input + 1.0)
    entered = layer.forward(context, window)
    gradients = layer.gradient(by_input)
    torch.testing.assert_close(entered + network.hidden_bias, plain)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, network.get_parameter(name).grad)
