"""The objective of the paper: the orderless, confidence-weighted likelihood (Eq. 14)."""

from __future__ import annotations

from typing import Any

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F


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
    if logits.shape[1] == 0:
        raise ValueError(f"need at least one target item, got 0 of {n_items}")
    loss: Tensor = _WeightedNLL.apply(logits, target_likes, n_items)
    return loss


class _WeightedNLL(torch.autograd.Function):
    """Loss and gradient together: fewer passes over the block than automatic derivatives take."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target_likes: csr_array, n_items: int) -> Tensor:
        n_users, n_targets = logits.shape
        scale = n_items / n_targets / n_users
        likes = target_likes.tocoo()
        pairs = (
            torch.from_numpy(likes.row.astype("int64")),
            torch.from_numpy(likes.col.astype("int64")),
        )
        confidence = torch.from_numpy(likes.data).to(logits.dtype)  # (n_pairs,)
        liked = logits[pairs]  # (n_pairs,)
        correction = confidence * F.softplus(-liked) - F.softplus(liked)
        # d softplus(z) / dz = sigmoid(z); of a like, d c softplus(-z) / dz = c (sigmoid(z) - 1)
        gradient = torch.sigmoid(logits)
        gradient[pairs] = confidence * (gradient[pairs] - 1.0)
        ctx.save_for_backward(gradient.mul_(scale))
        return scale * (F.softplus(logits).sum() + correction.sum())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0], None, None
