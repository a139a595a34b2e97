"""How strongly liked and disliked items enter the network (the c of Eq. 9, scaled)."""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.model.config import ModelConfig


def input_weight(context: csr_array, config: ModelConfig) -> NDArray[np.floating]:
    """What multiplies `like_weight` of each liked item: its confidence, scaled as configured.

    Args:
        context: Confidence of the liked items in the context, sparse, (n_users, n_items).
        config: For alpha and input_scale.

    Returns:
        (n_pairs,).
    """
    weight: NDArray[np.floating] = context.data
    if config.input_scale == "none":
        return weight
    weight = weight / (1.0 + config.alpha)
    if config.input_scale == "alpha":
        return weight
    n_users = context.shape[0]
    user_of = np.repeat(np.arange(n_users), np.diff(context.indptr))
    total = np.bincount(user_of, weight, minlength=n_users)  # (n_users,)
    return np.asarray(weight / np.sqrt(total[user_of]), dtype=weight.dtype)


def rescaling_without(context: csr_array, config: ModelConfig) -> NDArray[np.floating]:
    """What multiplies the input weights of the others if one liked item is left out.

    Only with `input_scale="history"` do the weights depend on each other.

    Args:
        context: Confidence of the liked items of one user, sparse, (1, n_items).
        config: For alpha and input_scale.

    Returns:
        One factor for each item left out, (n_pairs,); 0 where nothing else is left.
    """
    if context.nnz == 1:
        return np.zeros(1, dtype=context.dtype)
    if config.input_scale != "history":
        return np.ones(context.nnz, dtype=context.dtype)
    total = context.data.sum(dtype=np.float64)
    return np.asarray(np.sqrt(total / (total - context.data)), dtype=context.dtype)


def dislike_scale(config: ModelConfig) -> float:
    """What multiplies `dislike_weight`: 1 as printed in Eq. 9, else one over the items.

    The sum of A over the context has thousands of terms that move together, so one update of it
    would drown the rest. Dividing by the number of items makes it an average: the same model in
    other units.
    """
    return 1.0 if config.input_scale == "none" else 1.0 / config.n_items


def full_dislike(config: ModelConfig) -> float:
    """The confidence with which a dislike enters as strongly as a single like of rating 1.

    Such a like multiplies its row of W by 1 + alpha, or by 1 if inputs are scaled; a dislike
    multiplies its row of A by its confidence times `dislike_scale`.
    """
    surest_like = 1.0 + config.alpha if config.input_scale == "none" else 1.0
    return max(surest_like / dislike_scale(config), 1.0)


def with_values(matrix: csr_array, values: NDArray[np.floating]) -> csr_array:
    """The same pairs with other values, (n_pairs,)."""
    changed = copy(matrix)  # shallow: the constructor would check all pairs again
    changed.data = values
    return changed
