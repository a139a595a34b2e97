"""Hold out a part of each user's items, by pairs, events or sessions, to evaluate a model on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from cfnade.checks import check_at_least, check_choice, check_share
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.pairs import pairs_where
from cfnade.errors import DataError

HoldOutBy: TypeAlias = Literal["pairs", "events", "sessions"]
"""What is held out: pairs of a user and an item, all alike; the events that were counted; or
sessions, events that belong together, such as a basket."""

MIN_ITEMS = 5  # users with fewer stay whole in train: one item less would leave too little
_DENSE_UP_TO = 5_000  # items whose pairs are counted at once, 100 MB; only faster
_MOST_ITEMS = 3_000  # of one user, sampled from more: their pairs take 150 MB
_PSEUDO_COUNT = 1.0  # added to the expected watchers: two rare items that meet once prove little
_LEAST_LIFT = 0.2  # added to every lift: items that never meet have a finite logarithm


@dataclass(frozen=True)
class Split:
    """Users' counts in three disjoint parts of the same shape, (n_users, n_items)."""

    train: CountMatrix  # to fit models on while settings are chosen
    validation: CountMatrix  # to choose settings on
    test: CountMatrix  # to evaluate the final models on, once

    @property
    def known(self) -> CountMatrix:
        """All that a final model may see: train and validation, (n_users, n_items)."""
        return as_count_matrix(self.train + self.validation)


def sample_users(
    counts: CountMatrix,
    n_users: int,
    rng: int | np.random.Generator,
    *,
    among: NDArray[np.bool_] | None = None,
) -> CountMatrix:
    """Keep the counts of at most `n_users` random users who have any; empty the other rows.

    Only users `among` these are sampled, (n_all_users,); None for all.
    """
    has_any = np.diff(counts.indptr) > 0
    users = np.flatnonzero(has_any if among is None else has_any & among)
    if users.size <= n_users and (among is None or among[has_any].all()):
        return counts
    is_chosen = np.zeros(counts.shape[0], dtype=np.bool_)
    is_chosen[np.random.default_rng(rng).permutation(users)[:n_users]] = True
    return as_count_matrix(counts.multiply(is_chosen[:, None]))


def check_hold_out_by(name: str, by: str) -> None:
    """Refuse what is not one of `HoldOutBy`; `name` is the argument's name."""
    check_choice(name, by, get_args(HoldOutBy))


def hold_out(
    counts: CountMatrix,
    *,
    share: float = 0.1,
    min_items: int = MIN_ITEMS,
    by: HoldOutBy = "pairs",
    n_users: int | None = None,
    among: NDArray[np.bool_] | None = None,
    rng: int | np.random.Generator = 0,
) -> tuple[CountMatrix, CountMatrix]:
    """Hold out a random part of each user's items.

    - By pairs, all items of a user are alike.
    - By events, the items are held out that would be new to the user if a share of the events
      were held out, as in a later period. All n events of an item are in that share with
      probability share^n, so items with many events are rarely held out. Each user gives the
      expected number of items, at least one.
    - By sessions, items that belong together are held out, like each user's last basket; again
      only items that are then new to the user.

    Every item keeps at least one of its pairs, so that a model can learn about it.

    Args:
        counts: Sparse, (n_users, n_items).
        share: Of each user's items, events or items with a single event; rounded, at least one.
        min_items: Users with fewer items keep all of them.
        by: Pairs, events or sessions.
        n_users: Sample at most this many users; None for all.
        among: Users to hold out from, (n_users,); None for all.
        rng: Seed or generator; the same seed on the same counts gives the same split.

    Returns:
        Kept and held-out counts, both (n_users, n_items), disjoint, adding up to the input.

    Raises:
        ConfigError: If share is not in [0, 1), min_items is below 2, or `by` is unknown.
    """
    check_hold_out_by("by", by)
    check_share(share=share)
    check_at_least(2, min_items=min_items)  # one of them to keep
    counts = as_count_matrix(counts)
    rng = np.random.default_rng(rng)
    most = counts.shape[0] if n_users is None else n_users
    chosen = sample_users(counts, most, rng, among=among)
    if share == 0.0:
        return counts, pairs_where(counts, np.zeros(counts.nnz, dtype=bool))
    if by == "sessions":
        is_held = draw_sessions(counts, chosen, share, min_items, rng)
    else:
        is_held = _draw_items(chosen, share, min_items, by, rng)
    held = np.flatnonzero(is_held)
    n_watchers = np.bincount(counts.indices, minlength=counts.shape[1])
    n_left = n_watchers - np.bincount(chosen.indices[held], minlength=counts.shape[1])
    last = held[n_left[chosen.indices[held]] == 0]
    _, first_of_item = np.unique(chosen.indices[last], return_index=True)
    is_held[last[first_of_item]] = False
    held_out = pairs_where(chosen, is_held)
    kept = pairs_where(counts, ~is_held) if chosen is counts else as_count_matrix(counts - held_out)
    return kept, held_out


