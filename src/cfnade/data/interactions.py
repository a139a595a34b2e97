"""Counts with the ids of their users and items: what ingest makes and everything else reads."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.errors import DataError

CountMatrix: TypeAlias = csr_array
"""Counts, sparse, (n_users, n_items): float64, rows sorted, no duplicates, no stored zeros."""


def as_count_matrix(matrix: Any) -> CountMatrix:
    """Bring any scipy sparse matrix into the one form that the package works on.

    Args:
        matrix: `csr_matrix`, `csr_array` or another scipy sparse format, (n_users, n_items).

    Returns:
        A float64 `csr_array` with sorted rows, duplicates summed and zeros dropped. The input
        is never changed; it is returned as it is if it already has this form.

    Raises:
        DataError: If it is not a sparse matrix, or a count is negative, NaN or infinite.
    """
    if not issparse(matrix):
        raise DataError(
            f"expected a scipy sparse matrix of counts, got {type(matrix).__name__}; "
            "wrap a dense array as scipy.sparse.csr_array(array)"
        )
    counts = csr_array(matrix, dtype=np.float64)
    bad = ~np.isfinite(counts.data) | (counts.data < 0)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(counts.indptr, first, side="right")) - 1
        raise DataError(
            f"{int(bad.sum())} of {counts.nnz} counts are negative, NaN or infinite; the first is "
            f"{counts.data[first]} at row {row}, column {int(counts.indices[first])}; "
            "counts must be finite and at least 0"
        )
    if counts.has_canonical_format and (counts.data != 0).all():
        return counts
    counts = counts.copy()
    counts.sum_duplicates()
    counts.eliminate_zeros()
    return counts


@dataclass(frozen=True, eq=False)
class Interactions:
    """Who interacted with what how often.

    A user may have an empty row (nothing is known of them); a count of zero is no interaction.
    """

    counts: CountMatrix
    """Interactions per pair, (n_users, n_items)."""

    user_ids: NDArray[Any]
    """The id of each row as it came in, (n_users,)."""

    item_ids: NDArray[Any]
    """The id of each column as it came in, (n_items,)."""

    item_names: NDArray[Any] | None = None
    """A readable name for each column, (n_items,), where one is known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", as_count_matrix(self.counts))
        expected = {"user_ids": self.n_users, "item_ids": self.n_items, "item_names": self.n_items}
        for field, length in expected.items():
            values = getattr(self, field)
            if values is not None and len(values) != length:
                raise DataError(f"{field} has {len(values)} entries, the counts need {length}")

    @classmethod
    def from_matrix(cls, matrix: Any) -> Interactions:
        """Wrap a scipy sparse matrix; rows and columns are numbered from 0 as ids."""
        counts = as_count_matrix(matrix)
        n_users, n_items = counts.shape
        return cls(counts, np.arange(n_users), np.arange(n_items))

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return int(self.counts.shape[0])

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return int(self.counts.shape[1])

    @property
    def n_pairs(self) -> int:
        """Number of (user, item) pairs with a count above zero."""
        return int(self.counts.nnz)

    @cached_property
    def item_index(self) -> dict[Hashable, int]:
        """Column of each item id."""
        return {item: column for column, item in enumerate(self.item_ids.tolist())}

    @cached_property
    def user_index(self) -> dict[Hashable, int]:
        """Row of each user id."""
        return {user: row for row, user in enumerate(self.user_ids.tolist())}

    def item_label(self, column: int) -> str:
        """The item's name where known, else its id, for people to read."""
        labels = self.item_ids if self.item_names is None else self.item_names
        return str(labels[column])

    def with_item_names(self, names: Mapping[Hashable, str]) -> Interactions:
        """Add readable names by item id; an item without one keeps its id as the name."""
        labels = [names.get(item, str(item)) for item in self.item_ids.tolist()]
        return replace(self, item_names=np.array(labels, dtype=object))
