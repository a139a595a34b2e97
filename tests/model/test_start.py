from __future__ import annotations

import numpy as np
import torch

from cfnade.model.config import ModelConfig
from cfnade.model.network import CFNADENetwork
from cfnade.model.start import start_units
from cfnade.model.units import LinearUnits


def units(rng: np.random.Generator, n_units: int = 5) -> LinearUnits:
    into, out = rng.normal(size=(2, 12, n_units)).astype(np.float32)
    return LinearUnits(into, out)


def test_the_first_units_start_from_factors_and_the_others_at_random(rng):
    network = CFNADENetwork(ModelConfig(12, n_hidden=8), torch.Generator().manual_seed(0))
    drawn = {n: w.detach().clone() for n, w in network.named_parameters()}
    started = units(rng)
    start_units(network, started, seed=3)
    W, V = network.like_weight.detach(), network.output_weight.detach()
    expected = torch.from_numpy(started.into @ started.out.T)
    torch.testing.assert_close(W[:, :5] @ V[:, :5].T, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(W[:, 5:], drawn["like_weight"][:, 5:])
    torch.testing.assert_close(V[:, 5:], drawn["output_weight"][:, 5:])


def test_factors_that_say_nothing_leave_the_network_as_it_was_drawn(rng):
    network = CFNADENetwork(ModelConfig(12, n_hidden=8), torch.Generator().manual_seed(0))
    before = network.like_weight.detach().clone()
    start_units(network, LinearUnits(units(rng).into, np.zeros((12, 5), np.float32)), seed=0)
    torch.testing.assert_close(network.like_weight.detach(), before)
