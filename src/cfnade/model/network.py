"""The network of the paper in torch, for training: its weights, and the hidden layer (Eq. 9)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from cfnade.model.batches import Exchange
from cfnade.model.config import ModelConfig
from cfnade.model.inference import dislike_scale, input_weights, with_values
from cfnade.model.ordering import Window

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "silu": F.silu,
    "identity": lambda x: x,
}

ITEM_WEIGHTS = ("like_weight", "dislike_weight", "output_weight", "output_bias")
"""Weights with one row per item."""


class CFNADENetwork(nn.Module):
    """Holds all weights, and computes the hidden layers from the input sums of Eq. 9.

    Item matrices hold one row per item, (n_items, n_hidden): the transpose of the paper's W, A.
    `InputLayer` computes the sum of Eq. 9, and `OutputLayer` Eq. 10 with its cost, Eq. 14.
    """

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        n_items, n_hidden = config.n_items, config.n_hidden
        n_deep = config.n_layers - 1

        def normal(*shape: int, std: float) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).normal_(0.0, std, generator=generator))

        self.like_weight = normal(n_items, n_hidden, std=n_hidden**-0.5)  # W
        self.dislike_weight = nn.Parameter(torch.zeros(n_items, n_hidden))  # A
        self.hidden_bias = nn.Parameter(torch.zeros(n_hidden))  # b
        self.output_weight = normal(n_items, n_hidden, std=0.1 * n_hidden**-0.5)  # V
        self.output_bias = nn.Parameter(torch.zeros(n_items))  # d
        self.deep_weight = nn.ParameterList(
            normal(n_hidden, n_hidden, std=n_hidden**-0.5) for _ in range(n_deep)
        )
        self.deep_bias = nn.ParameterList(torch.zeros(n_hidden) for _ in range(n_deep))
        self.activation = ACTIVATIONS[config.activation]

    def hidden_of(self, entered: Tensor) -> Tensor:
        """The last hidden layer, given the sums of Eq. 9 without the bias.

        Args:
            entered: (n_users, n_hidden).

        Returns:
            (n_users, n_hidden).
        """
        hidden = self.activation(self.hidden_bias + entered)
        for U, b in zip(self.deep_weight, self.deep_bias, strict=True):
            hidden = self.activation(F.linear(hidden, U, b))
        return hidden


class InputLayer:
    """The sums of Eq. 9 and their gradients, by hand.

    Unobserved items have like 0 and confidence 1, so Eq. 9 is exactly
    `g(b + sum(A, context) + sum(c W - A, liked items in context))`. The first sum is one vector for
    the whole batch, so a user costs only the items they liked. A known dislike has like 0 and a
    confidence above 1: it adds `(c - 1) A`. Gradient arrays are reused: allocating arrays of this
    size takes longer than filling them.
    """

    def __init__(self, like_weight: Tensor, dislike_weight: Tensor, config: ModelConfig) -> None:
        self.W, self.A = like_weight.detach(), dislike_weight.detach()
        self.config = config
        self._by_W, self._by_A = torch.zeros_like(self.W), torch.zeros_like(self.A)

    def forward(self, context: csr_array, window: Window) -> Tensor:
        """Sum what enters the hidden layer.

        Args:
            context: Confidence of the liked items in the context, -c for a dislike with confidence
                c, sparse, (n_users, n_items).
            window: The targets; the rows of W and A are in the order of the epoch.

        Returns:
            (n_users, n_hidden).
        """
        self._window = window
        by_W, less_A = input_weights(context, self.config)
        self._weights, self._less = with_values(context, by_W), with_values(context, less_A)
        entered = product(self._weights, self.W) - product(self._less, self.A)
        for places in window.context_places:
            entered += dislike_scale(self.config) * self.A[places].sum(dim=0)
        return entered

    def gradient(self, by_input: Tensor, exchange: Exchange | None = None) -> dict[str, Tensor]:
        """Backpropagate to the weights.

        Args:
            by_input: Gradient by what `forward` returned, (n_users, n_hidden).
            exchange: Adds up the gradients of several processes; None is alone.

        Returns:
            By W and A, (n_items, n_hidden) each; only the rows of the context count, and the next
            call overwrites them.
        """
        exchange = exchange or Exchange()
        everyone = dislike_scale(self.config) * by_input.sum(dim=0)  # (n_hidden,)
        exchange.add_up([everyone])
        known, by_weighted = product_by_column(self._weights, by_input)
        _, by_less = product_by_column(self._less, by_input)
        known, (by_weighted, by_less) = exchange.add_up_rows(
            known, [by_weighted, by_less], len(self.W)
        )
        for places in self._window.context_places:
            self._by_W[places].zero_()
            self._by_A[places] = everyone
        self._by_W.index_copy_(0, known, by_weighted)
        self._by_A.index_copy_(0, known, everyone - by_less)
        return {"like_weight": self._by_W, "dislike_weight": self._by_A}


def product(matrix: csr_array, dense: Tensor) -> Tensor:
    """`matrix @ dense` of (n_rows, n_columns) and (n_columns, n_hidden)."""
    return sum_rows(matrix.indices, matrix.indptr[:-1], matrix.data, dense)


def product_by_column(matrix: csr_array, dense: Tensor) -> tuple[Tensor, Tensor]:
    """`matrix.T @ dense`, without the rows that are zero.

    Args:
        matrix: (n_rows, n_columns).
        dense: (n_rows, n_hidden).

    Returns:
        The columns with any value, (n_used,), and their rows of the product, (n_used, n_hidden).
    """
    by_column = matrix.tocsc()
    used = np.flatnonzero(np.diff(by_column.indptr))
    rows = sum_rows(by_column.indices, by_column.indptr[used], by_column.data, dense)
    return torch.from_numpy(used), rows


def sum_rows(
    rows: NDArray[np.integer],
    starts: NDArray[np.integer],
    weights: NDArray[np.floating],
    dense: Tensor,
) -> Tensor:
    """Weighted sums of runs of rows; torch's embedding bags do this fast."""
    return F.embedding_bag(
        torch.from_numpy(rows.astype(np.int64)),
        dense,
        torch.from_numpy(starts.astype(np.int64)),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights).to(dense.dtype),
    )
