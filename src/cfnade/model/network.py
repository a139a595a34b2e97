"""The network of the paper (Eq. 9, 10, 12 and 13) in torch, for training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from cfnade.model.config import ModelConfig
from cfnade.model.inputs import dislike_scale, input_weight, with_values

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "silu": F.silu,
    "identity": lambda x: x,
}


ITEM_WEIGHTS = ("like_weight", "dislike_weight", "output_weight", "output_bias")
"""Those with a row for each item."""


class CFNADENetwork(nn.Module):
    """p(like of an item | likes and confidences of the context), for all items at once.

    Item matrices hold one row per item, (n_items, n_hidden): the transpose of the paper's W, A.
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

    def hidden(self, context: csr_array, in_context: NDArray[np.bool_]) -> Tensor:
        """Hidden layer given a context (Eq. 9; Eq. 13 if the context is all items).

        Unobserved items have like 0 and confidence 1, so Eq. 9 is exactly
        `g(b + sum(A, context) + sum(c W - A, liked items in context))`: the first sum is one
        vector for the whole batch, and a user costs only the items they liked. Written plainly
        here, dense, for tests to compare with; training computes it in `InputLayer`.

        Args:
            context: Confidence of the liked items in the context, sparse, (n_users, n_items).
            in_context: Items whose likes are known, (n_items,).

        Returns:
            (n_users, n_hidden).
        """
        W, A = self.like_weight, self.dislike_weight
        weights = _dense(with_values(context, input_weight(context, self.config)), W)
        likes = _dense(with_values(context, np.ones_like(context.data)), A)
        known = torch.from_numpy(in_context).to(A.dtype)  # (n_items,)
        disliked = dislike_scale(self.config) * (known @ A - likes @ A)  # (n_users, n_hidden)
        return self.hidden_of(weights @ W + disliked)

    def hidden_of(self, entered: Tensor) -> Tensor:
        """The last hidden layer, given what enters the first but for its bias.

        Args:
            entered: (n_users, n_hidden).

        Returns:
            (n_users, n_hidden).
        """
        hidden = self.activation(self.hidden_bias + entered)
        for U, b in zip(self.deep_weight, self.deep_bias, strict=True):
            hidden = self.activation(F.linear(hidden, U, b))
        return hidden

    def logits(self, hidden: Tensor, targets: NDArray[np.int64] | None = None) -> Tensor:
        """Logit of a like of each target (Eq. 10 and 12, before the sigmoid).

        Args:
            hidden: (n_users, n_hidden).
            targets: Items to predict, (n_targets,); all items if None.

        Returns:
            (n_users, n_targets).
        """
        items = slice(None) if targets is None else torch.from_numpy(targets)
        return F.linear(hidden, self.output_weight[items], self.output_bias[items])


def _dense(matrix: csr_array, like: Tensor) -> Tensor:
    return torch.from_numpy(matrix.toarray()).to(like.dtype)
