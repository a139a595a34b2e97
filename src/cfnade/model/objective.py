"""The objective of the paper: the orderless, confidence-weighted likelihood (Eq. 14)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from cfnade.model.ordering import Window
from cfnade.model.sparse import product, product_by_column

_PAIRS = 1024
_LOSS_USERS = 8  # of a batch, on whom the loss is looked at: softplus costs more than all else


def weighted_nll(logits: Tensor, target_likes: csr_array, n_items: int) -> Tensor:
    """Estimate the confidence-weighted negative log-likelihood from one split (Eq. 14).

    Nearly all targets are unobserved: like 0, confidence 1, a cost of softplus(logit). So all
    of them are summed that way, and the few likes are put right after it; no dense like or
    confidence array exists. Scaling by n_items / n_targets keeps the estimate unbiased for
    Eq. 11 averaged over orderings, so losses compare across splits.

    Args:
        logits: Before the sigmoid, (n_users, n_targets).
        target_likes: Confidence of the liked items among the targets, sparse,
            (n_users, n_targets).
        n_items: Number of all items.

    Returns:
        Mean loss per user, a scalar.

    Raises:
        ValueError: If no item is a target.
    """
    n_users, n_targets = logits.shape
    if n_targets == 0:
        raise ValueError(f"need at least one target item, got 0 of {n_items}")
    user, item, confidence = _pairs(target_likes, logits.dtype)
    liked = logits[user, item]  # (n_pairs,)
    correction = confidence * F.softplus(-liked) - F.softplus(liked)
    return n_items / n_targets / n_users * (F.softplus(logits).sum() + correction.sum())


@dataclass(frozen=True)
class OutputGradient:
    """What one split says of the output layer; summed over the targets, a mean over users."""

    loss: float
    """`weighted_nll`, estimated on some users of the batch."""

    hidden: Tensor
    """Its gradient by the hidden layer, (n_users, n_hidden)."""

    output_weight: Tensor
    """By V; rows are places, those of the context are 0, (n_items, n_hidden)."""

    output_bias: Tensor
    """By d, (n_items,)."""


class OutputLayer:
    """Gradients of the objective at the output, by hand: as few passes over it as can be had.

    The logits are made in one buffer, turned into their own gradient where they are
    (d softplus(z) / dz is sigmoid(z), and a like of confidence c has c (sigmoid(z) - 1)), and
    multiplied back. Equal to what automatic derivatives of `weighted_nll` give.
    """

    def __init__(self, output_weight: Tensor, output_bias: Tensor) -> None:
        self.V, self.d = output_weight.detach(), output_bias.detach()
        self._logits = self.V.new_empty(0)
        self._by_weight = torch.zeros_like(self.V)
        self._by_bias = torch.zeros_like(self.d)

    def gradient(
        self, hidden: Tensor, window: Window, target_likes: csr_array, zero_share: float = 1.0
    ) -> OutputGradient:
        """Loss and gradients of one split.

        Args:
            hidden: (n_users, n_hidden).
            window: The targets; items and the rows of V stand in its circle.
            target_likes: Confidence of the liked items among the targets, sparse,
                (n_users, n_targets).
            zero_share: Share of the targets on which unobserved items are looked at. Below 1 it
                is the first of them, whose order is random, weighted up: the expected gradient
                is the same, as all likes are kept.

        Returns:
            The gradients; their arrays are used again at the next call.
        """
        n_users = hidden.shape[0]
        n_zeros = max(1, math.ceil(zero_share * window.n_targets))
        zero_weight = window.n_targets / n_zeros
        scale = window.n_items / window.n_targets / n_users
        blocks = window.blocks(n_zeros)
        logits = self._buffer(n_zeros, n_users)  # (n_zeros, n_users): all products run in order
        for numbers, places in blocks:
            bias = self.d[places, None]
            torch.addmm(bias, self.V[places], hidden.T, out=logits[numbers])
        user, item, confidence = _pairs(target_likes, hidden.dtype)
        is_inside = item < n_zeros
        inside = (item[is_inside], user[is_inside])
        liked = logits[inside]
        loss = _sampled_loss(logits, zero_weight, inside[1], liked, confidence[is_inside])
        by_logits = logits.sigmoid_()
        if n_zeros < window.n_targets:
            by_logits *= zero_weight
        by_logits[inside] = confidence[is_inside] * (torch.sigmoid(liked) - 1.0)
        by_hidden = torch.zeros_like(hidden)
        rest = window.context_places if n_zeros == window.n_targets else [slice(None)]
        for places in rest:  # the others are written over
            self._by_weight[places].zero_()
            self._by_bias[places].zero_()
        for numbers, places in blocks:
            block, by_weight = by_logits[numbers], self._by_weight[places]
            by_hidden.addmm_(block.T, self.V[places], alpha=scale)
            torch.addmm(by_weight, block, hidden, beta=0, alpha=scale, out=by_weight)
            torch.sum(block, dim=1, out=self._by_bias[places])
        self._by_bias.mul_(scale)
        if n_zeros < window.n_targets:
            outside = ~is_inside
            place = (item[outside] + window.start) % window.n_items
            loss += self._add_likes(
                hidden, by_hidden, user[outside], place, confidence[outside], scale
            )
        return OutputGradient(
            loss * window.n_items / window.n_targets, by_hidden, self._by_weight, self._by_bias
        )

    def _add_likes(
        self,
        hidden: Tensor,
        by_hidden: Tensor,
        user: Tensor,
        place: Tensor,
        confidence: Tensor,
        scale: float,
    ) -> float:
        """Add the gradients of single likes outside the block; returns their loss per user."""
        n_users, n_items = hidden.shape[0], self.V.shape[0]
        logits = self.d[place]  # (n_pairs,)
        for pairs in torch.arange(len(user)).split(_PAIRS):  # few enough to stay in the cache
            logits[pairs] += (hidden[user[pairs]] * self.V[place[pairs]]).sum(dim=1)
        by_logits = scale * confidence * (torch.sigmoid(logits) - 1.0)
        ends = np.searchsorted(user.numpy(), np.arange(n_users + 1))  # users come in order
        by_pairs = csr_array((by_logits.numpy(), place.numpy(), ends), shape=(n_users, n_items))
        by_hidden += product(by_pairs, self.V)
        self._by_weight.index_add_(0, *product_by_column(by_pairs, hidden))
        self._by_bias.index_add_(0, place, by_logits)
        return float((confidence * F.softplus(-logits)).sum()) / n_users

    def _buffer(self, n_targets: int, n_users: int) -> Tensor:
        if self._logits.numel() < n_targets * n_users:
            self._logits = self.V.new_empty(n_targets * n_users)
        return self._logits[: n_targets * n_users].view(n_targets, n_users)


def _sampled_loss(
    logits: Tensor, zero_weight: float, user: Tensor, liked: Tensor, confidence: Tensor
) -> float:
    """Loss per user of the first few users of a batch, whose order is random; not yet scaled."""
    n_users = min(_LOSS_USERS, logits.shape[1])
    is_sampled = user < n_users
    liked, confidence = liked[is_sampled], confidence[is_sampled]
    zeros = F.softplus(logits[:, :n_users]).sum() - F.softplus(liked).sum()
    likes = (confidence * F.softplus(-liked)).sum()
    return float(zero_weight * zeros + likes) / n_users


def _pairs(likes: csr_array, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """User, item and confidence of each like, (n_pairs,) each."""
    user: NDArray[np.int64] = np.repeat(np.arange(likes.shape[0]), np.diff(likes.indptr))
    item = torch.from_numpy(likes.indices.astype(np.int64))
    return torch.from_numpy(user), item, torch.from_numpy(likes.data).to(dtype)
