"""What features say about an item: weights for items that nobody has touched, or few people.

A ridge regression predicts an item's row of V and d from its features; the items most like it
(`beyond/content.py`) correct the prediction. An item without watchers gets this row, and the mean
of W and A of the items most like it. One with n watchers gets a mean of its own row of V and d and
the predicted one, weighted n to `half`. In the direct path every item also gets the items most
like it as neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from cfnade.beyond.content import nearest, weighted_rows
from cfnade.beyond.direct import LEAST_WATCHERS
from cfnade.checks import check_above_zero, check_at_least
from cfnade.data.item_features import ItemFeatures
from cfnade.errors import ConfigError
from cfnade.model.inference import NumpyNetwork, dislike_scale
from cfnade.threads import available_threads

N_LIKE = 100
"""Items most like an item that become its neighbours in the direct path."""

_N_CORRECTING = 32  # items most like an item that correct its prediction
_CORRECTION = np.float32(0.5)  # share of their mean error
_TOLERANCE = 1e-2  # of a regression: length of the residual over that of the right side
_MOST_STEPS = 50  # of a regression
_TARGETS = 32  # of a regression at once: they stay in the cache
_TINY = np.float32(1e-30)
_ROWS = 4096  # items whose neighbours are put together at once


@dataclass(frozen=True)
class FeatureStrengths:
    """How strongly features count, found on validation."""

    l2: float = 3.0
    """L2 of the regression, in units of a row of length 1 and a mean weight of 1."""

    half: float = 8.0
    """Watchers with which an item's own weights count as much as the predicted ones."""

    like_gain: float = 1.0
    """Strength of an item's likeness to those of the history, in the direct path."""

    def __post_init__(self) -> None:
        check_above_zero(l2=self.l2)
        check_at_least(0, half=self.half, like_gain=self.like_gain)

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> FeatureStrengths:
        """From JSON."""
        unknown = set(saved) - {field.name for field in fields(cls)}
        if unknown:
            raise ConfigError(f"{sorted(unknown)[0]!r:.40} is not a strength of features")
        return cls(**saved)


