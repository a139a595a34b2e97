"""A start from matrix factorisation (Hu, Koren, Volinsky 2008) instead of random weights.

Most hidden units start with the scores of a factorisation, which `implicit` finds in seconds. They
are nearly linear at first; training bends them. That takes a fraction of the epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from threadpoolctl import threadpool_limits

from cfnade.beyond.shared_work import once
from cfnade.data.ratings import confidence
from cfnade.errors import MissingExtraError
from cfnade.model.config import ModelConfig
from cfnade.model.inference import input_weight, with_values
from cfnade.threads import available_threads

_L2 = 28.0  # the penalty is this times sqrt(1 + alpha): the usual optimum for IMF
_MAX_L2 = 0.1  # penalty over the largest singular value at most; at 1 all factors would be 0
SPREAD = 0.25
"""Spread of a unit's input if all factors are kept: a tanh is nearly linear there."""

_MAX_SPREAD = 0.5  # spread of a unit's input in a narrow network, at most
_SHARE = 0.75  # share of the units that start from factors; the others are random
_LEAST_VARIATION = 1e-2  # of the scores, over their size: below it they do not distinguish users
_LEAST_OWN = 1e-6  # of the score that an item gives itself, over the largest one
_START = 0.01  # spread of the first factors
_POWER_STEPS = 20


def can_start_from_factors(model: ModelConfig) -> bool:
    """Whether units of such a network can be linear at first."""
    return model.n_layers == 1 and model.activation in ("tanh", "identity")


@dataclass(frozen=True)
class ItemScores:
    """Scores of a factorisation as a sum over the history: `X S Y (Y'Y + l2)^-1 Y'`."""

    histories: csr_array
    """What enters the network for each like, X, sparse, (n_users, n_items)."""

    into: NDArray[np.float32]
    """`S Y (Y'Y + l2)^-1`, (n_items, n_factors)."""

    items: NDArray[np.float32]
    """Factors Y of the items, (n_items, n_factors)."""

    gram: NDArray[np.float64]
    """`Y'Y`, (n_factors, n_factors)."""

    moment: NDArray[np.float64]
    """Mean over users of the products of what enters two factors, (n_factors, n_factors)."""

    spread: float | None
    """Standard deviation of the scores; None if they do not distinguish users."""


def item_scores(
    ratings: csr_array,
    model: ModelConfig,
    *,
    n_factors: int,
    alpha: float,
    max_users: int,
    n_iterations: int,
    first: NDArray[np.float32] | None = None,
    n_threads: int | None = None,
) -> ItemScores:
    """Factorise ratings, and make the scores a sum over the history.

    With Y the items' factors and S a diagonal matrix, a history x has the factors
    `x S Y (Y'Y + l2)^-1`, and so the scores `x S Y (Y'Y + l2)^-1 Y'`. S divides by the root of the
    score that an item gives itself: ALS fits each item of a history, so items with small factors
    weigh more there.

    Args:
        ratings: Relative ratings to train on, sparse, (n_users, n_items).
        model: The network.
        n_factors: Factors of the factorisation.
        alpha: Its rate of confidence.
        max_users: Users to make it from at most, evenly spaced.
        n_iterations: Of its ALS.
        first: Factors of the items to begin with, of similar data; None draws them.
        n_threads: For the factorisation; None takes all.
    """
    ratings = evenly_spaced(ratings, max_users)
    confident = with_values(ratings, confidence(ratings.data, alpha))
    l2 = min(_L2 * math.sqrt(1.0 + alpha), _MAX_L2 * largest_singular_value(confident))

    def factorise() -> NDArray[np.float32]:
        return als_item_factors(
            confident, n_factors, l2, n_iterations, first=first, n_threads=n_threads
        )

    Y = (  # (n_items, n_factors)
        once("factors", confident, (n_factors, l2, n_iterations), factorise)
        if first is None
        else factorise()
    )
    gram = (Y.T @ Y).astype(np.float64)
    into = Y @ np.linalg.inv(gram + l2 * np.eye(n_factors)).astype(np.float32)
    own = np.einsum("ij,ij->i", into, Y)  # the score that each item gives itself, (n_items,)
    into /= np.sqrt(np.maximum(own, _LEAST_OWN * own.max() + 1e-30))[:, None]
    context = with_values(ratings, confidence(ratings.data, model.alpha))
    inputs = with_values(ratings, input_weight(context, model))
    entering = inputs @ into  # (n_users, n_factors)
    moment = (entering.T @ entering).astype(np.float64) / max(len(entering), 1)
    mean = float(entering.mean(axis=0) @ Y.mean(axis=0))
    size = max(float((moment * gram).sum()) / len(Y), 0.0)  # mean square of the scores
    spread = math.sqrt(max(size - mean**2, 0.0))
    distinguishes = spread > _LEAST_VARIATION * math.sqrt(size)
    return ItemScores(inputs, into, Y, gram, moment, spread if distinguishes else None)


