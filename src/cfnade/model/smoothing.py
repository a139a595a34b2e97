"""What an item's watchers say of those to come: popularity smoothed after Good and Turing.

Training takes the watchers it sees for what there is. Of items with one watcher most were lucky,
and items with none stand last, though a catalogue of which half the items have a single watcher
is about to give others their first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.model.inference import NumpyNetwork

N_REFERENCE = 50
"""Items at most that an item without watchers is the mean of."""


def discount(n_watchers: NDArray[np.integer[Any]]) -> float:
    """D: an item with r watchers has r - D to be expected among as many other users.

    By Good and Turing (Good 1953) an item with r watchers is worth `(r + 1) N_{r+1} / N_r`, with
    N_r the number of items that have r. One is worth `2 N_2 / N_1`; what it lacks, all others are
    taken to lack (absolute discounting, Ney, Essen and Kneser 1994).

    Args:
        n_watchers: Of each item, (n_items,).

    Returns:
        `1 - 2 N_2 / N_1`, but at least 0 and at most 0.9.
    """
    n_one, n_two = (int(np.count_nonzero(n_watchers == r)) for r in (1, 2))
    return float(np.clip(1.0 - 2.0 * n_two / n_one, 0.0, 0.9)) if n_one else 0.0


def cold_reference(n_watchers: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """The items that are as much wanted as one without watchers is to be expected to be.

    By Good and Turing it is worth `N_1 / N_0` watchers. Others are worth r - D, so it stands with
    those that have `N_1 / N_0 + D`.

    Args:
        n_watchers: Of each item, (n_items,).

    Returns:
        Up to `N_REFERENCE` items with about so many watchers; none where every item has a watcher,
        or all others are worth more.
    """
    n_none, n_one = (int(np.count_nonzero(n_watchers == r)) for r in (0, 1))
    expected = n_one / max(n_none, 1) + discount(n_watchers)
    if n_none == 0 or expected < 1.0:
        return np.empty(0, dtype=np.int64)
    known = np.flatnonzero(n_watchers)
    distance = np.abs(np.log(n_watchers[known] / expected))
    return known[np.argsort(distance, kind="stable")[:N_REFERENCE]]


def with_smoothed_popularity(
    network: NumpyNetwork, n_watchers: NDArray[np.integer[Any]]
) -> NumpyNetwork:
    """The network with every item's bias discounted, and items without watchers in their place.

    The bias of an item with r watchers goes down by the logarithm of `r / (r - D)`. One without any
    becomes the mean of those of `cold_reference`: as logits are linear in the rows of V and in d,
    its logit is for every history the mean of theirs, direct connections aside.

    Args:
        network: As trained; it is not changed.
        n_watchers: How many of those it was trained on have each item, (n_items,).

    Returns:
        A network that shares all weights but those that differ.
    """
    weights, is_known = dict(network.weights), n_watchers > 0
    share_expected = 1.0 - discount(n_watchers) / n_watchers[is_known]
    weights["output_bias"] = weights["output_bias"].copy()
    weights["output_bias"][is_known] += np.log(share_expected).astype(np.float32)
    reference = cold_reference(n_watchers)
    if reference.size:
        weights["output_weight"] = weights["output_weight"].copy()
        for name in ("output_weight", "output_bias"):
            weights[name][~is_known] = weights[name][reference].mean(axis=0)
    return NumpyNetwork(network.config, weights)
