"""Hold out a part of each user's items: what a model is judged on, and never sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.sessions import draw_sessions
from cfnade.errors import ConfigError, DataError

HoldOutBy: TypeAlias = Literal["pairs", "events", "sessions"]
"""What is parted: pairs of a user and an item, all alike; the events that were counted; or
sessions, events that belong together, such as a basket."""

MIN_ITEMS = 5
"""Users with fewer items stay whole in train: holding out one would leave too little to go by."""


@dataclass(frozen=True)
class Split:
    """One set of users' counts in three disjoint parts of the same shape, (n_users, n_items)."""

    train: CountMatrix
    """What models are fitted on while settings are being chosen."""

    validation: CountMatrix
    """What settings are chosen on."""

    test: CountMatrix
    """What the final models are judged on, once."""

    @property
    def known(self) -> CountMatrix:
        """Everything a final model may see: train and validation, (n_users, n_items)."""
        return as_count_matrix(self.train + self.validation)


def of_some_users(
    counts: CountMatrix,
    n_users: int,
    rng: int | np.random.Generator,
    *,
    among: NDArray[np.bool_] | None = None,
) -> CountMatrix:
    """The counts of so many users who have any, drawn at random; the other rows are empty.

    Args:
        counts: Sparse, (n_users, n_items).
        n_users: How many at most.
        rng: Seed or generator.
        among: Whom to draw from, (n_users,); None for all.

    Returns:
        (n_users, n_items).
    """
    has_any = np.diff(counts.indptr) > 0
    users = np.flatnonzero(has_any if among is None else has_any & among)
    if users.size <= n_users and (among is None or among[has_any].all()):
        return counts
    is_chosen = np.zeros(counts.shape[0], dtype=np.bool_)
    is_chosen[np.random.default_rng(rng).permutation(users)[:n_users]] = True
    return as_count_matrix(counts.multiply(is_chosen[:, None]))


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
    """Take a random part of each user's items away.

    By pairs, all items of a user are alike. By events it is as if a share of the events were
    held out, and of these the items of which nothing was left behind: those that are new to
    the user, as in a later period. All n events of an item are in that share with the
    probability share^n, so items of many events are hardly ever held out. Each user gives as
    many items as are to be expected, one at least: where all counts are large, the least of them.
    By sessions it is items that belong together, as if each user's last basket were held out, and
    of these again the ones that are new; see `cfnade.data.sessions`.

    An item keeps one of its pairs at least. Of one that nobody is left with a model can know
    only that it is in the catalogue, which it would not be but for those held out.

    Args:
        counts: Sparse, (n_users, n_items).
        share: Of each user's items, events or items of a single event, rounded to the nearest
            number, at least one item if there is any.
        min_items: Users with fewer items keep all of them.
        by: Pairs, events or sessions.
        n_users: Take from so many users at most, drawn at random; None for all.
        among: Users to take from, (n_users,); None for all.
        rng: Seed or generator; the same seed on the same counts gives the same split.

    Returns:
        Kept and held-out counts, both (n_users, n_items), disjoint, adding up to the input.

    Raises:
        ConfigError: If the share is not between 0 and 1, min_items below 2, or `by` none of these.
    """
    check_hold_out_by("by", by)
    if not 0.0 <= share < 1.0:
        raise ConfigError(f"the share to hold out must be at least 0 and below 1, got {share}")
    if min_items < 2:
        raise ConfigError(f"min_items must be at least 2, one of them to keep; got {min_items}")
    counts = as_count_matrix(counts)
    rng = np.random.default_rng(rng)
    most = counts.shape[0] if n_users is None else n_users
    chosen = of_some_users(counts, most, rng, among=among)
    if share == 0.0:
        return counts, _subset(counts, np.zeros(counts.nnz, dtype=bool))
    if by == "sessions":
        is_held = draw_sessions(counts, chosen, share, min_items, rng)
    else:
        is_held = _drawn(chosen, share, min_items, by, rng)
    held = np.flatnonzero(is_held)
    n_left = _n_watchers(counts) - np.bincount(chosen.indices[held], minlength=counts.shape[1])
    last = held[n_left[chosen.indices[held]] == 0]
    _, first_of_item = np.unique(chosen.indices[last], return_index=True)
    is_held[last[first_of_item]] = False
    held_out = _subset(chosen, is_held)
    kept = _subset(counts, ~is_held) if chosen is counts else as_count_matrix(counts - held_out)
    return kept, held_out


