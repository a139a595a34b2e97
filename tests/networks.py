"""Networks with random weights and models made of them: all of a model but the training."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, RelativeRating
from cfnade.data.catalogue import Catalogue
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NetworkScorer, NumpyNetwork


def random_numpy_network(
    n_items: int = 20, n_hidden: int = 6, seed: int = 0, **settings: Any
) -> NumpyNetwork:
    """A network of which every weight matters."""
    rng = np.random.default_rng(seed)
    config = ModelConfig(
        **{"n_items": n_items, "n_hidden": n_hidden, "n_neighbours": 3, **settings}
    )
    A_scale = 0.3 if config.input_scale == "none" else 0.3 * n_items  # as in `dislike_scale`
    W_scale = 0.5 if config.input_scale != "none" else 0.5 / (1 + config.alpha)
    weights = {
        "like_weight": W_scale * rng.normal(size=(n_items, n_hidden)),
        "dislike_weight": A_scale * rng.normal(size=(n_items, n_hidden)),
        "hidden_bias": rng.normal(size=n_hidden),
        "output_weight": rng.normal(size=(n_items, n_hidden)),
        "output_bias": rng.normal(size=n_items),
    }
    for layer in range(config.n_layers - 1):
        weights[f"deep_weight.{layer}"] = rng.normal(size=(n_hidden, n_hidden)) / n_hidden**0.5
        weights[f"deep_bias.{layer}"] = rng.normal(size=n_hidden)
    weights = {name: weight.astype(np.float32) for name, weight in weights.items()}
    if config.n_neighbours:
        others = np.argsort(rng.random((n_items, n_items)) + np.eye(n_items), axis=1)
        weights["neighbours"] = others[:, : config.n_neighbours].copy()
        weights["neighbour_weight"] = rng.random((n_items, config.n_neighbours), dtype=np.float32)
    return NumpyNetwork(config, weights)


def random_counts(
    n_users: int = 30, n_items: int = 20, density: float = 0.3, seed: int = 0
) -> csr_array:
    """Counts from 1 upwards, sparse, (n_users, n_items)."""
    rng = np.random.default_rng(seed)
    watched = rng.random((n_users, n_items)) < density
    return csr_array(np.where(watched, rng.geometric(0.3, (n_users, n_items)), 0).astype(float))


def random_model(
    n_items: int = 20, *, item_ids: np.ndarray | None = None, seed: int = 0, **settings: Any
) -> ImplicitCFNADE:
    """A model that works like a trained one; items are `i0`, `i1`, ... unless told otherwise."""
    network = random_numpy_network(n_items, seed=seed, **settings)
    known = {name: value for name, value in settings.items() if name != "n_neighbours"}
    model = ImplicitCFNADE(n_hidden=network.config.n_hidden, **known)
    model.readout_, model._told, model.calibrator_ = {}, {}, None
    model.item_l2_ = None
    model.epochs_, model.best_epoch_, model.validation_mpr_ = [], 1, None
    model.data_fingerprint_, model.partial_fits_ = {}, []
    ratings = RelativeRating().fit(random_counts(n_items=n_items, seed=seed))
    if item_ids is None:
        item_ids = np.array([f"i{k}" for k in range(n_items)], dtype=object)
    model._adopt(NetworkScorer(network, ratings), Catalogue(item_ids))
    return model