class FeatureModel:
    """Predicts items' weights from their features, and adds them to a network."""

    def __init__(
        self,
        features: ItemFeatures,
        n_watchers: NDArray[np.integer],
        n_threads: int | None = None,
    ) -> None:
        """Weigh the features.

        Args:
            features: Of the network's items.
            n_watchers: Of each item, (n_items,). Items without any are predicted, not learnt from.
            n_threads: None takes all.
        """
        self._n_threads = n_threads or available_threads()
        self._rows = weighted_rows(features)
        self.n_watchers = n_watchers
        weight = np.log1p(n_watchers)
        self._weight = (weight / max(weight.mean(), 1e-12)).astype(np.float32)  # (n_items,)
        self._has_features = np.diff(self._rows.indptr) > 0

    @cached_property
    def like(self) -> csr_array:
        """Cosines of the items with watchers that are most like each item, (n_items, n_items)."""
        n_items = len(self.n_watchers)
        return nearest(
            self._rows, np.arange(n_items), self.n_watchers > 0, N_LIKE, self._n_threads
        )

    @cached_property
    def _correcting(self) -> csr_array:
        """Share of each item in the correction of another's prediction, (n_items, n_items)."""
        share = self.like.copy()
        for start, end in zip(share.indptr, share.indptr[1:], strict=False):
            values = share.data[start:end]
            if values.size > _N_CORRECTING:
                values[np.argpartition(values, -_N_CORRECTING)[:-_N_CORRECTING]] = 0.0
        share.eliminate_zeros()
        share.data *= share.data * self._weight[share.indices]
        total = np.asarray(share.sum(axis=1)).ravel()
        return csr_array(diags_array(1.0 / np.where(total > 0, total, 1.0)) @ share).astype(
            np.float32
        )

    def predicted(self, targets: NDArray[np.float32], l2: float) -> NDArray[np.float32]:
        """What the features say about targets of each item, (n_items, n_targets)."""
        mean = np.average(targets, axis=0, weights=self._weight).astype(np.float32)
        coefficients = ridge(self._rows, targets - mean, self._weight, l2, self._n_threads)
        fitted = self._rows @ coefficients + mean
        return np.asarray(fitted + _CORRECTION * (self._correcting @ (targets - fitted)))

    def blend(
        self, own: NDArray[np.float32], predicted: NDArray[np.float32], half: float
    ) -> NDArray[np.float32]:
        """Own and predicted rows by the number of watchers, (n_items, n_targets).

        An item without features keeps its own row, unless it has no watchers.
        """
        n = self.n_watchers
        share = np.where(self._has_features, half / np.maximum(n + half, 1e-12), 0.0)
        share = np.where(n == 0, 1.0, share).astype(np.float32)[:, None]
        return np.asarray((1 - share) * own + share * predicted)

    def add(self, network: NumpyNetwork, strengths: FeatureStrengths) -> NumpyNetwork:
        """The network with what the features say; scores of W and A stay as they were.

        Args:
            network: With a row for each item; see `with_more_items`.
            strengths: How strongly they count.
        """
        weights = dict(network.weights)
        own = np.column_stack([weights["output_weight"], weights["output_bias"]])
        both = self.blend(own, self.predicted(own, strengths.l2), strengths.half)
        weights["output_weight"] = np.ascontiguousarray(both[:, :-1])
        weights["output_bias"] = np.ascontiguousarray(both[:, -1])
        is_cold = self.n_watchers == 0
        if is_cold.any():
            for name in ("like_weight", "dislike_weight"):
                weights[name] = self._of_like_items(weights[name], is_cold)
            # Nobody has an item without watchers: that must not change what enters the network.
            all_disliked = dislike_scale(network.config) * weights["dislike_weight"].sum(axis=0)
            weights["hidden_bias"] = (network.empty_input - all_disliked).astype(np.float32)
        config = network.config
        if config.n_neighbours:
            neighbours, weight = self.neighbours(network, strengths.like_gain)
            weights |= {"neighbours": neighbours, "neighbour_weight": weight}
            config = replace(config, n_neighbours=neighbours.shape[1])
        return NumpyNetwork(config, weights)

    def _of_like_items(
        self, rows: NDArray[np.float32], is_cold: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """The rows, those of cold items replaced by the mean of the items most like them."""
        mean = np.average(rows, axis=0, weights=self._weight).astype(np.float32)
        replaced = np.array(rows)
        replaced[is_cold] = mean + self._correcting[is_cold] @ (rows - mean)
        return replaced

    def neighbours(
        self, network: NumpyNetwork, like_gain: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Neighbours in the direct path and their weights, (n_items, n_neighbours) each.

        An item has its own neighbours and the items most like it. One with too few watchers for
        neighbours of its own has those of the items most like it.
        """
        assert network.direct_weight is not None
        n_items = len(self.n_watchers)
        n_kept = max(network.config.n_neighbours, N_LIKE)
        own = network.direct_weight.T.tocsr()  # row: the item predicted
        has_few = self.n_watchers < LEAST_WATCHERS
        neighbours = np.repeat(np.arange(n_items)[:, None], n_kept, axis=1)
        weight = np.zeros((n_items, n_kept), dtype=np.float32)
        for start in range(0, n_items, _ROWS):
            part = slice(start, start + _ROWS)
            borrowed = diags_array(has_few[part].astype(np.float32)) @ self._correcting[part]
            rows = csr_array(own[part] + like_gain * self.like[part] + borrowed @ own)
            _keep_largest(rows, neighbours[part], weight[part], first=start)
        return neighbours, weight


def _keep_largest(
    rows: csr_array, neighbours: NDArray[np.int64], weight: NDArray[np.float32], first: int
) -> None:
    """Write the largest weights of each row, largest first; the row's own item gets none."""
    n_kept = neighbours.shape[1]
    for row, (start, end) in enumerate(zip(rows.indptr, rows.indptr[1:], strict=False)):
        values = np.where(rows.indices[start:end] == first + row, 0.0, rows.data[start:end])
        order = np.argsort(-values, kind="stable")[:n_kept]
        order = order[values[order] > 0.0]
        neighbours[row, : order.size] = rows.indices[start:end][order]
        weight[row, : order.size] = values[order]


def with_more_items(network: NumpyNetwork, n_items: int) -> NumpyNetwork:
    """The network with rows of zeros for further items; known items keep their scores."""
    before, config = network.config, replace(network.config, n_items=n_items)
    if n_items == before.n_items:
        return network
    weights = dict(network.weights)
    n_new = n_items - before.n_items
    for name in ("like_weight", "dislike_weight", "output_weight", "output_bias"):
        new = np.zeros((n_new, *weights[name].shape[1:]), dtype=np.float32)
        weights[name] = np.concatenate([weights[name], new])
    weights["dislike_weight"] *= np.float32(dislike_scale(before) / dislike_scale(config))
    if config.n_neighbours:
        itself = np.arange(before.n_items, n_items)
        new = np.repeat(itself[:, None], config.n_neighbours, axis=1)
        weights["neighbours"] = np.concatenate([weights["neighbours"], new])
        none = np.zeros(new.shape, dtype=np.float32)
        weights["neighbour_weight"] = np.concatenate([weights["neighbour_weight"], none])
    return NumpyNetwork(config, weights)


def ridge(
    rows: csr_array,
    targets: NDArray[np.float32],
    weight: NDArray[np.float32],
    l2: float,
    n_threads: int = 1,
) -> NDArray[np.float32]:
    """Coefficients M that minimise `sum weight |rows M - targets|^2 + l2 |M|^2`.

    By conjugate gradients, each target on its own: there may be tens of thousands of features.
    Features are scaled by the diagonal of the system, which halves the number of steps.

    Args:
        rows: Features, sparse, (n_items, n_features).
        targets: (n_items, n_targets).
        weight: At least 0, (n_items,).
        l2: Above 0.
        n_threads: Blocks of targets at once.

    Returns:
        (n_features, n_targets).
    """
    root = np.sqrt(weight).astype(np.float32)
    X = csr_array(diags_array(root) @ rows)
    diagonal = np.bincount(X.indices, X.data.astype(np.float64) ** 2, minlength=X.shape[1])
    used = np.flatnonzero(diagonal)
    scale = (1.0 / np.sqrt(diagonal[used] + l2)).astype(np.float32)
    X = csr_array(X[:, used] @ diags_array(scale)).astype(np.float32)
    Xt = X.T.tocsr()
    penalty = np.float32(l2) * scale[:, None] ** 2

    def solve(columns: slice) -> None:
        residual = Xt @ np.ascontiguousarray(root[:, None] * targets[:, columns])
        M, direction = np.zeros_like(residual), residual.copy()
        length = _squares(residual)  # of each target
        enough = _TOLERANCE**2 * length
        for _ in range(_MOST_STEPS):
            if (length <= enough).all():
                break
            product = Xt @ (X @ direction) + penalty * direction
            step = length / np.maximum(np.einsum("ij,ij->j", direction, product), _TINY)
            M += step * direction
            residual -= step * product
            before, length = length, _squares(residual)
            direction *= length / np.maximum(before, _TINY)
            direction += residual
        coefficients[used, columns] = scale[:, None] * M

    coefficients = np.zeros((rows.shape[1], targets.shape[1]), dtype=np.float32)
    columns = [slice(at, at + _TARGETS) for at in range(0, targets.shape[1], _TARGETS)]
    with ThreadPoolExecutor(n_threads) as threads:
        for _ in threads.map(solve, columns):
            pass
    return coefficients


def _squares(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(np.einsum("ij,ij->j", values, values))
