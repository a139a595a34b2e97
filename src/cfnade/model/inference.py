"""The trained network in numpy (Eq. 12 and 13): all that answering needs, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating, confidence, likes_alone
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


def input_weights(
    context: csr_array, config: ModelConfig
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """What multiplies W of each known pair, and how much less than an unobserved one it gets of A.

    A like adds `c W - A` to the sum of A over the context, and a dislike `(c - 1) A`. Where inputs
    are scaled, c is divided by 1 + alpha for both, and A by the number of items. Dislikes do not
    change the weights of likes.

    Args:
        context: Confidence of the liked items in the context, -c for a dislike with confidence c,
            sparse, (n_users, n_items).
        config: For alpha and input_scale.

    Returns:
        (n_pairs,) each.
    """
    less_A = np.full(context.nnz, dislike_scale(config), dtype=context.data.dtype)
    is_disliked = context.data < 0
    if not is_disliked.any():
        return input_weight(context, config), less_A
    by_W = np.zeros_like(less_A)
    by_W[~is_disliked] = input_weight(likes_alone(context), config)
    unit = 1.0 if config.input_scale == "none" else 1.0 + config.alpha
    less_A[is_disliked] += context.data[is_disliked] / unit
    return by_W, less_A


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


def sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 / (1 + exp(-x)), without overflow for large negative x."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)), dtype=x.dtype)


ACTIVATIONS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}

RowSums: TypeAlias = Callable[[csr_array, NDArray[np.floating], str], NDArray[Any]]
"""The product of a sparse matrix, (n_users, n_items), whose values are given, (n_pairs,), with the
weights of a name, (n_items, n_hidden)."""

_FEW = 7  # histories up to which overheads count; see `_rows_times`
_BLOCK_BYTES = 1 << 19  # of weights that stay in the cache


class NumpyNetwork:
    """Runs the network on histories of any users."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[Any]]) -> None:
        self.config = config
        self.weights = dict(weights)
        self.activation = ACTIVATIONS[config.activation]
        # With all items as context, Eq. 13's sum over A is the same for every user.
        all_disliked = dislike_scale(config) * weights["dislike_weight"].sum(axis=0)
        self.empty_input: NDArray[np.float32] = weights["hidden_bias"] + all_disliked
        self.bias: NDArray[np.float32] = weights["output_bias"]
        """d, and the trend of each item if the readout has one, (n_items,)."""
        if "trend" in weights:
            self.bias = self.bias + weights["trend"]
        nothing = np.zeros(config.n_hidden, dtype=np.float32)
        self.mean_hidden: NDArray[np.float32] = weights.get("mean_hidden", nothing)
        """Of the users it was trained on, (n_hidden,), if items have features; else zeros."""
        self.direct_weight: csr_array | None = None
        """B: what a like of the row's item adds to the logit of the column's."""
        if config.n_neighbours:
            self.direct_weight = direct_weight(weights["neighbours"], weights["neighbour_weight"])

    def hidden(self, ratings: csr_array, disliked: csr_array | None = None) -> NDArray[np.float32]:
        """Hidden layer of each history (Eq. 13), at the cost of the items in it.

        Args:
            ratings: Relative ratings, -1 for full dislikes, sparse, (n_users, n_items).
            disliked: Confidence, at least 1, of more items known to be disliked, none of them
                among the ratings, sparse, (n_users, n_items). With like 0 and confidence c such an
                item gives Eq. 13 `c A` instead of A; 1 is the same as unobserved. A rating of -1
                is the same as the confidence `full_dislike`.

        Returns:
            (n_users, n_hidden).
        """
        return self.hidden_of(self.first_input(ratings, disliked))

    def first_input(
        self,
        ratings: csr_array,
        disliked: csr_array | None = None,
        row_sums: RowSums | None = None,
    ) -> NDArray[np.float32]:
        """What the first hidden layer is the activation of.

        Args:
            ratings: As for `hidden`, like the next.
            disliked: None for none.
            row_sums: Adds up rows of weights; None for our own.

        Returns:
            (n_users, n_hidden).
        """
        row_sums = row_sums or self._row_sums
        by_W, less_A = input_weights(self.context(ratings), self.config)  # (n_pairs,) each
        first: NDArray[np.float32] = self.empty_input + row_sums(ratings, by_W, "like_weight")
        first -= row_sums(ratings, less_A, "dislike_weight")
        if disliked is not None:
            # Not normalised by `input_scale`: that sums over the liked items alone.
            A_scale = dislike_scale(self.config)
            more = with_values(disliked, (A_scale * (disliked.data - 1.0)).astype(np.float32))
            first += more @ self.weights["dislike_weight"]
        return first

    def context(self, ratings: csr_array) -> csr_array:
        """Confidence of the liked items (Eq. 6), -c of dislikes, sparse, (n_users, n_items)."""
        return with_values(ratings, confidence(ratings.data, self.config.alpha))

    def hidden_of(self, first_input: NDArray[np.float32]) -> NDArray[np.float32]:
        """The last hidden layer, given what enters the first, (n_users, n_hidden) both."""
        hidden = self.activation(first_input)
        for layer in range(self.config.n_layers - 1):
            U, b = self.weights[f"deep_weight.{layer}"], self.weights[f"deep_bias.{layer}"]
            hidden = self.activation(hidden @ U.T + b)
        return hidden

    def logits(self, ratings: csr_array, disliked: csr_array | None = None) -> NDArray[np.float32]:
        """Logit of a like of every item (Eq. 12, before the sigmoid).

        Args:
            ratings: As for `hidden`; the direct path uses likes only.
            disliked: As for `hidden`.

        Returns:
            (n_users, n_items).
        """
        hidden = self.hidden(ratings, disliked)
        logits = self.output(hidden)
        logits += self.bias
        if self.direct_weight is not None:
            logits += self.direct(ratings)
        return logits

    def direct(self, ratings: csr_array) -> NDArray[np.float32]:
        """What the direct path adds to the logits, (n_users, n_items)."""
        if self.direct_weight is None:
            return np.zeros(ratings.shape, dtype=np.float32)
        return direct_path(ratings, self.direct_weight)

    def direct_terms(self, ratings: csr_array) -> csr_array:
        """What each like adds to the logits, sparse with repeated entries, (n_users, n_items)."""
        if self.direct_weight is None:
            return csr_array(ratings.shape, dtype=np.float32)
        return direct_terms(ratings, self.direct_weight)

    def _row_sums(self, pairs: csr_array, values: NDArray[np.floating], name: str) -> NDArray[Any]:
        return _row_sums(pairs, values, self.weights[name])

    def output(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """`V h` of each history, (n_users, n_items)."""
        return _rows_times(hidden, self.weights["output_weight"])


@dataclass(frozen=True)
class NetworkScorer:
    """A network with the ratings it was trained on: a `Scorer`."""

    network: NumpyNetwork
    relative_rating: RelativeRating

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Logits of a like of every item, (n_users, n_items); of a repeat for those of a history.

        Without a model of repeats (`beyond/repeats.py`) the scores of a history's items are not
        trained. A count below 0 is a dislike.
        """
        scores = self.network.logits(self.relative_rating.transform(histories))
        if (of_repeats := self.repeat_scores(histories)) is not None:
            rows = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
            scores[rows, histories.indices] = of_repeats
        return scores

    def repeat_scores(self, histories: CountMatrix) -> NDArray[np.float32] | None:
        """Score of a repeat of each item of a history, (n_pairs,); None without such a model.

        A dislike is scored as a count of 0.
        """
        if "repeat_bias" not in self.network.weights:
            return None
        bias, weight = (self.network.weights[f"repeat_{name}"] for name in ("bias", "weight"))
        counts = np.maximum(histories.data, 0.0)
        return np.asarray(bias[histories.indices] + weight * np.log1p(counts), np.float32)

    def hidden(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Hidden layers, (n_users, n_hidden)."""
        return self.network.hidden(self.relative_rating.transform(histories))


def direct_weight(neighbours: NDArray[np.int64], weight: NDArray[np.float32]) -> csr_array:
    """B as a sparse matrix: row is the item of the history, column the one predicted.

    Args:
        neighbours: Neighbours of each item, (n_items, n_neighbours).
        weight: Their weights, (n_items, n_neighbours).

    Returns:
        (n_items, n_items).
    """
    is_set = weight != 0
    ends = np.concatenate([[0], np.cumsum(is_set.sum(axis=1))])
    kept = (weight[is_set], neighbours[is_set], ends)
    B = csr_array(kept, shape=(len(weight), len(weight))).T.tocsr()
    if B.nnz <= np.iinfo(np.int32).max:  # half the indices to read
        B.indices, B.indptr = B.indices.astype(np.int32), B.indptr.astype(np.int32)
    return B


def direct_path(liked: csr_array, weight: csr_array) -> NDArray[np.float32]:
    """What the direct path adds: `likes @ B`, four times as fast as the sparse product.

    Args:
        liked: Each value above 0 is a like; those below, dislikes, are not used,
            (n_users, n_items).
        weight: B, (n_items, n_items).

    Returns:
        (n_users, n_items).
    """
    return np.asarray(direct_terms(liked, weight).toarray())


def direct_terms(liked: csr_array, weight: csr_array) -> csr_array:
    """The terms of `likes @ B`: the rows of B that a user likes, one after the other.

    A product of sparse matrices first finds its pattern. Here entries are repeated, and making
    them dense adds them up. Arguments are those of `direct_path`.
    """
    liked = likes_alone(liked)
    said = weight[liked.indices]  # (n_pairs, n_items)
    return csr_array((said.data, said.indices, said.indptr[liked.indptr]), shape=liked.shape)


def rows_between(matrix: csr_array, rows: slice) -> csr_array:
    """Some rows, without copying them."""
    part = copy(matrix)  # shallow: slicing and the constructor copy
    start, end = matrix.indptr[[rows.start, rows.stop]]
    part.data, part.indices = matrix.data[start:end], matrix.indices[start:end]
    part.indptr = matrix.indptr[rows.start :] - start
    part.resize((rows.stop - rows.start, matrix.shape[1]))
    return part


def _row_sums(
    pairs: csr_array, values: NDArray[np.floating], weights: NDArray[np.float32]
) -> NDArray[np.floating]:
    """The product of a sparse matrix with a dense one; for a few users without building the former.

    Args:
        pairs: Where its values are, sparse, (n_users, n_items).
        values: Its values, (n_pairs,).
        weights: (n_items, n_hidden).

    Returns:
        (n_users, n_hidden).
    """
    if pairs.shape[0] > _FEW:
        return np.asarray(with_values(pairs, values) @ weights)
    places = [slice(*ends) for ends in pairwise(pairs.indptr.tolist())]
    sums = np.zeros((len(places), weights.shape[1]), np.result_type(values, weights))
    for total, place in zip(sums, places, strict=True):
        np.dot(values[place], weights[pairs.indices[place]], out=total)
    return sums


def _rows_times(rows: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """`rows @ weights.T`, for a few rows a block of weights at a time.

    For a product of matrices BLAS first copies all weights into an order of its own, which pays
    from eight rows on. Below that, each block is multiplied by all rows while it is in the cache.
    """
    if len(rows) > _FEW:
        return np.asarray(rows @ weights.T)
    products = np.empty((len(rows), len(weights)), dtype=np.result_type(rows, weights))
    size = max(1, _BLOCK_BYTES // max(1, weights[:1].nbytes)) if len(rows) > 1 else len(weights)
    for start in range(0, len(weights), size):
        block = weights[start : start + size]
        for row, product in zip(rows, products, strict=True):
            np.dot(block, row, out=product[start : start + size])
    return products
