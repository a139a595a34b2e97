"""The trained network in numpy (Eq. 12 and 13): all that serving needs, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.feedback import confidence
from cfnade.model.config import ModelConfig
from cfnade.model.inputs import dislike_scale, input_weight, with_values
from cfnade.model.neighbours import add_direct, direct_weight


def sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 / (1 + exp(-x)), without overflow for large negative x."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)), dtype=x.dtype)


ACTIVATIONS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}


class NumpyNetwork:
    """Runs the network on histories of any users; equal to the torch network."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[Any]]) -> None:
        self.config = config
        self.weights = dict(weights)
        self.activation = ACTIVATIONS[config.activation]
        # With all items as context, Eq. 13's sum over A is the same for every user.
        all_disliked = dislike_scale(config) * weights["dislike_weight"].sum(axis=0)
        self.empty_input: NDArray[np.float32] = weights["hidden_bias"] + all_disliked
        self.direct_weight: csr_array | None = None
        """B: what a like of the row's item adds to the logit of the column's."""
        if config.n_neighbours:
            self.direct_weight = direct_weight(weights["neighbours"], weights["neighbour_weight"])

    def hidden(self, ratings: csr_array, disliked: csr_array | None = None) -> NDArray[np.float32]:
        """Hidden layer of each history (Eq. 13), at the cost of the items in it.

        Args:
            ratings: Relative ratings, sparse, (n_users, n_items).
            disliked: Confidence, at least 1, of items known to be disliked, none of them among
                the ratings, sparse, (n_users, n_items). With like 0 and confidence c such an
                item gives Eq. 13 `c A` instead of A; 1 is the same as unobserved.

        Returns:
            (n_users, n_hidden).
        """
        return self.hidden_of(self.first_input(ratings, disliked))

    def first_input(
        self, ratings: csr_array, disliked: csr_array | None = None
    ) -> NDArray[np.float32]:
        """What the first hidden layer is the activation of; arguments as for `hidden`.

        Returns:
            (n_users, n_hidden).
        """
        A_scale = dislike_scale(self.config)
        W, A = self.weights["like_weight"], self.weights["dislike_weight"]
        weights = with_values(ratings, input_weight(self.context(ratings), self.config))
        likes = with_values(ratings, np.full(ratings.nnz, A_scale, dtype=np.float32))
        first: NDArray[np.float32] = self.empty_input + weights @ W - likes @ A
        if disliked is not None:
            # Not normalised by `input_scale`: that sums over the liked items alone.
            more = with_values(disliked, (A_scale * (disliked.data - 1.0)).astype(np.float32))
            first += more @ A
        return first

    def context(self, ratings: csr_array) -> csr_array:
        """Confidence of the liked items (Eq. 6), sparse, (n_users, n_items)."""
        return with_values(ratings, confidence(ratings.data, self.config.alpha))

    def hidden_of(self, first_input: NDArray[np.float32]) -> NDArray[np.float32]:
        """The last hidden layer, given what enters the first, (n_users, n_hidden) both."""
        hidden = self.activation(first_input)
        for layer in range(self.config.n_layers - 1):
            U, b = self.weights[f"deep_weight.{layer}"], self.weights[f"deep_bias.{layer}"]
            hidden = self.activation(hidden @ U.T + b)
        return hidden

    def logits(self, ratings: csr_array, disliked: csr_array | None = None) -> NDArray[np.float32]:
        """Logit of a like of every item (Eq. 12, before the sigmoid).

        Args:
            ratings: Relative ratings, sparse, (n_users, n_items).
            disliked: As for `hidden`; the direct path hears of likes alone.

        Returns:
            (n_users, n_items).
        """
        hidden = self.hidden(ratings, disliked)
        logits = _rows_times(hidden, self.weights["output_weight"])
        logits += self.weights["output_bias"]
        if self.direct_weight is not None:
            add_direct(logits, ratings, self.direct_weight)
        return logits


def _rows_times(rows: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """`rows @ weights.T`, a few rows one by one.

    For a product of matrices BLAS first copies all of the weights into an order of its own, which
    takes longer than reading them three times.
    """
    if len(rows) > 3:
        return np.asarray(rows @ weights.T)
    products = np.empty((len(rows), len(weights)), dtype=np.result_type(rows, weights))
    for row, product in zip(rows, products, strict=True):
        np.dot(weights, row, out=product)
    return products
