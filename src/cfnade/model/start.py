"""Where training starts: the output bias, and first weights from singular vectors if asked for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.feedback import popularity_logit
from cfnade.model.config import TrainingConfig
from cfnade.model.network import CFNADENetwork

_OVERSAMPLING = 16
_POWER_ITERATIONS = 2


@torch.no_grad()
def start_network(network: CFNADENetwork, training: TrainingConfig, confidence: csr_array) -> None:
    """Give a network with random weights the start that is asked for, in place.

    Args:
        network: To be trained.
        training: For `bias_start` and `warm_start`.
        confidence: Of the likes that it will be trained on, sparse, (n_users, n_items).
    """
    if training.bias_start == "share":
        network.output_bias.copy_(torch.from_numpy(popularity_logit(confidence)))
    elif training.bias_start == "odds":
        network.output_bias.copy_(torch.from_numpy(confidence_odds(confidence)))
    if training.warm_start:
        _start_warm(network, confidence, np.random.default_rng([training.seed, 0]))


def confidence_odds(confidence: csr_array) -> NDArray[np.float64]:
    """Logit of each item's odds of confidence: the best bias there is with nothing beside it.

    Args:
        confidence: Of the likes, sparse, (n_users, n_items); users without any do not count.

    Returns:
        (n_items,).
    """
    n_users, n_items = int(np.count_nonzero(np.diff(confidence.indptr))), confidence.shape[1]
    liked = np.bincount(confidence.indices, confidence.data, minlength=n_items)
    return odds_logit(liked, np.bincount(confidence.indices, minlength=n_items), n_users)


def odds_logit(
    liked: NDArray[Any], n_watchers: NDArray[np.integer], n_users: int
) -> NDArray[np.float64]:
    """Logit of the odds of confidence, from sums over users.

    Args:
        liked: Confidence of each item's likes, added up, (n_items,).
        n_watchers: How many like it, (n_items,).
        n_users: With any like at all.

    Returns:
        (n_items,).
    """
    odds: NDArray[np.float64] = (liked + 0.5) / (n_users - n_watchers + 0.5)
    return np.log(odds)


def _start_warm(network: CFNADENetwork, likes: csr_array, rng: np.random.Generator) -> None:
    """Leading singular vectors of the likes: what enters a hidden unit has a spread of 0.2."""
    config, n_users = network.config, int(np.count_nonzero(np.diff(likes.indptr)))
    vectors, singular = leading_vectors(likes, config.n_hidden, rng)
    is_used = singular > 1e-3 * singular[0]  # the other units stay random
    vectors, singular = vectors[:, is_used], singular[is_used]
    spread = singular / math.sqrt(max(n_users, 1))  # of what enters each unit
    W = vectors * (0.2 / spread)
    if config.input_scale == "none":
        W /= 1.0 + config.alpha
    # a like's logit then follows the projection of the history on these vectors
    V = vectors * (singular / singular[0]) * math.sqrt(config.n_hidden)
    units = torch.from_numpy(np.flatnonzero(is_used))
    network.like_weight[:, units] = torch.from_numpy(W)
    network.output_weight[:, units] = torch.from_numpy(V)


def leading_vectors(
    likes: csr_array, n_factors: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Leading right singular vectors of the likes, each row divided by its length's root.

    By random projections (Halko, Martinsson, Tropp 2011): a few passes over the likes.

    Args:
        likes: Any matrix with a stored value for each like, (n_users, n_items).
        n_factors: How many; those beyond the rank of the likes are 0.
        rng: Source of randomness.

    Returns:
        Vectors as columns, (n_items, n_factors), and singular values, largest first,
        (n_factors,).
    """
    lengths = np.diff(likes.indptr)
    root = np.sqrt(np.maximum(lengths, 1), dtype=np.float32)
    values = np.repeat(1.0 / root, lengths).astype(np.float32)
    X = csr_array((values, likes.indices, likes.indptr), shape=likes.shape)
    n_drawn = min(n_factors + _OVERSAMPLING, *X.shape)
    basis = X.T @ rng.standard_normal((X.shape[0], n_drawn), dtype=np.float32)
    for _ in range(_POWER_ITERATIONS):
        basis, _ = np.linalg.qr(basis)
        basis = X.T @ (X @ basis)
    basis, _ = np.linalg.qr(basis)  # (n_items, n_drawn)
    projected = X @ basis
    values, rotation = np.linalg.eigh(projected.T @ projected)  # ascending
    n_kept = min(n_factors, n_drawn)
    vectors = np.zeros((X.shape[1], n_factors), dtype=np.float32)
    vectors[:, :n_kept] = (basis @ rotation)[:, ::-1][:, :n_kept]
    singular = np.zeros(n_factors, dtype=np.float32)
    singular[:n_kept] = np.sqrt(np.maximum(values[::-1][:n_kept], 0.0))
    return vectors, singular
