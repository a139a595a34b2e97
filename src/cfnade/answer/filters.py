"""Which items may be recommended to whom, and the best of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.data.catalogue import Catalogue, Unknown, as_list
from cfnade.errors import DataError

Ranked: TypeAlias = tuple[NDArray[Any], NDArray[np.float32]]
"""Ids and scores, best first."""

Items: TypeAlias = (
    Iterable[Hashable] | Sequence[Iterable[Hashable]] | NDArray[Any] | Mapping[str, Any]
)
"""A set of items for all users, or one for each; see `item_sets`."""

_CHUNK = 64  # items


@dataclass(frozen=True, eq=False)
class ItemSets:
    """A set of columns for all users, or one for each."""

    columns: NDArray[np.integer]
    """All sets, one after the other."""
    starts: NDArray[np.integer] | None = None
    """Where each user's set starts, (n_users + 1,); None for one set that serves all."""

    def of(self, user: int) -> NDArray[np.integer]:
        """Columns of one user."""
        if self.starts is None:
            return self.columns
        return self.columns[self.starts[user] : self.starts[user + 1]]


def rule_out(
    scores: NDArray[np.floating], only: NDArray[np.integer] | None, *never: NDArray[np.integer]
) -> None:
    """Set scores of one user, (n_items,), to minus infinity: outside `only`, and of `never`."""
    if only is not None:
        kept = scores[only]
        scores.fill(-np.inf)
        scores[only] = kept
    for columns in never:
        scores[columns] = -np.inf


def item_sets(
    items: Items, catalogue: Catalogue, n_users: int, *, name: str, unknown: Unknown = "raise"
) -> ItemSets:
    """Read a filter in any of its forms.

    These are ids for all users; a list with one list, set or array of ids for each user (an id is
    none of these); a mask, booleans or a sparse matrix, (n_items,) for all users or
    (n_users, n_items) for each; or a mapping from columns of the items table to a value or several,
    such as `{"category": "film"}`. A mapping whose keys are all item ids, as a history, stands for
    these. Messages call the filter `name`.

    Raises:
        DataError: If the shape is wrong, or an id, a column or a value is unknown.
    """
    if isinstance(items, Mapping) and not items.keys() <= catalogue.column_of.keys():
        return ItemSets(catalogue.with_features(items))
    if issparse(items) or (isinstance(items, np.ndarray) and items.dtype == np.bool_):
        return _from_mask(items, len(catalogue), n_users, name)
    listed = as_list(name, items)
    is_mask = bool(listed) and all(isinstance(entry, (bool, np.bool_)) for entry in listed)
    if is_mask and not isinstance(catalogue.ids.tolist()[0], bool):
        return _from_mask(np.array(listed), len(catalogue), n_users, name)
    n_collections = sum(isinstance(entry, (list, set, np.ndarray)) for entry in listed)
    if n_collections == 0:
        return ItemSets(np.array(catalogue.columns(listed, unknown=unknown), dtype=np.int64))
    if n_collections != len(listed) or len(listed) != n_users:
        raise DataError(
            f"{name} takes item ids, or one list of them for each of the {n_users} users; got "
            f"{len(listed)} entries of which {n_collections} are lists"
        )
    columns = [catalogue.columns(entry, unknown=unknown) for entry in listed]
    together = np.array([*chain.from_iterable(columns)], dtype=np.int64)
    return ItemSets(together, np.cumsum([0, *map(len, columns)]))


def _from_mask(mask: Any, n_items: int, n_users: int, name: str) -> ItemSets:
    if mask.shape == (n_items,):
        return ItemSets(np.flatnonzero(mask.toarray() if issparse(mask) else mask))
    if mask.shape != (n_users, n_items):
        raise DataError(
            f"the mask {name} must have the shape ({n_items},) or ({n_users}, {n_items}); "
            f"got {mask.shape}"
        )
    rows = csr_array(mask, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return ItemSets(rows.indices, rows.indptr)


def top_items(scores: NDArray[np.floating], n: int) -> list[NDArray[np.int64]]:
    """Columns of at most n items of each row, best first; ties in the order of columns.

    Scores, (n_rows, n_items), are minus infinity for items that may not be recommended.
    """
    n_rows = len(scores)
    if n < 1 or n_rows == 0:
        return [np.empty(0, dtype=np.int64)] * n_rows
    row, column = at_least(scores, nth_good(scores, n))
    order = np.lexsort((column, -scores[row, column], row))
    ends = np.cumsum(np.bincount(row, minlength=n_rows))
    return [part[:n] for part in np.split(column[order], ends[:-1])]


def nth_good(scores: NDArray[np.floating], n: int) -> NDArray[np.floating]:
    """A high score that at least n items of each row reach, (n_rows,); minus infinity if none is.

    The best items of n chunks are n items.
    """
    best, _ = _chunk_maxima(scores, n)
    return _nth_largest(best, n)


def best_of_chunks(
    scores: NDArray[np.floating], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of n good items of each row; fewer if fewer are allowed or adjacent."""
    best, chunks = _chunk_maxima(scores, n)
    row, chunk = at_least(best, _nth_largest(best, n))
    return row, chunk + best.shape[1] * chunks[row, :, chunk].argmax(axis=1)


def at_least(
    scores: NDArray[np.floating], threshold: NDArray[np.floating]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the scores that reach the threshold of their row, (n_rows,), in order.

    Minus infinity reaches none.
    """
    is_good = scores >= threshold[:, None]
    if np.isneginf(threshold).any():
        is_good &= scores > -np.inf
    return np.divmod(np.flatnonzero(is_good), scores.shape[1])  # quicker than in two dimensions


def _chunk_maxima(
    scores: NDArray[np.floating], n: int
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """The best score of each chunk of a row, (n_rows, n_chunks), and the chunks.

    Neighbours are in different chunks, as good items are often adjacent. The best items of n
    chunks are n items, so at least n items reach the n-th best maximum of a chunk. If there are
    not many more chunks than n, each item is one.
    """
    n_rows, n_items = scores.shape
    n_chunks = n_items // _CHUNK
    if n_chunks <= 2 * n:
        return scores, scores[:, None, :]
    chunks = scores[:, : n_chunks * _CHUNK].reshape(n_rows, _CHUNK, n_chunks)
    return chunks.max(axis=1), chunks


def _nth_largest(scores: NDArray[np.floating], n: int) -> NDArray[np.floating]:
    """Of each row, (n_rows,); minus infinity if there are fewer."""
    place = scores.shape[1] - n
    if place <= 0:
        return np.full(len(scores), -np.inf, dtype=scores.dtype)
    return np.asarray(np.partition(scores, place, axis=1)[:, place])


def stack(rows: list[Ranked], ids: NDArray[Any], n: int) -> Ranked:
    """Stack the answers of many rows, with ids of the type of `ids`, without padding.

    Returns:
        Two arrays (n_rows, n) if all answers have one length or there are none, else two object
        arrays (n_rows,) of arrays: `ids[row]` works in both cases.
    """
    lengths = {len(scores) for _, scores in rows} or {n}
    is_even = len(lengths) == 1
    shape = (len(rows), lengths.pop()) if is_even else (len(rows),)
    stacked_ids = np.empty(shape, ids.dtype if is_even else object)
    stacked_scores = np.empty(shape, np.float32 if is_even else object)
    for row, (row_ids, row_scores) in enumerate(rows):
        stacked_ids[row], stacked_scores[row] = row_ids, row_scores
    return stacked_ids, stacked_scores
