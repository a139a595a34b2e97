"""What features say about an item: weights for items that nobody has touched, or few people.

A ridge regression predicts an item's rows of W and V and its level, the score for a mean user, from
its features. Levels are hard to predict, so they are shrunk to their mean. An item without watchers
gets these weights; if nothing is known about it, a level like that of the least popular items. One
with n watchers gets a mean of its own weights and the predicted ones, weighted n to `half`. In the
direct path an item also gets the items most like it (`beyond/content.py`) as neighbours, in the
same measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from cfnade.beyond.content import nearest, weighted_rows
from cfnade.beyond.direct import LEAST_WATCHERS, likes_of
from cfnade.beyond.ridge import ridge
from cfnade.checks import check_above_zero, check_at_least
from cfnade.data.item_features import ItemFeatures
from cfnade.errors import ConfigError
from cfnade.model.inference import NumpyNetwork, dislike_scale
from cfnade.threads import available_threads

N_LIKE = 100
"""Items most like an item that become its neighbours in the direct path."""

LEAST_POPULAR = 0.05
"""Share of the items with watchers that are below an item about which nothing is known."""

_TINY = 1e-12
_ROWS = 4096  # items whose neighbours are put together at once
_OF_COLD = {"dislike_weight", "trend", "repeat_bias"}  # predicted for items without watchers only
_OF_ALL = {"like_weight", "output_weight", "output_bias"}
_BY_ITEM = _OF_ALL | _OF_COLD | {"neighbours", "neighbour_weight"}


@dataclass(frozen=True)
class FeatureStrengths:
    """How strongly features count, found on validation."""

    l2: float = 3.0
    """L2 of the regression, in units of a row of length 1 and a mean weight of 1."""

    level: float = 0.5
    """Share of the predicted differences in level that counts, at most 1."""

    half: float = 8.0
    """Watchers with which an item's own weights count as much as its features."""

    like_gain: float = 1.0
    """Strength of an item's likeness to those of the history, in the direct path."""

    columns: Mapping[str, float] = field(default_factory=dict)
    """Weights of the table's columns; 1 for others."""

    def __post_init__(self) -> None:
        check_above_zero(l2=self.l2)
        check_at_least(0, level=self.level, half=self.half, like_gain=self.like_gain)
        check_at_least(0, **{f"weight of {name!r}": w for name, w in self.columns.items()})

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> FeatureStrengths:
        """From JSON."""
        if not isinstance(saved, Mapping) or not isinstance(saved.get("columns", {}), Mapping):
            raise ConfigError("the strengths of features must be an object, and so must columns")
        unknown = set(saved) - {each.name for each in fields(cls)}
        if unknown:
            raise ConfigError(f"{sorted(unknown)[0]!r:.40} is not a strength of features")
        return cls(**saved)


