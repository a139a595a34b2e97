"""What the network would say without one entry of a history: exact, for all entries at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.model.inference import NumpyNetwork
from cfnade.model.inputs import dislike_scale, input_weight, rescaling_without


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The logit of one item with the whole history, and without each entry of it."""

    logit: float
    """With all of it."""

    without_liked: NDArray[np.float32]
    """Without each liked item, in the order of the ratings, (n_liked,)."""

    without_disliked: NDArray[np.float32]
    """Without each disliked item, in their order, (n_disliked,)."""


def leave_one_out(
    network: NumpyNetwork, ratings: csr_array, item: int, disliked: csr_array | None = None
) -> LeaveOneOut:
    """Take each entry out of a history in turn, in one pass over it.

    Args:
        network: The trained network.
        ratings: Relative ratings of one user, sparse, (1, n_items).
        item: Column of the item whose logit is asked for.
        disliked: Confidence of disliked items as in `NumpyNetwork.hidden`, sparse, (1, n_items).

    Returns:
        The logits.
    """
    logits = logits_without_each(network, ratings, np.array([item]), disliked)[:, 0]
    n_liked = ratings.nnz
    return LeaveOneOut(float(logits[0]), logits[1 : 1 + n_liked], logits[1 + n_liked :])


def logits_without_each(
    network: NumpyNetwork,
    ratings: csr_array,
    items: NDArray[np.integer],
    disliked: csr_array | None = None,
) -> NDArray[np.float32]:
    """Logits of some items with the whole history, and without each entry of it.

    What enters the hidden layer is a sum over the history (Eq. 13), so an entry is taken out by
    subtracting its own term, `c W - A` of a like or `(c - 1) A` of a dislike. What is left is one
    more activation for each entry, and one product with the rows of V, whatever the items.

    Args:
        network: The trained network.
        ratings: Relative ratings of one user, sparse, (1, n_items).
        items: Columns of the items whose logits are asked for, (n_asked,).
        disliked: Confidence of disliked items as in `NumpyNetwork.hidden`, sparse, (1, n_items).

    Returns:
        With the whole history, without each like and then without each dislike, in their order,
        (1 + n_liked + n_disliked, n_asked).
    """
    whole = network.first_input(ratings, disliked)  # (1, n_hidden)
    A = network.weights["dislike_weight"]
    A_scale = np.float32(dislike_scale(network.config))
    inputs = [whole, _without_each_like(network, ratings, whole[0])]
    if disliked is not None:
        share = (A_scale * (disliked.data - 1.0)).astype(np.float32)  # (n_disliked,)
        inputs.append(whole - share[:, None] * A[disliked.indices])
    hidden = network.hidden_of(np.concatenate(inputs))  # (1 + n_liked + n_disliked, n_hidden)
    logits: NDArray[np.float32] = hidden @ network.weights["output_weight"][items].T
    logits += network.weights["output_bias"][items]
    if network.direct_weight is not None:
        from_each = network.direct_weight[ratings.indices][:, items].toarray()  # (n_liked, n_asked)
        logits += from_each.sum(axis=0)
        logits[1 : 1 + ratings.nnz] -= from_each
    return logits


def _without_each_like(
    network: NumpyNetwork, ratings: csr_array, whole: NDArray[np.float32]
) -> NDArray[np.float32]:
    """What enters the first layer without each liked item, (n_liked, n_hidden)."""
    context = network.context(ratings)
    weight = input_weight(context, network.config).astype(np.float32)  # (n_liked,)
    W = network.weights["like_weight"][ratings.indices]  # (n_liked, n_hidden)
    A = network.weights["dislike_weight"][ratings.indices]
    A_scale = np.float32(dislike_scale(network.config))
    liked = weight @ W  # (n_hidden,): the sum of all likes
    others = rescaling_without(context, network.config)[:, None] * (liked - weight[:, None] * W)
    return np.asarray((whole - liked) + others + A_scale * A, dtype=np.float32)
