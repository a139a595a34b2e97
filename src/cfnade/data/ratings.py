"""Relative ratings (Section 5.1), likes and confidences (Eq. 5 and 6)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.checks import check_at_least
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.pairs import pairs_where
from cfnade.data.sklearn_rules import tags
from cfnade.errors import ConfigError, DataError

_MOST_WATCHERS = 1 << 53  # sums and shares of larger numbers would not be exact


class RelativeRating:
    """Share of an item's watchers whose count is no larger than this one (Section 5.1).

    Ten episodes of a long series mean little, one visit to a film a lot; the share of the
    item's own watchers puts both on one scale. It is SQL's
    `cume_dist() over (partition by item order by count)`. The fitted distributions also rate the
    counts of new users:

    - a count between two seen ones gets the share of the lower one;
    - a count above the largest gets 1;
    - a count below the smallest of n watchers gets 1 / (n + 1), as if they had joined as the
      lightest watcher (a rating of 0 would mean "not watched");
    - by the same rule, the first watcher of an item gets 1.

    Only the order of an item's counts matters, so relative ratings of relative ratings are the
    same ratings. This is a scikit-learn transformer without settings: in a pipeline before
    `ImplicitCFNADE`, which fits one itself, it changes nothing; before other estimators it does.

    Attributes:
        n_items_: Number of items seen in `fit`.
        n_features_in_: The same, by scikit-learn's name.
        item_starts_: Where each item's distribution starts in the two arrays below, (n_items + 1,).
        distinct_counts_: Each item's distinct counts, ascending, one item after the other.
        n_watchers_up_to_: How many of the item's watchers have at most that count.
    """

    n_items_: int
    item_starts_: NDArray[np.int64]
    distinct_counts_: NDArray[np.float64]
    n_watchers_up_to_: NDArray[np.int64]

    # scikit-learn's rules ----------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, for scikit-learn: none."""
        return {}

    def set_params(self, **params: Any) -> RelativeRating:
        """Change settings, for scikit-learn: there are none."""
        if params:
            raise ConfigError(f"RelativeRating has no settings, got {', '.join(params)}")
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __sklearn_tags__(self) -> Any:
        return tags(is_transformer=True)

    @property
    def n_features_in_(self) -> int:
        """Number of items seen in `fit`."""
        return self.n_items_

    # Counts to ratings -------------------------------------------------------------------------

    def fit(self, counts: CountMatrix, y: None = None) -> RelativeRating:
        """Learn each item's count distribution from counts, (n_users, n_items); `y` is unused."""
        counts = as_count_matrix(counts)
        for cached in ("n_watchers", "_steps", "_table"):  # of an earlier fit
            self.__dict__.pop(cached, None)
        self.n_items_ = counts.shape[1]
        self.item_starts_, self.distinct_counts_, self.n_watchers_up_to_ = _distributions(
            self.n_items_, counts.indices, counts.data
        )
        return self

    @classmethod
    def from_distributions(
        cls,
        item_starts: NDArray[np.int64],
        distinct_counts: NDArray[np.float64],
        n_watchers_up_to: NDArray[np.int64],
    ) -> RelativeRating:
        """Restore a fitted one from its three arrays, which are checked."""
        _check_distributions(item_starts, distinct_counts, n_watchers_up_to)
        ratings = cls()
        ratings.n_items_ = item_starts.size - 1
        ratings.item_starts_ = item_starts
        ratings.distinct_counts_ = distinct_counts
        ratings.n_watchers_up_to_ = n_watchers_up_to
        return ratings

    @classmethod
    def from_entries(
        cls,
        n_items: int,
        items: NDArray[np.integer],
        counts: NDArray[np.float64],
        n_watchers: NDArray[np.int64],
    ) -> RelativeRating:
        """From the number of watchers of each item who have each count, in any order."""
        return cls.from_distributions(*_distributions(n_items, items, counts, n_watchers))

    def transform(self, counts: CountMatrix) -> CountMatrix:
        """Turn counts of any users, (n_users, n_items), into relative ratings in (0, 1].

        A dislike, a count below 0, has the rating -1.

        Raises:
            DataError: If it is not fitted, or was fitted on another number of items.
        """
        if not hasattr(self, "n_items_"):
            raise DataError("this RelativeRating is not fitted yet; call fit(counts) first")
        counts = as_count_matrix(counts, signed=True)
        if counts.shape[1] != self.n_items_:
            raise DataError(
                f"the ratings were fitted on {self.n_items_} items, got {counts.shape[1]}; "
                "columns must be the same items in the same order"
            )
        ratings = self.of_pairs(counts.indices, counts.data)
        return csr_array((ratings, counts.indices, counts.indptr), shape=counts.shape)

    def fit_transform(self, counts: CountMatrix, y: None = None) -> CountMatrix:
        """Fit on counts and return their relative ratings, (n_users, n_items)."""
        return self.fit(counts).transform(counts)

    @cached_property
    def n_watchers(self) -> NDArray[np.int64]:
        """Number of watchers of each item, (n_items,)."""
        ends = self.item_starts_[1:]
        up_to = np.concatenate([self.n_watchers_up_to_, [0]])
        return np.where(ends > self.item_starts_[:-1], up_to[ends - 1], 0)

    def merged_with(self, more: RelativeRating) -> RelativeRating:
        """The distributions of both, as if fitted on the rows of both.

        The other has the same items in the same order, and perhaps further ones at the end. A user
        in both counts as two watchers.
        """
        return self._with_items_from(0, more)

    def followed_by(self, more: RelativeRating) -> RelativeRating:
        """These distributions, followed by those of the other's further items."""
        return self._with_items_from(self.n_items_, more)

    def _with_items_from(self, first: int, more: RelativeRating) -> RelativeRating:
        """Add the other's watchers of the items from the first one on."""
        if more.n_items_ < self.n_items_:
            raise DataError(
                f"expected distributions of at least {self.n_items_} items, got {more.n_items_}"
            )
        start = more.item_starts_[first]
        entries = (
            np.concatenate([own, others[start:]])
            for own, others in zip(self.entries(), more.entries(), strict=True)
        )
        return self.from_distributions(*_distributions(more.n_items_, *entries))

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Item, count and number of watchers with exactly that count, (n_entries,) each."""
        item = np.repeat(np.arange(self.n_items_), np.diff(self.item_starts_))
        n_watchers = np.diff(self.n_watchers_up_to_, prepend=0)
        starts = self.item_starts_[:-1][np.diff(self.item_starts_) > 0]
        n_watchers[starts] = self.n_watchers_up_to_[starts]
        return item, self.distinct_counts_, n_watchers

    @cached_property
    def _steps(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """All distinct counts, ascending; where the rating changes; and the rating from there on.

        A place is a key of an item and a rank: 0 for a count below all, r for the r-th distinct
        count or one up to the next. So one search serves all items.
        """
        values = np.unique(self.distinct_counts_)
        item_of, _, _ = self.entries()
        ranks = np.searchsorted(values, self.distinct_counts_) + 1
        starts, n_watchers = self.item_starts_[:-1], self.n_watchers
        lowest = _keys(np.arange(self.n_items_), np.zeros(1, np.int64), values.size + 1)
        places = np.insert(_keys(item_of, ranks, values.size + 1), starts, lowest)
        shares = np.insert(
            self.n_watchers_up_to_ / n_watchers[item_of], starts, 1 / (n_watchers + 1)
        )
        return values, places, shares

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """The rating of every key of `_steps`."""
        values, places, shares = self._steps
        n_keys = self.n_items_ * (values.size + 1)
        return np.repeat(shares, np.diff(places, append=n_keys))

    def prepare(self, n_pairs: int) -> None:
        """Make a table of all ratings if it is smaller than the pairs that will be rated."""
        if self.n_items_ * (self._steps[0].size + 1) < n_pairs:
            self._table  # noqa: B018 (cached)

    def of_pairs(
        self, items: NDArray[np.integer], counts: NDArray[np.floating]
    ) -> NDArray[np.float64]:
        """Relative ratings of counts of these items, (n_pairs,) each: in (0, 1]; -1 of dislikes."""
        self.prepare(items.size)
        values, places, shares = self._steps
        keys = _keys(items, np.searchsorted(values, counts, side="right"), values.size + 1)
        if "_table" in self.__dict__:
            ratings = self._table[keys]
        else:
            ratings = shares[np.searchsorted(places, keys, side="right") - 1]
        ratings[counts < 0] = -1.0
        return ratings


def _check_distributions(
    starts: NDArray[np.int64], counts: NDArray[np.float64], up_to: NDArray[np.int64]
) -> None:
    """Refuse arrays from a file that no `fit` could have made."""
    if not (starts.ndim == counts.ndim == up_to.ndim == 1 and starts.size and starts[0] == 0):
        raise DataError("count distributions need one start for each item, from 0, and one more")
    if (np.diff(starts) < 0).any() or not starts[-1] == counts.size == up_to.size:
        raise DataError("count distributions must follow each other and fill their arrays")
    is_first = np.zeros(counts.size, dtype=np.bool_)  # of an item's counts
    is_first[starts[:-1][np.diff(starts) > 0]] = True
    if up_to.size and not 0 < up_to.min() <= up_to.max() < _MOST_WATCHERS:
        raise DataError("the number of watchers of an item must be above 0 and below 2 ** 53")
    for values in (counts, up_to):
        rises = np.diff(values, prepend=0) > 0
        if not (np.isfinite(values).all() and (values > 0).all() and (rises | is_first).all()):
            raise DataError("counts and watchers of an item must be finite, above 0 and ascending")


def _distributions(
    n_items: int,
    items: NDArray[np.integer],
    counts: NDArray[np.float64],
    n_watchers: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """The three arrays of `RelativeRating`, from entries of one watcher each or of several."""
    values = np.unique(counts)  # usually few
    keys = _keys(items, np.searchsorted(values, counts), values.size)
    if n_items * values.size < keys.size:  # no sort
        total = np.bincount(keys, n_watchers, n_items * values.size)
        keys, n_watchers = np.flatnonzero(total), total[total > 0].astype(np.int64)
    else:
        keys, place = np.unique(keys, return_inverse=True)
        n_watchers = np.bincount(place, n_watchers).astype(np.int64)
    item, rank = np.divmod(keys, max(values.size, 1))
    starts = np.searchsorted(item, np.arange(n_items + 1)).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(n_watchers)])
    return starts, values[rank], total[1:] - total[starts[item]]


def _keys(items: NDArray[np.integer], ranks: NDArray[np.integer], n: int) -> NDArray[np.int64]:
    """Order pairs by item, then by the rank of their value among n, in one integer."""
    return items.astype(np.int64) * n + ranks


def confidence(relative_rating: NDArray[np.floating], alpha: float) -> NDArray[np.float32]:
    """Confidence of a like (Eq. 6): `1 + alpha * relative_rating`, in the same shape.

    Only observed pairs are stored: likes (Eq. 5: like = 1 where the rating is above 0), and
    dislikes, whose rating is below 0. The sign stays: -c is a dislike with confidence c, which is
    like 0 in the equations. A pair that is not stored has like 0 and confidence 1.
    """
    check_at_least(0, alpha=alpha)
    size = 1.0 + alpha * np.abs(relative_rating)
    return np.asarray(np.copysign(size, relative_rating), dtype=np.float32)


def likes_alone(pairs: csr_array) -> csr_array:
    """The pairs above 0 of signed counts, ratings or confidences; itself if there are no others.

    Args:
        pairs: Below 0 where disliked, sparse, (n_users, n_items).

    Returns:
        Of the same shape.
    """
    is_disliked = pairs.data < 0
    return pairs_where(pairs, ~is_disliked) if is_disliked.any() else pairs


def dislikes_alone(pairs: csr_array) -> csr_array:
    """The pairs below 0; otherwise as `likes_alone`."""
    return pairs_where(pairs, pairs.data < 0)


def popularity_logit(likes: csr_array) -> NDArray[np.float32]:
    """Logit of each item's share of users, (n_items,): a score without knowledge of the user.

    Each stored value is a like, (n_users, n_items). Empty rows do not count.
    """
    n_users = int(np.count_nonzero(np.diff(likes.indptr)))
    return share_logit(np.bincount(likes.indices, minlength=likes.shape[1]), n_users)


def share_logit(n_watchers: NDArray[np.integer], n_users: int) -> NDArray[np.float32]:
    """Logit of a share of users, smoothed so that it is finite for none and for all."""
    share = (n_watchers + 0.5) / (n_users + 1.0)
    return np.log(share / (1.0 - share)).astype(np.float32)