def _drawn(
    counts: CountMatrix, share: float, min_items: int, by: HoldOutBy, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which pairs are drawn to be held out, (n_pairs,)."""
    n_items_of = np.diff(counts.indptr)  # (n_users,)
    user_of = np.repeat(np.arange(counts.shape[0]), n_items_of)  # (n_pairs,)
    # Each user's pairs in a random order; the first n_held of each row are held out.
    if by == "pairs":
        n_expected = share * n_items_of
        # Row + a random fraction leaves rows in place: half a unit at most, so that rounding
        # never reaches the next row.
        order = np.argsort(user_of + rng.random(counts.nnz) / 2)
    else:
        log_chance = np.minimum(counts.data * np.log(share), -1e-9)  # of share^n
        n_expected = np.bincount(user_of, np.exp(log_chance), minlength=counts.shape[0])
        # The largest of log-odds + Gumbel noise are a draw by these odds, without putting back.
        log_odds = log_chance - np.log(-np.expm1(log_chance))
        order = np.lexsort((-(log_odds + rng.gumbel(size=counts.nnz)), user_of))
    n_held = np.where(n_items_of >= min_items, np.maximum(1, np.rint(n_expected)), 0)
    n_held = np.minimum(n_held, np.maximum(n_items_of - 1, 0))
    place_in_row = np.arange(counts.nnz) - counts.indptr[user_of]
    is_held = np.zeros(counts.nnz, dtype=bool)
    is_held[order[place_in_row < n_held[user_of]]] = True
    return is_held


def _n_watchers(counts: CountMatrix) -> NDArray[np.int64]:
    """How many have each item, (n_items,)."""
    return np.bincount(counts.indices, minlength=counts.shape[1])


def check_hold_out_by(name: str, by: str) -> None:
    """Refuse what cannot be held out by.

    Raises:
        ConfigError: If it is none of `HoldOutBy`; `name` is what it is called.
    """
    if by not in get_args(HoldOutBy):
        raise ConfigError(f"{name} must be pairs, events or sessions, got {by!r}")


def split_counts(
    counts: CountMatrix,
    *,
    test_share: float = 0.1,
    validation_share: float = 0.1,
    validation_by: HoldOutBy = "pairs",
    min_items: int = MIN_ITEMS,
    rng: int | np.random.Generator = 0,
) -> Split:
    """Split per user: a test part first, then a validation part out of what is left.

    Args:
        counts: Sparse, (n_users, n_items).
        test_share: Of each user's items.
        validation_share: Of each user's remaining items.
        validation_by: Pairs, events or sessions; see `hold_out`. The test part is parted by pairs.
        min_items: Users with fewer items stay whole in train.
        rng: Seed or generator.

    Returns:
        The three parts.

    Raises:
        DataError: If nobody has enough items to hold one out.
    """
    rng = np.random.default_rng(rng)
    known, test = hold_out(counts, share=test_share, min_items=min_items, rng=rng)
    if test_share > 0 and test.nnz == 0:
        raise DataError(
            f"no user has {min_items} items or more that others have too, so there is nothing to "
            "hold out; bring more data, or a test part of its own"
        )
    train, validation = hold_out(
        known, share=validation_share, min_items=min_items, by=validation_by, rng=rng
    )
    return Split(train, validation, test)


def overlap(train: CountMatrix, test: CountMatrix) -> CountMatrix:
    """Pairs of the test part that are in the training part as well.

    Args:
        train: Sparse, (n_users, n_items).
        test: Sparse, (n_users, n_items).

    Returns:
        The test counts of those pairs, (n_users, n_items); `.nnz` tells how many.
    """
    return as_count_matrix(test.multiply(train.astype(bool)))


def without_overlap(train: CountMatrix, test: CountMatrix) -> CountMatrix:
    """The test counts whose pairs are not in the training part, (n_users, n_items)."""
    return as_count_matrix(test - overlap(train, test))


def _subset(counts: CountMatrix, keep: NDArray[np.bool_]) -> CountMatrix:
    """The counts of the pairs to keep, in the same shape."""
    indptr = np.concatenate([[0], np.cumsum(keep)])[counts.indptr]
    return csr_array((counts.data[keep], counts.indices[keep], indptr), shape=counts.shape)