class FeatureModel:
    """Predicts items' weights from their features, and adds them to a network."""

    def __init__(
        self,
        features: ItemFeatures,
        n_watchers: NDArray[np.integer],
        columns: Mapping[str, float] | None = None,
        *,
        asked: NDArray[np.integer] | None = None,
        n_threads: int | None = None,
    ) -> None:
        """Weigh the features.

        Args:
            features: Of the network's items.
            n_watchers: Of each item, (n_items,). Items without any are predicted, not learnt from.
            columns: Weights of the table's columns; 1 for others.
            asked: Items to predict, (n_asked,); None for all.
            n_threads: None takes all.
        """
        self._n_threads = n_threads or available_threads()
        self._rows = weighted_rows(features, columns or {})
        self._asked = np.arange(features.n_items) if asked is None else asked
        self._n_watchers = n_watchers
        weight = np.sqrt(n_watchers)
        self._weight = (weight / max(weight.mean(), 1e-12)).astype(np.float32)  # (n_items,)

    @cached_property
    def is_unknown(self) -> NDArray[np.bool_]:
        """Items without watchers that share no feature with an item that has some, (n_items,)."""
        has_watchers = self._n_watchers > 0
        is_seen = (self._rows != 0).astype(np.int64).T @ has_watchers > 0  # (n_features,)
        return np.asarray(~has_watchers & ((self._rows != 0) @ is_seen.astype(np.int64) == 0))

    def _least(self, values: NDArray[np.floating]) -> np.float32:
        """A value that few of the items with watchers are below."""
        known = values[self._n_watchers > 0]
        return np.float32(np.quantile(known, LEAST_POPULAR) if known.size else 0.0)

    @cached_property
    def like(self) -> csr_array:
        """Cosines of the items with watchers that are most like each item, (n_asked, n_items)."""
        return nearest(self._rows, self._asked, self._n_watchers > 0, N_LIKE, self._n_threads)

    @cached_property
    def like_mean(self) -> csr_array:
        """Share of each item in the mean of those most like an item, (n_asked, n_items).

        By the cube of the cosine; they add up to 1 if any item is alike.
        """
        share = self.like.copy()
        share.data **= 3
        share.data *= self._weight[share.indices]
        total = np.asarray(share.sum(axis=1)).ravel()
        return csr_array(diags_array((1.0 / np.maximum(total, _TINY)).astype(np.float32)) @ share)

    def predicted(self, targets: NDArray[np.float32], l2: float) -> NDArray[np.float32]:
        """What the features say about targets of all items, (n_asked, n_targets)."""
        mean = np.average(targets, axis=0, weights=self._weight).astype(np.float32)
        coefficients = ridge(self._rows, targets - mean, self._weight, l2, self._n_threads)
        return np.asarray(self._rows[self._asked] @ coefficients + mean)

    @staticmethod
    def shrunk(rows: NDArray[np.float32], level: float) -> NDArray[np.float32]:
        """Predicted rows with their last column, the level, shrunk to its mean."""
        mean = rows[:, -1].mean()
        return np.column_stack([rows[:, :-1], mean + np.float32(level) * (rows[:, -1] - mean)])

    def blend(
        self, own: NDArray[np.float32], predicted: NDArray[np.float32], half: float
    ) -> NDArray[np.float32]:
        """Own and predicted rows by the number of watchers, (n_asked, n_targets).

        An item without features keeps its own row, unless it has no watchers.
        """
        share = self.share(half)[:, None]
        return np.asarray((1 - share) * own[self._asked] + share * predicted)

    def share(self, half: float) -> NDArray[np.float32]:
        """How much the features of each item count: 1 if it has no watchers, (n_asked,)."""
        n = self._n_watchers[self._asked]
        has_features = np.diff(self._rows.indptr)[self._asked] > 0
        share = np.where(has_features, half / np.maximum(n + half, 1e-12), 0.0)
        return np.where(n == 0, 1.0, share).astype(np.float32)

    def direct_scores(
        self, network: NumpyNetwork, ratings: csr_array
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The two parts of the direct path, (n_users, n_asked) each.

        The first is the network's own; an item with too few watchers for neighbours of its own has
        the mean over the items most like it. The second is the likeness to the history.
        """
        own = network.direct(ratings)  # (n_users, n_items)
        has_few = np.flatnonzero(self._n_watchers[self._asked] < LEAST_WATCHERS)
        first = own[:, self._asked]
        first[:, has_few] = (self.like_mean[has_few] @ own.T).T
        return first, np.asarray((likes_of(ratings) @ self.like.T).toarray())

    def with_inputs(
        self,
        network: NumpyNetwork,
        strengths: FeatureStrengths,
        is_changed: NDArray[np.bool_] | None = None,
    ) -> NumpyNetwork:
        """The network with W, and A of items without watchers, by what features say.

        Args:
            network: With a row for each item; see `with_more_items`.
            strengths: How strongly features count.
            is_changed: Items whose own weights may change, (n_items,); None for all.
        """
        weights = dict(network.weights)
        W = weights["like_weight"]
        weights["like_weight"] = self._changed(
            W, self.blend(W, self.predicted(W, strengths.l2), strengths.half), is_changed
        )
        is_cold = self._n_watchers == 0
        if is_cold.any():
            for name in _OF_COLD.intersection(weights):
                rows = weights[name].reshape(len(W), -1)
                predicted = self._changed(rows, self.predicted(rows, strengths.l2), is_cold)
                if name == "trend":
                    predicted[self.is_unknown] = self._least(rows)
                weights[name] = predicted.reshape(weights[name].shape)
            # Nobody has an item without watchers: that must not change what enters the network.
            all_disliked = dislike_scale(network.config) * weights["dislike_weight"].sum(axis=0)
            weights["hidden_bias"] = (network.empty_input - all_disliked).astype(np.float32)
        return NumpyNetwork(network.config, weights)

    def with_outputs(
        self,
        network: NumpyNetwork,
        strengths: FeatureStrengths,
        is_changed: NDArray[np.bool_] | None = None,
        gets_neighbours: NDArray[np.bool_] | None = None,
    ) -> NumpyNetwork:
        """The network with V, d and the direct path by what features say.

        Args:
            network: As from `with_inputs`, with its `mean_hidden`.
            strengths: How strongly features count.
            is_changed: Items whose own weights may change, (n_items,); None for all.
            gets_neighbours: Items that get neighbours by likeness, (n_items,); None for all.
        """
        weights, mean = dict(network.weights), network.mean_hidden
        own = with_levels(weights["output_weight"], weights["output_bias"], mean)
        predicted = self.shrunk(self.predicted(own, strengths.l2), strengths.level)
        blended = self.blend(own, predicted, strengths.half)
        both = self._changed(own, blended, is_changed)
        both[self.is_unknown, -1] = self._least(both[:, -1])
        V, level = np.ascontiguousarray(both[:, :-1]), both[:, -1]
        weights["output_weight"] = V
        weights["output_bias"] = (level - V @ mean).astype(np.float32)
        config = network.config
        if config.n_neighbours:
            everybody = np.ones(len(own), dtype=np.bool_)
            gets = everybody if gets_neighbours is None else gets_neighbours
            neighbours, weight = self._neighbours(network, strengths, gets)
            weights |= {"neighbours": neighbours, "neighbour_weight": weight}
            config = replace(config, n_neighbours=neighbours.shape[1])
        return NumpyNetwork(config, weights)

    @staticmethod
    def _changed(
        own: NDArray[np.float32],
        others: NDArray[np.float32],
        is_changed: NDArray[np.bool_] | None,
    ) -> NDArray[np.float32]:
        """Own rows, and others where they may change."""
        if is_changed is None:
            return others.astype(np.float32)
        return np.where(is_changed[:, None], others, own).astype(np.float32)

    def _neighbours(
        self, network: NumpyNetwork, strengths: FeatureStrengths, gets: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Neighbours in the direct path and their weights, (n_items, n_neighbours) each."""
        assert network.direct_weight is not None
        n_items = len(self._n_watchers)
        n_kept = max(network.config.n_neighbours, N_LIKE)
        own = network.direct_weight.T.tocsr()  # row: the item predicted
        has_few = gets & (self._n_watchers < LEAST_WATCHERS)
        gain = np.float32(strengths.like_gain) * self.share(strengths.half) * gets
        neighbours = np.repeat(np.arange(n_items)[:, None], n_kept, axis=1)
        weight = np.zeros((n_items, n_kept), dtype=np.float32)
        for start in range(0, n_items, _ROWS):
            part = slice(start, start + _ROWS)
            gains = diags_array(gain[part])
            borrows = diags_array(has_few[part].astype(np.float32))
            keeps = diags_array((~has_few[part]).astype(np.float32))
            borrowed = (borrows @ self.like_mean[part]) @ own
            rows = csr_array(keeps @ own[part] + gains @ self.like[part] + borrowed)
            _keep_largest(rows, neighbours[part], weight[part], first=start)
        return neighbours, weight


def _keep_largest(
    rows: csr_array, neighbours: NDArray[np.int64], weight: NDArray[np.float32], first: int
) -> None:
    """Write the largest weights of each row, largest first; the row's own item gets none."""
    n_kept = neighbours.shape[1]
    for row, (start, end) in enumerate(pairwise(rows.indptr.tolist())):
        values = np.where(rows.indices[start:end] == first + row, 0.0, rows.data[start:end])
        order = np.argsort(-values, kind="stable")[:n_kept]
        order = order[values[order] > 0.0]
        neighbours[row, : order.size] = rows.indices[start:end][order]
        weight[row, : order.size] = values[order]


def with_levels(
    V: NDArray[np.float32], d: NDArray[np.float32], mean_hidden: NDArray[np.float32]
) -> NDArray[np.float32]:
    """V and each item's level, its score for the mean hidden layer, (n_items, n_hidden + 1)."""
    return np.column_stack([V, d + V @ mean_hidden])


def with_more_items(network: NumpyNetwork, n_items: int) -> NumpyNetwork:
    """The network with rows of zeros for further items; known items keep their scores."""
    n_before, config = network.config.n_items, replace(network.config, n_items=n_items)
    if n_items == n_before:
        return network
    weights = dict(network.weights)
    for name in _BY_ITEM.intersection(weights):
        rows = weights[name]
        new: NDArray[Any] = np.zeros((n_items - n_before, *rows.shape[1:]), dtype=np.float32)
        if name == "neighbours":  # without weight, an item is its own neighbour
            new = np.repeat(np.arange(n_before, n_items)[:, None], rows.shape[1], axis=1)
        weights[name] = np.concatenate([rows, new])
    scale = dislike_scale(network.config) / dislike_scale(config)
    weights["dislike_weight"] = np.float32(scale) * weights["dislike_weight"]
    return NumpyNetwork(config, weights)
