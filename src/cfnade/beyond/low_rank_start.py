"""A start of the network alone: the scores of a factorisation and of neighbours, in few units.

The direct path (`beyond/direct.py`) holds what a factorisation loses: pairs of items that belong
together. If it may not stand beside the network, its scores are put into the network, as far as
that is possible with the hidden units that there are (docs/decisions/0046).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.direct import Neighbours
from cfnade.beyond.factors import SPREAD, ItemScores
from cfnade.beyond.readout import USUAL
from cfnade.model.config import ModelConfig
from cfnade.model.inference import direct_weight

_SHARE = 0.9  # share of the units that are started; the others are random
_MORE = 16  # directions beyond those kept, for the randomised search
_POWER_STEPS = 2
_SOME = 2000  # histories from which spreads are measured


def start_with_neighbours(
    weights: Mapping[str, NDArray[np.float32]],
    model: ModelConfig,
    scores: ItemScores,
    found: Neighbours,
    *,
    seed: int,
) -> dict[str, NDArray[np.float32]]:
    """Replace the random weights of most hidden units.

    With M what the likes of a history x add to the scores, `x M`, the units hold the M' of low rank
    that is closest to it on the histories: the least `|X M - X M'|`. Its right singular vectors P
    give `M' = (M P) P'`. W is orthogonal at first, and V has the singular values; training goes
    wrong the other way round. The units are rotated at random, so each seed starts differently.

    Args:
        weights: To start from, by name; not changed.
        model: The network.
        scores: Those of a factorisation, and the histories.
        found: Neighbours of each item and their weights (`NeighbourRegression.neighbours`).
        seed: Of the search and the rotation.

    Returns:
        Weights by name; those given if the factorisation does not distinguish users.
    """
    spread = scores.spread
    if spread is None:
        return dict(weights)
    X, into, Y = scores.histories, scores.into / spread, scores.items
    B = _on_the_scale_of_likes(X, direct_weight(*found))
    entering = X @ into  # (n_users, n_factors)

    def scored(P: NDArray[Any]) -> NDArray[Any]:
        """`X M P`."""
        by_user: NDArray[Any] = entering @ (Y.T @ P) + X @ (B @ P)
        return by_user

    def scored_back(Q: NDArray[Any]) -> NDArray[Any]:
        """`M' X' Q`."""
        of_histories = X.T @ Q
        by_item: NDArray[Any] = Y @ (into.T @ of_histories) + B.T @ of_histories
        return by_item

    rng = np.random.default_rng([seed, 0])
    n_hidden = weights["hidden_bias"].size
    n_started = min(max(1, int(_SHARE * n_hidden)), min(X.shape))
    P = rng.standard_normal((len(Y), min(n_started + _MORE, min(X.shape))), dtype=np.float32)
    for _ in range(_POWER_STEPS):
        Q, _ = np.linalg.qr(scored(P))
        P, _ = np.linalg.qr(scored_back(Q))
    _, _, axes = np.linalg.svd(scored(P), full_matrices=False)
    P = P @ axes[:n_started].T
    left, upper = np.linalg.qr(into @ (Y.T @ P) + B @ P)
    turned, strength, back = np.linalg.svd(upper)
    rotation, _ = np.linalg.qr(rng.standard_normal((n_started, n_started)))
    W = (left @ turned @ rotation).astype(np.float32)
    V = ((P @ back.T) * strength @ rotation).astype(np.float32)
    scale = SPREAD / max(math.sqrt(float(np.mean((X @ W) ** 2))), 1e-12)
    started = {name: weight.copy() for name, weight in weights.items()}
    started["like_weight"][:, :n_started] = scale * W
    started["output_weight"][:, :n_started] = V / scale
    return started


def _on_the_scale_of_likes(X: csr_array, weight: csr_array) -> csr_array:
    """Weights that add as much for `X` as the direct path adds for likes, at its usual gain."""
    some = X[:_SOME]
    likes = csr_array((np.ones_like(some.data), some.indices, some.indptr), shape=some.shape)
    of_likes, of_inputs = (_spread(rows @ weight) for rows in (likes, some))
    return weight * np.float32((USUAL.direct_gain or 0.0) * of_likes / max(of_inputs, 1e-12))


def _spread(scores: csr_array) -> float:
    """Standard deviation of all entries of a sparse matrix."""
    n = scores.shape[0] * scores.shape[1]
    mean, square = (float((scores.data**power).sum(dtype=np.float64)) / n for power in (1, 2))
    return math.sqrt(max(square - mean**2, 0.0))
