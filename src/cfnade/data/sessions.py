"""Which of a user's items belong together: sessions, told from counts that have no times.

What is bought in one basket is bought together by others too. So the items that a user shares with
the same people are taken for a session: a shopping trip, an evening.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from cfnade.data.interactions import CountMatrix

_DENSE_UP_TO = 5_000  # items, of which all pairs are counted at once: 100 MB
_MOST_ITEMS = 3_000  # of one user, taken at random from more: their pairs take 150 MB
_AS_BY_CHANCE = 1.0  # watchers added to those expected: two rare items that meet once are no proof
_LEAST_LIFT = 0.2  # added to all: items that never meet are far apart, not infinitely


def draw_sessions(
    counts: CountMatrix,
    among: CountMatrix,
    share: float,
    min_items: int,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Draw a session of each user: a random item and some that belong with it.

    Only items of a single event are in it: whoever has another one of an item still has that item
    without the session.

    Args:
        counts: Of everybody, which tell what belongs together, (n_users, n_items).
        among: Of those to draw a session of, (n_users, n_items).
        share: Of a user's items of a single event that are a session, at least one of them.
        min_items: Users with fewer items have none.
        rng: Generator.

    Returns:
        Which pairs of `among` are in a session, (n_pairs,).
    """
    likes = csc_array(counts, dtype=np.float32)
    likes.data[:] = 1.0
    of_all = _shared(likes) if likes.shape[1] <= _DENSE_UP_TO else None
    is_drawn = np.zeros(among.nnz, dtype=np.bool_)
    for user in np.flatnonzero(np.diff(among.indptr) >= min_items):
        all_pairs = np.arange(among.indptr[user], among.indptr[user + 1])
        pairs = all_pairs[among.data[all_pairs] <= 1.0]
        if pairs.size > _MOST_ITEMS:
            pairs = rng.choice(pairs, _MOST_ITEMS, replace=False)
        if pairs.size:
            size = min(max(1, round(share * pairs.size)), all_pairs.size - 1)
            seed = int(rng.integers(pairs.size))
            items = among.indices[pairs]
            shared = _shared(likes[:, items]) if of_all is None else of_all[np.ix_(items, items)]
            together = belonging_together(shared, counts.shape[0])
            is_drawn[pairs[gather(together, seed, size, rng)]] = True
    return is_drawn


def _shared(likes: csc_array) -> NDArray[np.float32]:
    """How many people have both of two items, (n_items, n_items)."""
    return np.asarray((likes.T @ likes).toarray())


def belonging_together(shared: NDArray[np.float32], n_users: int) -> NDArray[np.float32]:
    """How much each two of a user's items belong together, beyond what either does with all.

    It is the logarithm of their lift: how many people have both, over how many would by chance.
    The mean of either item's row is taken off, so that popular items, which have some lift with
    everything, belong to no session more than others do.

    Args:
        shared: How many people have both of two of the user's items, (n_items, n_items).
        n_users: How many people there are.

    Returns:
        Symmetric, with 0 on the diagonal, (n_items, n_items).
    """
    n_items = len(shared)
    n_watchers = np.diag(shared)
    lift = shared / (np.outer(n_watchers, n_watchers) / n_users + _AS_BY_CHANCE)
    together = np.log(lift + np.float32(_LEAST_LIFT))
    np.fill_diagonal(together, 0.0)
    mean = together.sum(axis=0) / max(n_items - 1, 1)  # over the others, (n_items,)
    together += mean.mean() - mean[:, None] - mean[None, :]
    np.fill_diagonal(together, 0.0)
    return np.asarray(together, dtype=np.float32)


def gather(
    together: NDArray[np.float32], seed: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw items that belong with one.

    Each has the probability to be next that its lift with those gathered gives it, multiplied over
    them, as if they told of it independently.

    Args:
        together: How much each two belong together, (n_items, n_items).
        seed: The first.
        size: How many, up to all there are.
        rng: Generator.

    Returns:
        (size,).
    """
    gathered = [seed]
    log_odds = together[seed].copy()  # summed over those gathered, (n_items,)
    for _ in range(size - 1):
        log_odds[gathered[-1]] = -np.inf
        # The largest of log-odds + Gumbel noise is a draw by these odds.
        gathered.append(int((log_odds + rng.gumbel(size=log_odds.size)).argmax()))
        log_odds += together[gathered[-1]]
    return np.array(gathered)