def _draw_items(
    counts: CountMatrix, share: float, min_items: int, by: HoldOutBy, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which pairs to hold out by pairs or by events, (n_pairs,)."""
    n_items_of = np.diff(counts.indptr)  # (n_users,)
    user_of = np.repeat(np.arange(counts.shape[0]), n_items_of)  # (n_pairs,)
    # Each user's pairs in a random order; the first n_held of each row are held out.
    if by == "pairs":
        n_expected = share * n_items_of
        # Row + a random fraction leaves rows in place: at most half, so that rounding never
        # reaches the next row.
        order = np.argsort(user_of + rng.random(counts.nnz) / 2)
    else:
        log_chance = np.minimum(counts.data * np.log(share), -1e-9)  # of share^n
        n_expected = np.bincount(user_of, np.exp(log_chance), minlength=counts.shape[0])
        # The largest of log-odds + Gumbel noise are a draw by these odds without replacement.
        log_odds = log_chance - np.log(-np.expm1(log_chance))
        order = np.lexsort((-(log_odds + rng.gumbel(size=counts.nnz)), user_of))
    n_held = np.where(n_items_of >= min_items, np.maximum(1, np.rint(n_expected)), 0)
    n_held = np.minimum(n_held, np.maximum(n_items_of - 1, 0))
    place_in_row = np.arange(counts.nnz) - counts.indptr[user_of]
    is_held = np.zeros(counts.nnz, dtype=bool)
    is_held[order[place_in_row < n_held[user_of]]] = True
    return is_held


def split_counts(
    counts: CountMatrix,
    *,
    test_share: float = 0.1,
    validation_share: float = 0.1,
    validation_by: HoldOutBy = "pairs",
    min_items: int = MIN_ITEMS,
    rng: int | np.random.Generator = 0,
) -> Split:
    """Split each user's items: a test part first, then a validation part of the rest.

    Args:
        counts: Sparse, (n_users, n_items).
        test_share: Of each user's items, by pairs.
        validation_share: Of each user's remaining items.
        validation_by: Pairs, events or sessions; see `hold_out`.
        min_items: Users with fewer items stay whole in train.
        rng: Seed or generator.

    Raises:
        DataError: If no user has enough items to hold one out.
    """
    rng = np.random.default_rng(rng)
    known, test = hold_out(counts, share=test_share, min_items=min_items, rng=rng)
    if test_share > 0 and test.nnz == 0:
        raise DataError(
            f"nothing to hold out: no user has {min_items} items or more that others have too; "
            "use more data, or a separate test part"
        )
    train, validation = hold_out(
        known, share=validation_share, min_items=min_items, by=validation_by, rng=rng
    )
    return Split(train, validation, test)


def overlap(train: CountMatrix, test: CountMatrix) -> CountMatrix:
    """The test counts of pairs that are also in train, (n_users, n_items)."""
    return as_count_matrix(test.multiply(train.astype(bool)))


def without_overlap(train: CountMatrix, test: CountMatrix) -> CountMatrix:
    """The test counts of pairs that are not in train, (n_users, n_items)."""
    return as_count_matrix(test - overlap(train, test))


# Sessions ---------------------------------------------------------------------------------------


def draw_sessions(
    counts: CountMatrix, among: CountMatrix, share: float, min_items: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which pairs of `among` are in a session of their user, (n_pairs,).

    Without times, a session is a random item and items that the same people have, such as those
    of a shopping trip; all `counts` show which do. It takes a share of the user's items with a
    single event, at least one: any other item would not be new to the user when the session is
    held out. Users with fewer than `min_items` have no session.
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
    """Number of people with both of two items, (n_items, n_items)."""
    return np.asarray((likes.T @ likes).toarray())


def belonging_together(shared: NDArray[np.float32], n_users: int) -> NDArray[np.float32]:
    """How much two of a user's items belong together: the centred logarithm of their lift.

    The lift is the number of people with both items (`shared`) over the number expected by
    chance. The mean of either item's row is subtracted, so that popular items, which have some
    lift with everything, are not in more sessions than others. The result is symmetric and 0 on
    the diagonal, (n_items, n_items).
    """
    n_watchers = np.diag(shared)
    lift = shared / (np.outer(n_watchers, n_watchers) / n_users + _PSEUDO_COUNT)
    together = np.log(lift + np.float32(_LEAST_LIFT))
    np.fill_diagonal(together, 0.0)
    mean = together.sum(axis=0) / max(len(shared) - 1, 1)  # over the others, (n_items,)
    together += mean.mean() - mean[:, None] - mean[None, :]
    np.fill_diagonal(together, 0.0)
    return np.asarray(together, dtype=np.float32)


def gather(
    together: NDArray[np.float32], seed: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw `size` items that belong together, from the first one, `seed`.

    The odds of the next item are the product of its lifts with those drawn so far.
    """
    gathered = [seed]
    log_odds = together[seed].copy()  # summed over those gathered, (n_items,)
    for _ in range(size - 1):
        log_odds[gathered[-1]] = -np.inf
        # The largest of log-odds + Gumbel noise is a draw by these odds.
        gathered.append(int((log_odds + rng.gumbel(size=log_odds.size)).argmax()))
        log_odds += together[gathered[-1]]
    return np.array(gathered)
