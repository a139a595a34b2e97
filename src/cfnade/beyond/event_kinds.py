"""Kinds of events: what a view or a cart says about the event to predict, such as a purchase.

Not in the paper, whose related work asks for it (several sources of feedback; Li et al., 2010). The
weights of the kinds are found before training. An item of the history without the event to predict
is a candidate, and scored like a repeat (docs/decisions/0040).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfnade.beyond.logistic import logistic_regression
from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.data.pairs import keys_of
from cfnade.data.splitting import overlap, without_overlap

_PRIOR = 5.0  # watchers with the usual share of targets that every item has in addition


def find_weights(train: Interactions, later: CountMatrix) -> dict[str, float]:
    """Weights of the kinds of events, by the odds that the event to predict comes later.

    A logistic regression on the counts of each kind finds them: an event of weight w multiplies the
    odds by 1 + w, compared with an item without events. They are scaled so that the smallest is 1.
    A kind that does not raise the odds gets 0. The event to predict weighs as much as the largest.

    Args:
        train: Earlier events, with a target event.
        later: Held-out target events of some users, (n_users, n_items).

    Returns:
        By kind, in the order of the log.
    """
    log, target = train.log, train.target_event
    assert log is not None and target is not None
    shape, others = train.counts.shape, [kind for kind in log.kinds if kind != target]
    if not others:
        return {target: 1.0}
    later = without_overlap(train.target_counts, later)
    users = np.flatnonzero(np.diff(later.indptr))
    kinds = [log.of_kind(kind).counts(shape)[users] for kind in others]
    history = without_overlap(train.target_counts[users], train.counts[users])
    came = overlap(history, later[users])
    places, wanted = keys_of(history), keys_of(came)
    features = [np.log1p(_values_at(counts, places)) for counts in kinds]
    n_new = later[users].nnz - came.nnz
    n_unseen = users.size * shape[1] - train.counts[users].nnz
    # Items without events are all alike: two rows stand for them.
    X = np.vstack([np.column_stack([*features]), np.zeros((2, len(others)))])
    is_true = np.append(np.isin(places, wanted), [True, False])
    weight = np.append(np.ones(places.size), [n_new + 0.5, max(n_unseen - n_new, 0) + 0.5])
    slopes = logistic_regression(X, is_true, weight)[1:]
    raised = np.maximum(np.exp2(np.minimum(slopes, 60.0)) - 1.0, 0.0)
    least = raised[raised > 0].min(initial=np.inf)
    found = {k: float(f"{w / least:.2g}") for k, w in zip(others, raised.tolist(), strict=True)}
    found[target] = max(1.0, *found.values())
    return {kind: found[kind] for kind in log.kinds}


def target_features(data: Interactions) -> NDArray[np.float64]:
    """What a target event depends on beside the user's own events, (n_items, 2).

    The log-odds that a watcher of the item has the target event, smoothed; and the logarithm of the
    users who have it.
    """
    n_items = data.n_items
    n_watchers = np.bincount(data.counts.indices, minlength=n_items)
    n_targets = np.bincount(data.target_counts.indices, minlength=n_items)
    usual = (n_targets.sum() + 0.5) / (n_watchers.sum() + 1.0)
    with_target = n_targets + _PRIOR * usual
    without = np.maximum(n_watchers - n_targets, 0) + _PRIOR * max(1.0 - usual, 0.01)
    return np.column_stack([np.log(with_target / without), np.log1p(n_targets)])


def _values_at(counts: CountMatrix, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """The counts of some pairs by their keys, (n_places,); 0 where there is none."""
    own = keys_of(counts)  # ascending
    at = np.searchsorted(own, places)
    is_there = at < own.size
    is_there[is_there] = own[at[is_there]] == places[is_there]
    values = np.zeros(places.size)
    values[is_there] = counts.data[at[is_there]]
    return values
