"""The best items of each row of scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def top_items(
    scores: NDArray[np.floating], n: int, allowed: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """The n best allowed items, best first; equal scores in the order of items.

    Args:
        scores: Of all items, (n_items,).
        n: At most so many; fewer if fewer are allowed.
        allowed: Items that may be recommended, (n_items,); all if None.

    Returns:
        Item columns, (at most n,).
    """
    columns = np.arange(scores.size) if allowed is None else np.flatnonzero(allowed)
    if 0 < n < columns.size:
        values = scores[columns]
        threshold = np.partition(values, columns.size - n)[columns.size - n]  # the n-th best
        columns = columns[values >= threshold]
    order = np.argsort(-scores[columns], kind="stable")
    return columns[order[:n]]
