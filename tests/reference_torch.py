"""Eq. 9 to 14 with dense tensors and automatic gradients: the oracle of the gradients by hand.

`one_pass` runs the code that training runs, along any ordering, to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from cfnade.model.config import ModelConfig
from cfnade.model.network import CFNADENetwork, InputLayer
from cfnade.model.objective import OutputLayer
from cfnade.model.ordering import Window, split_batch

LITERAL = {"input_scale": "none", "alpha": 3.0}  # Eq. 9 as printed


def random_network(n_items: int = 4, n_hidden: int = 3, **settings: Any) -> CFNADENetwork:
    """Every weight random, in float64."""
    config = ModelConfig(n_items=n_items, n_hidden=n_hidden, **{**LITERAL, **settings})
    network = CFNADENetwork(config).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0.0, 0.5, generator=generator)
    return network


def as_lists(network: CFNADENetwork) -> dict[str, list]:
    """The weights by the paper's letters, for the loops in `tests.reference`."""
    names = {"W": "like_weight", "A": "dislike_weight", "b": "hidden_bias",
             "V": "output_weight", "d": "output_bias"}  # fmt: skip
    return {letter: network.get_parameter(name).tolist() for letter, name in names.items()}


def confidences_of(
    likes: np.ndarray, rng: np.random.Generator, disliked: float = 0.0
) -> np.ndarray:
    """Above 1 where liked, and for a share of the other pairs: known dislikes; else exactly 1."""
    above_one = 1.0 + 3.0 * (1.0 - rng.random(likes.shape))
    is_known = likes > 0
    if disliked:
        is_known |= rng.random(likes.shape) < disliked
    return np.where(is_known, above_one, 1.0)


def signed(likes: np.ndarray, confidences: np.ndarray) -> csr_array:
    """What the layers read: c of a like, -c of a known dislike, sparse."""
    is_disliked = (likes == 0) & (confidences > 1.0)
    return csr_array(likes * confidences - is_disliked * confidences)


def dense_hidden(
    network: CFNADENetwork, likes: np.ndarray, confidences: np.ndarray, in_context: np.ndarray
) -> Tensor:
    """Eq. 9, summed over every item of the context, with the scales of the configuration."""
    config = network.config
    liked, disliked = likes * in_context, (1.0 - likes) * in_context
    by_like, by_dislike = liked * confidences, disliked * confidences
    if config.input_scale != "none":
        scale = np.where(confidences > 1.0, 1.0 + config.alpha, config.n_items)
        by_like, by_dislike = by_like / (1.0 + config.alpha), by_dislike / scale
    if config.input_scale == "history":
        total = by_like.sum(axis=1, keepdims=True)
        by_like = by_like / np.sqrt(np.where(total > 0, total, 1.0))
    kind = network.like_weight.dtype
    entered = torch.from_numpy(by_like).to(kind) @ network.like_weight
    entered = entered + torch.from_numpy(by_dislike).to(kind) @ network.dislike_weight
    hidden = network.activation(entered + network.hidden_bias)
    for U, b in zip(network.deep_weight, network.deep_bias, strict=True):
        hidden = network.activation(hidden @ U.T + b)
    return hidden


def dense_logits(network: CFNADENetwork, hidden: Tensor) -> Tensor:
    """Eq. 10 before the sigmoid, (n_users, n_items)."""
    return hidden @ network.output_weight.T + network.output_bias


def dense_cost(
    logits: Tensor, likes: np.ndarray, confidences: np.ndarray, in_context: np.ndarray
) -> Tensor:
    """Eq. 14, averaged over the users."""
    like, weight = (torch.from_numpy(part).to(logits.dtype) for part in (likes, confidences))
    cost = F.binary_cross_entropy_with_logits(logits, like, weight, reduction="none")
    is_target = torch.from_numpy(~in_context)
    scale = is_target.numel() / int(is_target.sum())
    return scale * cost[:, is_target].sum(dim=1).mean()


@dataclass(frozen=True)
class Pass:
    """What the code that runs makes of one split."""

    hidden: Tensor
    """(n_users, n_hidden)."""

    loss: float
    """Eq. 14."""

    gradients: dict[str, Tensor]
    """By the weight's name, items in their own order."""


def one_pass(
    network: CFNADENetwork,
    likes: np.ndarray,
    confidences: np.ndarray,
    ordering: Sequence[int],
    i: int,
    rotation: int = 0,
) -> Pass:
    """One update's way through the layers: the targets are those of position i and after.

    Args:
        network: The weights.
        likes: 0 or 1, (n_users, n_items).
        confidences: 1 where unobserved, (n_users, n_items).
        ordering: A permutation of the items.
        i: Position of the first target, from 1.
        rotation: Places by which the ordering is turned around the circle.
    """
    n_items = len(ordering)
    order = np.roll(ordering, rotation)
    back = torch.from_numpy(np.argsort(order))
    window = Window(n_items, (i - 1 + rotation) % n_items, n_items - i + 1)
    batch = csr_array(signed(likes, confidences)[:, order])
    context, target_likes = split_batch(batch, window)
    rows = torch.from_numpy(order.copy())
    input_layer = InputLayer(
        network.like_weight[rows], network.dislike_weight[rows], network.config
    )
    output_layer = OutputLayer(network.output_weight[rows], network.output_bias[rows])
    entered = input_layer.forward(context, window).requires_grad_()
    hidden = network.hidden_of(entered)
    found = output_layer.gradient(hidden.detach(), window, target_likes)
    network.zero_grad()
    hidden.backward(found.hidden)
    assert entered.grad is not None
    by_item = {
        **input_layer.gradient(entered.grad),
        "output_weight": found.output_weight,
        "output_bias": found.output_bias,
    }
    within = {n: w.grad for n, w in network.named_parameters() if w.grad is not None}
    network.zero_grad()
    return Pass(hidden.detach(), found.loss, {**within, **{n: g[back] for n, g in by_item.items()}})


def like_probabilities(
    network: CFNADENetwork,
    likes: np.ndarray,
    confidences: np.ndarray,
    ordering: Sequence[int],
    i: int,
) -> np.ndarray:
    """Eq. 10 of one user's targets by the code that runs, NaN for the context, (n_items,).

    The cost of an unobserved target is softplus of its logit, so its gradient by d is the
    probability of a like, times M / (M - i + 1).
    """
    context = likes * np.isin(np.arange(len(ordering)), ordering[: i - 1])
    confidences = np.where(context > 0, confidences, 1.0)
    by_bias = one_pass(network, context, confidences, ordering, i).gradients["output_bias"]
    probabilities = by_bias.numpy() * (len(ordering) - i + 1) / len(ordering)
    probabilities[list(ordering[: i - 1])] = np.nan
    return probabilities
