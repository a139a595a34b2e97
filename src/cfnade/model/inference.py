"""The trained network in numpy (Eq. 12 and 13): all that serving needs, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.feedback import confidence
from cfnade.model.config import ModelConfig
from cfnade.model.direct import likes_of
from cfnade.model.inputs import dislike_scale, input_weight


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

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self.config = config
        self.weights = dict(weights)
        self.activation = ACTIVATIONS[config.activation]
        # With all items as context, Eq. 13's sum over A is the same for every user.
        all_disliked = dislike_scale(config) * weights["dislike_weight"].sum(axis=0)
        self.empty_input: NDArray[np.float32] = weights["hidden_bias"] + all_disliked

    def hidden(self, ratings: csr_array) -> NDArray[np.float32]:
        """Hidden layer of each history (Eq. 13), at the cost of the items in it.

        Args:
            ratings: Relative ratings, sparse, (n_users, n_items).

        Returns:
            (n_users, n_hidden).
        """
        pairs = (ratings.indices, ratings.indptr)
        context = csr_array((confidence(ratings.data, self.config.alpha), *pairs), ratings.shape)
        weights = csr_array((input_weight(context, self.config), *pairs), ratings.shape)
        scale = np.full(ratings.nnz, dislike_scale(self.config), dtype=np.float32)
        likes = csr_array((scale, *pairs), ratings.shape)
        W, A = self.weights["like_weight"], self.weights["dislike_weight"]
        hidden = self.activation(self.empty_input + weights @ W - likes @ A)
        for layer in range(self.config.n_layers - 1):
            U, b = self.weights[f"deep_weight.{layer}"], self.weights[f"deep_bias.{layer}"]
            hidden = self.activation(hidden @ U.T + b)
        return hidden

    def logits(self, ratings: csr_array) -> NDArray[np.float32]:
        """Logit of a like of every item (Eq. 12, before the sigmoid).

        Args:
            ratings: Relative ratings, sparse, (n_users, n_items).

        Returns:
            (n_users, n_items).
        """
        logits: NDArray[np.float32] = self.hidden(ratings) @ self.weights["output_weight"].T
        logits += self.weights["output_bias"]
        if self.config.direct:
            direct = likes_of(ratings) @ self.weights["direct_weight"]
            logits += direct * self.weights["direct_scale"]
        return logits