def start_from_factors(
    weights: Mapping[str, NDArray[np.float32]], scores: ItemScores, *, seed: int
) -> dict[str, NDArray[np.float32]]:
    """Replace the random weights of most hidden units by a factorisation.

    Its scores are scaled to a spread of 1. The leading components are kept and rotated at random,
    so each seed starts differently.

    Args:
        weights: To start from, by name; not changed.
        scores: Those of the factorisation.
        seed: Of the rotation.

    Returns:
        Weights by name, those given if the factorisation does not distinguish users.
    """
    if scores.spread is None:
        return dict(weights)
    n_factors, n_hidden = scores.items.shape[1], weights["hidden_bias"].size
    n_started = max(1, min(n_factors, int(_SHARE * n_hidden)))
    _, components = np.linalg.eigh(scores.gram)  # ascending
    rng = np.random.default_rng([seed, 0])
    rotation, _ = np.linalg.qr(rng.standard_normal((n_started, n_started)))
    kept = components[:, -n_started:] @ rotation  # (n_factors, n_started)
    moment = scores.moment
    of_all = math.sqrt(float(np.trace(moment)) / n_factors)  # spread of what enters a unit
    of_kept = math.sqrt(float(np.mean(np.sum(kept * (moment @ kept), axis=0))))
    scale = min(SPREAD / max(of_all, 1e-12), _MAX_SPREAD / max(of_kept, 1e-12))
    started = {name: weight.copy() for name, weight in weights.items()}
    started["like_weight"][:, :n_started] = scale * (scores.into @ kept)
    started["output_weight"][:, :n_started] = (scores.items @ kept) / (scale * scores.spread)
    return started


def evenly_spaced(rows: csr_array, n_most: int) -> csr_array:
    """At most so many rows, evenly spaced; the matrix itself if it has no more."""
    n_rows = rows.shape[0]
    return rows if n_rows <= n_most else rows[np.arange(n_most) * n_rows // n_most]


def als_item_factors(
    confidence: csr_array,
    n_factors: int,
    l2: float,
    n_iterations: int,
    *,
    first: NDArray[np.float32] | None = None,
    n_threads: int | None = None,
) -> NDArray[np.float32]:
    """Factors y of the items that minimise `sum c (t - x y)^2 + l2 (sum |x|^2 + sum |y|^2)`.

    The sum runs over all users and items, with t = 0 and c = 1 where nothing was observed.

    Args:
        confidence: Of the likes, at least 1, sparse, (n_users, n_items).
        n_factors: Length of x and y.
        l2: Strength of the penalty.
        n_iterations: Of ALS.
        first: Factors to begin with, (n_items, n_factors); None draws them.
        n_threads: None takes all.

    Returns:
        (n_items, n_factors).
    """
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError as error:
        raise MissingExtraError("implicit", "train", "starting from factors") from error
    with threadpool_limits(1, "blas"):  # implicit runs rows in parallel itself
        als = AlternatingLeastSquares(
            factors=n_factors,
            regularization=l2,
            alpha=1.0,  # the confidences are in the data
            iterations=n_iterations,
            num_threads=n_threads or available_threads(),
        )
        # implicit starts from positive numbers, so all factors point the same way at first.
        rng = np.random.default_rng(0)
        als.user_factors, als.item_factors = (
            _START * rng.standard_normal((n_rows, n_factors), dtype=np.float32)
            for n_rows in confidence.shape
        )
        if first is not None:
            als.item_factors = first.copy()  # the first step finds the users' factors from them
        als.fit(csr_matrix(confidence, dtype=np.float32), show_progress=False)
    return np.asarray(als.item_factors, dtype=np.float32)


def largest_singular_value(matrix: csr_array) -> float:
    """Of a matrix without negative entries, by the power method."""
    vector = np.ones(matrix.shape[1], dtype=np.float64)
    value = 0.0
    for _ in range(_POWER_STEPS):
        vector = matrix.T @ (matrix @ vector)
        length = float(np.linalg.norm(vector))
        if length == 0.0:
            return 0.0
        vector /= length
        value = math.sqrt(length)
    return value
