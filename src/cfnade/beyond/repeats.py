"""Repeats: scores of items that are in the history already, such as groceries and songs.

Not in the paper. An item in the context is never a target of the network, so its logit for an item
of the history means nothing. A logistic regression on the latest events takes its place: how much
the user did with the item lately, and how often people come back to it (docs/decisions/0034).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.beyond.logistic import logistic_regression
from cfnade.beyond.recency import log_watchers
from cfnade.data.events import EventLog
from cfnade.data.interactions import CountMatrix
from cfnade.data.pairs import keys_of, pair_keys

_PRIOR = 5.0  # watchers with the usual share of repeats that every item has in addition


@dataclass(frozen=True, eq=False)
class Repeats:
    """Scores an item of a history by its count: `bias + weight * log(1 + count)`."""

    bias: NDArray[np.float32]
    """Of each item, (n_items,)."""

    weight: float

    @classmethod
    def of(cls, weights: Sequence[float], of_items: NDArray[np.float64]) -> Repeats:
        """From the weights of `fit_repeats` and the features of items, (n_items, 2)."""
        constant, of_count, *rest = weights
        return cls((constant + of_items @ np.array(rest)).astype(np.float32), float(of_count))


def repeat_logit(log: EventLog, n_items: int) -> NDArray[np.float64]:
    """Log-odds that a watcher of an item comes back to it at another time, smoothed, (n_items,)."""
    assert log.time is not None
    pair = pair_keys(log.user, log.item, n_items)
    order = np.lexsort((log.time, pair))
    pair, time, item = pair[order], log.time[order], log.item[order]
    is_first = np.diff(pair, prepend=-1) != 0
    is_back = ~is_first & (np.diff(time, prepend=0.0) > 0)
    starts = np.flatnonzero(is_first)
    came_back = np.logical_or.reduceat(is_back, starts) if starts.size else np.empty(0, np.bool_)
    n_watchers = np.bincount(item[starts], minlength=n_items)
    return logit_of_repeats(n_watchers, np.bincount(item[starts], came_back, minlength=n_items))


def logit_of_repeats(n_watchers: NDArray[np.integer], n_back: NDArray[Any]) -> NDArray[np.float64]:
    """The same from each item's watchers and how many of them came back, (n_items,) each."""
    usual = (n_back.sum() + 0.5) / (n_watchers.sum() + 1.0)
    back, others = n_back + _PRIOR * usual, n_watchers - n_back + _PRIOR * (1.0 - usual)
    return np.asarray(np.log(back / others), dtype=np.float64)


def item_features(log: EventLog, n_items: int) -> NDArray[np.float64]:
    """What a repeat depends on beside the count: `repeat_logit` and watchers, (n_items, 2)."""
    return np.column_stack([repeat_logit(log, n_items), log_watchers(log, n_items)])


def fit_repeats(
    histories: CountMatrix, repeated: CountMatrix, of_items: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Fit the log-odds that an item of a history is repeated in the period that was held out.

    Args:
        histories: Counts before that period, (n_users, n_items).
        repeated: Pairs of the histories that occur in it, (n_users, n_items).
        of_items: `item_features`, (n_items, 2).

    Returns:
        Weights: a constant, of log(1 + count), and of the features of items, (4,).
    """
    is_repeated = np.isin(keys_of(histories), keys_of(repeated))
    own = np.log1p(histories.data)[:, None]
    return logistic_regression(np.hstack([own, of_items[histories.indices]]), is_repeated)
