"""The output layer (Eq. 10) and the objective: the orderless, confidence-weighted cost (Eq. 14)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from cfnade.model.ordering import Window

_LOSS_USERS = 8  # users on whom the loss is estimated: softplus costs more than all else


@dataclass(frozen=True)
class OutputGradient:
    """Loss and gradients of one split, summed over the targets, averaged over users."""

    loss: float
    """Eq. 14, estimated on some users of the batch."""

    hidden: Tensor
    """Gradient by the hidden layer, (n_users, n_hidden)."""

    output_weight: Tensor
    """By V; rows of the context are 0, (n_items, n_hidden)."""

    output_bias: Tensor
    """By d, (n_items,)."""


class OutputLayer:
    """Eq. 14 and its gradients, by hand, in as few passes over the logits as possible.

    With targets T of all items M, a batch of users and logits z = d + V h (Eq. 10), the cost is
    `M / |T| * mean over users of sum over T of c * cross_entropy(sigmoid(z), t)`.

    Nearly all targets are unobserved: like 0, confidence 1, cost softplus(z), gradient sigmoid(z).
    A like of confidence c costs c softplus(-z), with gradient c (sigmoid(z) - 1). So the logits
    are turned into sigmoids in place, and the few likes are overwritten; no dense array of likes
    or confidences exists.
    """

    def __init__(self, output_weight: Tensor, output_bias: Tensor) -> None:
        self.V, self.d = output_weight.detach(), output_bias.detach()
        self._logits = self.V.new_empty(0)
        self._by_weight = torch.zeros_like(self.V)
        self._by_bias = torch.zeros_like(self.d)

    def gradient(self, hidden: Tensor, window: Window, target_likes: csr_array) -> OutputGradient:
        """Compute the loss and the gradients of one split.

        Args:
            hidden: (n_users, n_hidden).
            window: The targets; the rows of V are in the order of the epoch.
            target_likes: Confidence of the liked targets, sparse, (n_users, n_targets).

        Returns:
            The gradients; the next call overwrites their arrays.
        """
        n_users, n_targets = hidden.shape[0], window.n_targets
        logits = self._buffer(n_targets, n_users)  # (n_targets, n_users): contiguous products
        for numbers, places in window.blocks():
            torch.addmm(self.d[places, None], self.V[places], hidden.T, out=logits[numbers])
        user, item, confidence = _pairs(target_likes, hidden.dtype)
        liked = logits[item, user]  # (n_pairs,)
        loss = _sampled_loss(logits, user, liked, confidence)
        by_logits = logits.sigmoid_()
        by_logits[item, user] = confidence * (torch.sigmoid(liked) - 1.0)
        scale = window.n_items / n_targets / n_users
        by_hidden = torch.zeros_like(hidden)
        for places in window.context_places:
            self._by_weight[places].zero_()
            self._by_bias[places].zero_()
        for numbers, places in window.blocks():
            block, by_weight = by_logits[numbers], self._by_weight[places]
            by_hidden.addmm_(block.T, self.V[places], alpha=scale)
            torch.addmm(by_weight, block, hidden, beta=0, alpha=scale, out=by_weight)
            torch.sum(block, dim=1, out=self._by_bias[places])
        self._by_bias.mul_(scale)
        loss *= window.n_items / n_targets
        return OutputGradient(loss, by_hidden, self._by_weight, self._by_bias)

    def _buffer(self, n_targets: int, n_users: int) -> Tensor:
        if self._logits.numel() < n_targets * n_users:
            self._logits = self.V.new_empty(n_targets * n_users)
        return self._logits[: n_targets * n_users].view(n_targets, n_users)


def _sampled_loss(logits: Tensor, user: Tensor, liked: Tensor, confidence: Tensor) -> float:
    """Loss per user of the first few users of a batch, whose order is random; not yet scaled."""
    n_users = min(_LOSS_USERS, logits.shape[1])
    is_sampled = user < n_users
    liked, confidence = liked[is_sampled], confidence[is_sampled]
    zeros = F.softplus(logits[:, :n_users]).sum() - F.softplus(liked).sum()
    likes = (confidence * F.softplus(-liked)).sum()
    return float(zeros + likes) / n_users


def _pairs(likes: csr_array, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """User, item and confidence of each like, (n_pairs,) each."""
    user: NDArray[np.int64] = np.repeat(np.arange(likes.shape[0]), np.diff(likes.indptr))
    item = torch.from_numpy(likes.indices.astype(np.int64))
    return torch.from_numpy(user), item, torch.from_numpy(likes.data).to(dtype)
