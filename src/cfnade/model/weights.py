"""Which weights a network has, by name and shape: what is saved, checked on loading, exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.model.config import ModelConfig


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every weight of this network by name; all are float32."""
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
    if config.direct:
        shapes["direct_weight"] = (n_items, n_items)
        shapes["direct_scale"] = (n_items,)
    return shapes


def n_weights(config: ModelConfig) -> int:
    """How many arrays `weight_shapes` names, without making the list."""
    return 5 + 2 * (config.n_layers - 1) + (2 if config.direct else 0)


def dense_direct_weight(weights: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The direct item-item weights as one array, (n_items, n_items): row is the history's item."""
    return weights["direct_weight"]


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
        if weight.shape != shape or weight.dtype != np.float32:
            return (
                f"{name} must be float32 of shape {shape}, "
                f"found {weight.dtype} of shape {weight.shape}"
            )
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
