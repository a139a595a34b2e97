"""The way in, for training: what enters the hidden layer, and its gradients by hand."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from cfnade.model.config import ModelConfig
from cfnade.model.exchange import Alone, Exchange
from cfnade.model.inputs import dislike_scale, input_weight, with_values
from cfnade.model.ordering import Window
from cfnade.model.sparse import product, product_by_column


class InputLayer:
    """`sum(w W, liked) + s (sum(A, context) - sum(A, liked))`: Eq. 9 but for the bias.

    The sum over the context is one vector for the batch, so a user costs the items they liked.
    Gradients go to arrays that are used again: fresh ones of this size cost more than what is
    written to them.
    """

    def __init__(self, like_weight: Tensor, dislike_weight: Tensor, config: ModelConfig) -> None:
        self.W, self.A = like_weight.detach(), dislike_weight.detach()
        self.config = config
        self._by_W, self._by_A = torch.zeros_like(self.W), torch.zeros_like(self.A)

    def forward(self, context: csr_array, window: Window) -> Tensor:
        """What enters the hidden layer.

        Args:
            context: Confidence of the liked items in the context, sparse, (n_users, n_items).
            window: The targets; items and rows of W and A stand in its circle.

        Returns:
            (n_users, n_hidden).
        """
        scale = dislike_scale(self.config)
        self._window = window
        self._weights = with_values(context, input_weight(context, self.config))
        self._likes = with_values(context, np.full(context.nnz, scale, dtype=context.data.dtype))
        entered = product(self._weights, self.W) - product(self._likes, self.A)
        for places in window.context_places:
            entered += scale * self.A[places].sum(dim=0)
        return entered

    def gradient(self, by_input: Tensor, exchange: Exchange | None = None) -> dict[str, Tensor]:
        """Gradients by the weights, given that by what `forward` returned.

        Args:
            by_input: (n_users, n_hidden).
            exchange: Adds up the gradients of several processes; None is alone.

        Returns:
            By W and A, (n_items, n_hidden) each; the arrays are used again at the next call.
        """
        exchange = exchange or Alone()
        everyone = dislike_scale(self.config) * by_input.sum(dim=0)  # (n_hidden,)
        exchange.add_up([everyone])
        liked, by_weighted = product_by_column(self._weights, by_input)
        _, by_liked = product_by_column(self._likes, by_input)
        liked, (by_weighted, by_liked) = exchange.add_up_rows(
            liked, [by_weighted, by_liked], len(self.W)
        )
        self._by_W.zero_()
        self._by_W.index_copy_(0, liked, by_weighted)
        for places in self._window.target_places:
            self._by_A[places].zero_()
        for places in self._window.context_places:
            self._by_A[places] = everyone
        self._by_A.index_copy_(0, liked, everyone - by_liked)
        return {"like_weight": self._by_W, "dislike_weight": self._by_A}
