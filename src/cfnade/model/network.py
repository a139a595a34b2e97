"""The network of the paper (Eq. 9, 10, 12 and 13) in torch, for training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cfnade.model.config import ModelConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "silu": F.silu,
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class Likes:
    """The liked items of a batch of users, one user after the other; all else is unobserved."""

    items: Tensor
    """Item of each pair, int64, (n_pairs,)."""

    users: Tensor
    """Row in the batch of each pair, ascending, int64, (n_pairs,)."""

    confidence: Tensor
    """Confidence of each pair, (n_pairs,)."""

    n_users: int
    """Rows in the batch, those without a pair included."""

    def where(self, keep: Tensor) -> Likes:
        """The pairs to keep (boolean, (n_pairs,)), for the same users."""
        return Likes(self.items[keep], self.users[keep], self.confidence[keep], self.n_users)


class CFNADENetwork(nn.Module):
    """p(like of an item | likes and confidences of the context), for all items at once.

    Item matrices hold one row per item, (n_items, n_hidden): the transpose of the paper's W, A.
    """

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        n_items, n_hidden = config.n_items, config.n_hidden

        def normal(*shape: int, std: float) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).normal_(0.0, std, generator=generator))

        self.like_weight = normal(n_items, n_hidden, std=n_hidden**-0.5)  # W
        self.dislike_weight = nn.Parameter(torch.zeros(n_items, n_hidden))  # A
        self.hidden_bias = nn.Parameter(torch.zeros(n_hidden))  # b
        self.output_weight = normal(n_items, n_hidden, std=0.1 * n_hidden**-0.5)  # V
        self.output_bias = nn.Parameter(torch.zeros(n_items))  # d
        self.deep_weight = nn.ParameterList(
            normal(n_hidden, n_hidden, std=n_hidden**-0.5) for _ in range(config.n_layers - 1)
        )
        self.deep_bias = nn.ParameterList(
            torch.zeros(n_hidden) for _ in range(config.n_layers - 1)
        )
        self.activation = ACTIVATIONS[config.activation]

    def hidden(self, context_likes: Likes, in_context: Tensor, dropout: Tensor | None = None) -> Tensor:
        """Hidden layer given a context (Eq. 9; Eq. 13 if the context is all items).

        Unobserved items have like 0 and confidence 1, so Eq. 9 is exactly
        `g(b + sum(A, context) + sum(c W - A, liked items in context))`: the first sum is one
        vector for the whole batch, and a user costs only the items they liked.

        Args:
            context_likes: The users' liked items in the context.
            in_context: Items whose likes are known, boolean, (n_items,).
            dropout: Factor on each unit of the last layer, (n_users, n_hidden).

        Returns:
            (n_users, n_hidden).
        """
        W, A = self.like_weight, self.dislike_weight
        weight = input_weight(context_likes, self.config)  # (n_pairs,)
        offsets = _offsets(context_likes)
        liked_W = F.embedding_bag(
            context_likes.items, W, offsets, mode="sum",
            per_sample_weights=weight, include_last_offset=True,
        )  # (n_users, n_hidden)  # fmt: skip
        liked_A = F.embedding_bag(
            context_likes.items, A, offsets, mode="sum", include_last_offset=True
        )
        context_A = in_context.to(A.dtype) @ A  # (n_hidden,)
        hidden = self.activation(self.hidden_bias + context_A + liked_W - liked_A)
        for U, b in zip(self.deep_weight, self.deep_bias, strict=True):
            hidden = self.activation(F.linear(hidden, U, b))
        return hidden if dropout is None else hidden * dropout

    def logits(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        """Logit of a like of each target (Eq. 10 and 12, before the sigmoid).

        Args:
            hidden: (n_users, n_hidden).
            targets: Items to predict, int64, (n_targets,); all items if None.

        Returns:
            (n_users, n_targets).
        """
        V, d = self.output_weight, self.output_bias
        if targets is not None:
            V, d = V[targets], d[targets]
        return F.linear(hidden, V, d)


def input_weight(likes: Likes, config: ModelConfig) -> Tensor:
    """What multiplies `like_weight` of each liked item: its confidence, scaled as configured.

    Args:
        likes: The users' liked items in the context.
        config: For alpha and input_scale.

    Returns:
        (n_pairs,).
    """
    if config.input_scale == "none":
        return likes.confidence
    weight = likes.confidence / (1.0 + config.alpha)
    if config.input_scale == "alpha":
        return weight
    total = torch.zeros(likes.n_users, dtype=weight.dtype).index_add_(0, likes.users, weight)
    return weight * total.rsqrt()[likes.users]


def _offsets(likes: Likes) -> Tensor:
    """Where each user's pairs start, and the end of the last: int64, (n_users + 1,)."""
    return torch.searchsorted(likes.users, torch.arange(likes.n_users + 1))
