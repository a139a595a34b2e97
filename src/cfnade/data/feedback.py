"""From relative ratings to what the model reads: like and confidence (Eq. 5 and 6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.checks import check_at_least


def check_alpha(alpha: float) -> None:
    """Refuse a rate of confidence that is not a finite number of at least 0."""
    check_at_least(0, alpha=alpha)


def confidence(relative_rating: NDArray[np.floating], alpha: float) -> NDArray[np.float32]:
    """How sure we are of a like (Eq. 6): `1 + alpha * relative_rating`.

    Only observed pairs are stored anywhere in this package, and those are exactly the likes
    (Eq. 5: like = 1 where the rating is above 0). What is not stored has like 0 and, as its
    rating is 0, a confidence of exactly 1.

    Args:
        relative_rating: In (0, 1] for observed pairs, any shape.
        alpha: Rate of confidence.

    Returns:
        At least 1, the same shape.

    Raises:
        ConfigError: If alpha is negative or not finite.
    """
    check_alpha(alpha)
    return (1.0 + alpha * relative_rating).astype(np.float32)


def popularity_logit(likes: csr_array) -> NDArray[np.float32]:
    """Logit of each item's share of watchers: what a model says that knows nothing of the user.

    Args:
        likes: Any matrix with a stored value for each like, (n_users, n_items); users without
            any do not count.

    Returns:
        (n_items,); finite for items that nobody or everybody watched, too.
    """
    n_users = int(np.count_nonzero(np.diff(likes.indptr)))
    return share_logit(np.bincount(likes.indices, minlength=likes.shape[1]), n_users)


def share_logit(n_watchers: NDArray[np.integer], n_users: int) -> NDArray[np.float32]:
    """Logit of a share of users, drawn in a little so that none and all have one as well.

    Args:
        n_watchers: At most `n_users`, any shape.
        n_users: Of whom they are a part.

    Returns:
        The same shape.
    """
    share = (n_watchers + 0.5) / (n_users + 1.0)
    return np.log(share / (1.0 - share)).astype(np.float32)
