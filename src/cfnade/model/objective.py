"""The objective of the paper: the orderless, confidence-weighted likelihood (Eq. 14)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from cfnade.model.network import Likes


def weighted_nll(logits: Tensor, target_likes: Likes, columns: Tensor, n_items: int) -> Tensor:
    """Estimate the confidence-weighted negative log-likelihood from one split (Eq. 14).

    Nearly all targets are unobserved: like 0, confidence 1, a cost of softplus(logit). So all
    of them are summed that way, and the few likes are put right after it; no dense like or
    confidence array exists. Scaling by n_items / n_targets keeps the estimate unbiased for
    Eq. 11 averaged over orderings, so losses compare across splits.

    Args:
        logits: Before the sigmoid, (n_users, n_targets).
        target_likes: The users' liked items among the targets.
        columns: Column in `logits` of each of these pairs, int64, (n_pairs,).
        n_items: Number of all items.

    Returns:
        Mean loss per user, a scalar.

    Raises:
        ValueError: If no item is a target.
    """
    n_users, n_targets = logits.shape
    if n_targets == 0:
        raise ValueError(f"need at least one target item, got 0 of {n_items}")
    as_if_none = F.softplus(logits).sum()  # -log p(like = 0)
    liked = logits[target_likes.users, columns]  # (n_pairs,)
    correction = target_likes.confidence * F.softplus(-liked) - F.softplus(liked)
    return (n_items / n_targets) * (as_if_none + correction.sum()) / n_users
