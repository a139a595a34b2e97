"""One random ordering's split of the items into context and targets, shared by a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def draw_context(n_items: int, share: float | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw the items that a step may look at; the others are its targets (Eq. 14).

    Only the set matters, not its order. With i uniform on 1..M there are i - 1 items in the
    context, so at least one target is always left.

    Args:
        n_items: M.
        share: Of the items in the context; None draws their number uniformly, as the paper does.
        rng: Source of randomness.

    Returns:
        True for the items in the context, (n_items,).
    """
    if share is None:
        n_context = int(rng.integers(n_items))
    else:
        n_context = min(round(share * n_items), n_items - 1)
    in_context = np.zeros(n_items, dtype=np.bool_)
    in_context[rng.permutation(n_items)[:n_context]] = True
    return in_context


def split_batch(batch: csr_array, in_context: NDArray[np.bool_]) -> tuple[csr_array, csr_array]:
    """Part a batch's likes into those in the context and those to predict.

    Args:
        batch: Confidence of the likes, sparse, (n_users, n_items).
        in_context: (n_items,).

    Returns:
        The context's likes, (n_users, n_items), and the targets' likes with the targets alone
        as columns, (n_users, n_targets).
    """
    n_users, n_items = batch.shape
    is_context = in_context[batch.indices]  # (n_pairs,)

    def part(keep: NDArray[np.bool_]) -> tuple[Any, Any, Any]:
        indptr = np.concatenate([[0], np.cumsum(keep)])[batch.indptr]
        return batch.data[keep], batch.indices[keep], indptr

    context = csr_array(part(is_context), shape=(n_users, n_items))
    data, items, indptr = part(~is_context)
    column_of = np.cumsum(~in_context) - 1  # (n_items,), meaningful for targets
    n_targets = int(n_items - in_context.sum())
    return context, csr_array((data, column_of[items], indptr), shape=(n_users, n_targets))
