"""From relative ratings to the model's input: like and confidence (Eq. 5 and 6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.checks import check_at_least


def check_alpha(alpha: float) -> None:
    """Refuse a rate of confidence that is not a finite number of at least 0."""
    check_at_least(0, alpha=alpha)


def confidence(relative_rating: NDArray[np.floating], alpha: float) -> NDArray[np.float32]:
    """Confidence of a like (Eq. 6): `1 + alpha * relative_rating`.

    Only observed pairs are stored, and those are exactly the likes (Eq. 5: like = 1 where the
    rating is above 0). A pair that is not stored has like 0 and confidence 1.

    Args:
        relative_rating: In (0, 1] for observed pairs, any shape.
        alpha: Rate of confidence, at least 0.

    Returns:
        At least 1, the same shape.
    """
    check_alpha(alpha)
    return (1.0 + alpha * relative_rating).astype(np.float32)


def popularity_logit(likes: csr_array) -> NDArray[np.float32]:
    """Logit of each item's share of users: the score without any knowledge of the user.

    Args:
        likes: A stored value for each like, (n_users, n_items). Empty rows do not count.

    Returns:
        Finite, (n_items,).
    """
    n_users = int(np.count_nonzero(np.diff(likes.indptr)))
    return share_logit(np.bincount(likes.indices, minlength=likes.shape[1]), n_users)


def share_logit(n_watchers: NDArray[np.integer], n_users: int) -> NDArray[np.float32]:
    """Logit of a share of users, smoothed so that it is finite for none and for all."""
    share = (n_watchers + 0.5) / (n_users + 1.0)
    return np.log(share / (1.0 - share)).astype(np.float32)
