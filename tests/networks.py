"""Networks with random weights and models made of them: all of a model but the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, RelativeRating
from cfnade.data.catalogue import Catalogue
from cfnade.fit.settings import Recipe
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


def group_counts(rng: np.random.Generator | None = None) -> csr_array:
    """Sixty users of two taste groups, twenty items: items of even number belong together."""
    rng = rng or np.random.default_rng(0)
    in_group = np.arange(60)[:, None] % 2 == np.arange(20)[None, :] % 2
    watched = rng.random((60, 20)) < np.where(in_group, 0.7, 0.05)
    return csr_array(np.where(watched, rng.geometric(0.3, (60, 20)), 0).astype(float))


SMALL = {"n_hidden": 8, "batch_size": 16, "max_epochs": 12, "learning_rate": 0.02}
"""Settings to fit `group_counts` with in a moment."""


def network_of(V: np.ndarray, d: np.ndarray | None = None) -> NumpyNetwork:
    """A network with this output layer; all else is 0."""
    n_items, n_hidden = V.shape
    nothing = np.zeros((n_items, n_hidden), dtype=np.float32)
    weights = {
        "like_weight": nothing,
        "dislike_weight": nothing,
        "hidden_bias": nothing[0],
        "output_weight": V.astype(np.float32),
        "output_bias": nothing[:, 0] if d is None else d.astype(np.float32),
    }
    return NumpyNetwork(ModelConfig(n_items, n_hidden), weights)


def random_model(
    n_items: int = 20, *, item_ids: np.ndarray | None = None, seed: int = 0, **settings: Any
) -> ImplicitCFNADE:
    """A model that works like a trained one; the ids of the items are `i0`, `i1`, ... if not given.

    Args:
        n_items: Number of items.
        item_ids: Ids of the items.
        seed: Of the weights.
        settings: Fields of `ModelConfig`.
    """
    network = random_numpy_network(n_items, seed=seed, **settings)
    same = {name: value for name, value in settings.items() if hasattr(Recipe, name)}
    ratings = RelativeRating().fit(random_counts(n_items=n_items, seed=seed))
    if item_ids is None:
        item_ids = np.array([f"i{k}" for k in range(n_items)], dtype=object)
    return ImplicitCFNADE.from_parts(
        NetworkScorer(network, ratings),
        Catalogue(item_ids),
        info={"training": {"best_epoch": 1}},
        recipe=Recipe(**{**same, "n_hidden": network.config.n_hidden}),
    )


def counted(function: Callable[..., Any], made: list[str]) -> Callable[..., Any]:
    """The function, which adds its name to a list whenever it is called."""

    def count(*args: Any, **kwargs: Any) -> Any:
        made.append(function.__name__)
        return function(*args, **kwargs)

    return count
