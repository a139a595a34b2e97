"""Which items may be recommended to whom: what is allowed less what is left out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.data.catalogue import Catalogue, Unknown
from cfnade.errors import DataError

Items: TypeAlias = Iterable[Hashable] | Sequence[Iterable[Hashable]] | NDArray[Any]
"""Items meant, for all users or for each of them; see `item_sets`."""


@dataclass(frozen=True, eq=False)
class ItemSets:
    """A set of columns for all users, or one for each."""

    columns: NDArray[np.integer]
    """All sets, one after the other."""

    starts: NDArray[np.integer] | None = None
    """Where each user's set starts, (n_users + 1,); None for one set that serves all."""

    @classmethod
    def of_rows(cls, matrix: csr_array) -> ItemSets:
        """What is stored in each row of a sparse matrix, (n_users, n_items)."""
        return cls(matrix.indices, matrix.indptr)

    def places(self, users: slice) -> tuple[Any, NDArray[np.integer]]:
        """Rows, counted from the first of these users, and columns of what is in their sets."""
        if self.starts is None:
            return slice(None), self.columns
        starts = self.starts[users.start : users.stop + 1]
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return rows, self.columns[starts[0] : starts[-1]]


@dataclass(frozen=True, eq=False)
class Candidates:
    """What may be recommended to each user."""

    items: ItemSets | None
    """To choose from; None for all."""

    left_out: list[ItemSets]
    """Never to recommend, whatever the reason."""

    def rule_out(self, scores: NDArray[np.floating], users: slice) -> None:
        """Give what may not be recommended a score of minus infinity, in place.

        Args:
            scores: Of these users, (n_users, n_items).
            users: Who they are.
        """
        if self.items is not None:
            is_ruled_out = np.ones(scores.shape, dtype=np.bool_)
            is_ruled_out[self.items.places(users)] = False
            scores[is_ruled_out] = -np.inf
        for left_out in self.left_out:
            scores[left_out.places(users)] = -np.inf


def item_sets(
    items: Items, catalogue: Catalogue, n_users: int, *, name: str, unknown: Unknown = "raise"
) -> ItemSets:
    """Read a filter in any of its forms.

    Args:
        items: One of
            - ids, for all users;
            - a list with one list, set or array of ids for each user (none of which can itself
              be an id, so the two are never mixed up);
            - a mask: booleans or a sparse matrix whose stored values are the items meant,
              (n_items,) for all users or (n_users, n_items) for each.
        catalogue: Of the ids.
        n_users: In the batch.
        name: Of the argument, for messages.
        unknown: What to do about ids that are not in the catalogue.

    Returns:
        The columns.

    Raises:
        DataError: If the shape does not fit, or an id is not known.
    """
    if issparse(items) or (isinstance(items, np.ndarray) and items.dtype == np.bool_):
        return _from_mask(items, len(catalogue), n_users, name)
    if isinstance(items, str):
        raise DataError(f"{name} takes a list of item ids, got the text {items!r}")
    listed = items.tolist() if isinstance(items, np.ndarray) else list(items)
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
    starts = np.cumsum([0, *map(len, columns)])
    return ItemSets(np.concatenate([np.array(c, dtype=np.int64) for c in columns]), starts)


def _from_mask(mask: Any, n_items: int, n_users: int, name: str) -> ItemSets:
    if mask.shape == (n_items,):
        dense = mask.toarray() if issparse(mask) else mask
        return ItemSets(np.flatnonzero(dense))
    if mask.shape != (n_users, n_items):
        raise DataError(
            f"the mask {name} must have the shape ({n_items},) or ({n_users}, {n_items}); "
            f"got {mask.shape}"
        )
    rows = csr_array(mask, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return ItemSets.of_rows(rows)
