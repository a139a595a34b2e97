"""Ratings with their scale and ids: what the model of Section 3 learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.data.ingest import columns as known
from cfnade.data.ingest.read import check_rows, number_ids, open_rows
from cfnade.data.ingest.scan import connect
from cfnade.data.pairs import pairs_where, rows_of
from cfnade.errors import DataError, n_of

MOST_LEVELS = 100
"""Values of a scale at most: each has its own weights."""

_RATING_NAMES = ("rating", "ratings", "stars", "star", "score", "grade", "mark", "overall")
_DIGITS = 6  # of a rating after the point: 3.3 is the same rating as float32 and float64


@dataclass(frozen=True, eq=False)
class RatingTable:
    """Who rated what, and how."""

    levels: csr_array
    """Place of each rating on the scale, from 1 to K, uint8, sparse, (n_users, n_items)."""

    scale: NDArray[np.float64]
    """The values that a rating can have, ascending, (K,)."""

    user_ids: NDArray[Any]
    item_ids: NDArray[Any]

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and column of each rating in the order of `levels.data`, (n_ratings,) each."""
        return rows_of(self.levels), self.levels.indices.astype(np.int64)

    @property
    def values(self) -> NDArray[np.float64]:
        """The ratings in the same order, (n_ratings,)."""
        return np.asarray(self.scale[self.levels.data - 1])

    def split(self, share: float, rng: Any) -> tuple[RatingTable, RatingTable]:
        """Hold out a random share of all ratings: those that are kept, and those held out."""
        n_ratings = self.levels.nnz
        place = np.random.default_rng(rng).permutation(n_ratings)
        is_held = np.zeros(n_ratings, dtype=np.bool_)
        is_held[place[: round(share * n_ratings)]] = True
        kept, held = (pairs_where(self.levels, keep) for keep in (~is_held, is_held))
        return replace(self, levels=kept), replace(self, levels=held)


def levels_of(ratings: Any, scale: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Place of each rating on the scale, from 1; raises `DataError` if one is not on it."""
    try:
        rounded = np.round(np.asarray(ratings, dtype=np.float64), _DIGITS)
    except (TypeError, ValueError):
        raise DataError(f"ratings must be numbers, got {ratings!r:.60}") from None
    place = np.minimum(np.searchsorted(scale, rounded), len(scale) - 1)
    off = rounded[scale[place] != rounded]
    if off.size:
        shown = ", ".join(f"{value:g}" for value in scale)
        raise DataError(
            f"{n_of(off.size, 'rating')} not on the scale {shown}: the first is {off[0]:g}; "
            "correct the data or give another scale"
        )
    return np.asarray(place + 1, dtype=np.uint8)


def read_ratings(
    source: Any,
    *,
    user_col: str | None = None,
    item_col: str | None = None,
    rating_col: str | None = None,
    time_col: str | None = None,
    drop_missing_ids: bool = False,
    scale: Sequence[float] | None = None,
) -> RatingTable:
    """Read who rated what, and how; columns that are not given are recognised by their names.

    Args:
        source: As for `read_interactions`: files or a frame; a scipy sparse matrix, of which every
            stored entry is a rating; or a `RatingTable`.
        user_col: Column of users.
        item_col: Column of items.
        rating_col: Column of ratings.
        time_col: Column of times: of several ratings of a pair the latest counts; "none" ignores
            times.
        drop_missing_ids: Leave out rows without a user or an item, and log how many.
        scale: The values that a rating can have; None takes those that occur.

    Raises:
        DataError: If the data cannot be used as they are.
    """
    if isinstance(source, RatingTable):
        return source
    if issparse(source):
        entries = source.tocoo()
        ids = tuple(np.arange(n) for n in entries.shape)
        return _table(entries.row, entries.col, entries.data, ids, scale)
    with connect() as connection:
        rows = open_rows(connection, source)
        roles = {
            "user": known.required_column(rows.columns, user_col, "user", known.USER_NAMES),
            "item": known.required_column(rows.columns, item_col, "item", known.ITEM_NAMES),
            "count": known.required_column(rows.columns, rating_col, "rating", _RATING_NAMES),
        }
        if not known.is_left_out(rows.columns, time_col):
            time = known.find_column(rows.columns, time_col, "time", known.TIME_NAMES)
            roles |= {} if time is None else {"time": time}
        known.report_unused(rows.columns, roles, may_count=False)
        scan = rows.scan(connection, roles)
        query = check_rows(
            connection, scan, roles, drop_missing_ids=drop_missing_ids, are_ratings=True
        ).query
        ids = tuple(number_ids(connection, scan, query, role) for role in ("user", "item"))
        latest = "QUALIFY q.at = max(q.at) OVER (PARTITION BY u.code, i.code)"
        found = connection.execute(
            f"SELECT DISTINCT u.code AS u, i.code AS i, q.number AS r FROM ({query}) AS q "
            'JOIN user_ids AS u ON q."user" = u.id JOIN item_ids AS i ON q."item" = i.id '
            f"{latest if 'time' in roles else ''}"
        ).fetchnumpy()
    return _table(found["u"], found["i"], found["r"], ids, scale)


def _table(
    users: NDArray[Any], items: NDArray[Any], ratings: NDArray[Any], ids: Any, scale: Any
) -> RatingTable:
    """Put ratings, (n_ratings,) with their rows and columns, on a scale."""
    try:
        values = np.asarray(ratings if scale is None else scale, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"a scale is a list of numbers, such as [1, 2, 3]; got {scale!r}") from None
    values = np.unique(np.round(values, _DIGITS))
    if not np.size(ratings):
        raise DataError("there are no ratings; every stored entry of a sparse matrix is one")
    if not np.isfinite(values).all():
        what = "ratings" if scale is None else "the values of a scale"
        raise DataError(f"{what} must be finite numbers; correct them or leave them out")
    if (ratings == ratings[:1]).all():
        raise DataError("all ratings are the same, so there is nothing to learn; check the column")
    if not values.size:
        raise DataError("a scale needs at least one value, such as [1, 2, 3]")
    if len(values) > MOST_LEVELS:
        raise DataError(
            f"ratings must have at most {MOST_LEVELS} different values, got {len(values):,}; "
            "round them, or use ImplicitCFNADE if these are counts"
        )
    levels = csr_array((levels_of(ratings, values), (users, items)), [len(each) for each in ids])
    if levels.nnz < len(ratings):  # scipy adds up repeated pairs
        raise DataError(
            f"{n_of(len(ratings) - levels.nnz, 'pair')} rated more than once, and no time says "
            "which rating is the latest; keep one of them, or name a column of times as time_col"
        )
    return RatingTable(levels.sorted_indices(), values, *ids)
