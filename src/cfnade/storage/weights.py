"""Which weights a network has, by name and shape: what is saved, checked on loading, exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.model.config import ModelConfig


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every weight of this network by name."""
    n_items, n_hidden = config.n_items, config.n_hidden
    shapes: dict[str, tuple[int, ...]] = {
        "like_weight": (n_items, n_hidden),
        "dislike_weight": (n_items, n_hidden),
        "hidden_bias": (n_hidden,),
        "output_weight": (n_items, n_hidden),
        "output_bias": (n_items,),
    }
    for layer in range(config.n_layers - 1):
        shapes[f"deep_weight.{layer}"] = (n_hidden, n_hidden)
        shapes[f"deep_bias.{layer}"] = (n_hidden,)
    if config.n_neighbours:
        shapes["neighbours"] = (n_items, config.n_neighbours)
        shapes["neighbour_weight"] = (n_items, config.n_neighbours)
    return shapes


def n_weights(config: ModelConfig) -> int:
    """How many arrays `weight_shapes` names, without making the list."""
    return 5 + 2 * (config.n_layers - 1) + (2 if config.n_neighbours else 0)


def weight_type(name: str) -> type[np.float32] | type[np.int64]:
    """Type of a weight: all are numbers but the neighbours, which are columns of items."""
    return np.int64 if name == "neighbours" else np.float32


def wrong_weights(
    config: ModelConfig, weights: Mapping[str, NDArray[Any]], *, look_inside: bool = True
) -> str | None:
    """What is wrong with these weights for this network, in words; None if nothing is.

    Args:
        config: What the network is.
        weights: Its weights by name.
        look_inside: Also see that every number is finite, which reads all of them.
    """
    if len(weights) != n_weights(config):
        return f"expected {n_weights(config)} weights, found {len(weights)}"
    for name, shape in weight_shapes(config).items():
        if name not in weights:
            return f"the weight {name} is missing"
        weight = weights[name]
        dtype = np.dtype(weight_type(name))
        if weight.shape != shape or weight.dtype != dtype:
            return (
                f"{name} must be {dtype} of shape {shape}, "
                f"found {weight.dtype} of shape {weight.shape}"
            )
        if name == "neighbours" and not ((weight >= 0) & (weight < config.n_items)).all():
            return f"{name} names items that do not exist"
        if look_inside and not _is_finite(weight):
            return f"{name} holds NaN or infinite numbers"
    return None


def _is_finite(weight: NDArray[Any], n_at_once: int = 1 << 20) -> bool:
    """Whether all numbers are finite, with little memory for large arrays."""
    flat = weight.reshape(-1)
    return all(
        bool(np.isfinite(flat[start : start + n_at_once]).all())
        for start in range(0, flat.size, n_at_once)
    )
