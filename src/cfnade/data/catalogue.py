"""The items a model knows: their ids, names and columns, and histories written in ids."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.errors import DataError

logger = logging.getLogger(__name__)

Unknown: TypeAlias = Literal["raise", "warn", "ignore"]
"""What to do about items that are not in the catalogue."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Ids and names of a model's items, in the order of its columns."""

    ids: NDArray[Any]
    """As they came in, (n_items,)."""

    names: NDArray[Any] | None = None
    """For people to read, (n_items,), where known."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def column_of(self) -> dict[Hashable, int]:
        """Column of each id."""
        return {item: column for column, item in enumerate(self.ids.tolist())}

    def label(self, item: Hashable) -> str:
        """The item's name where known, else its id."""
        if self.names is None or item not in self.column_of:
            return str(item)
        return str(self.names[self.column_of[item]])

    def columns(self, items: Iterable[Hashable]) -> list[int]:
        """Columns of items by id.

        Raises:
            DataError: If one is not in the catalogue.
        """
        listed = items.tolist() if isinstance(items, np.ndarray) else list(items)
        strangers = [item for item in listed if item not in self.column_of]
        if strangers:
            raise DataError(self._not_known(strangers))
        return [self.column_of[item] for item in listed]

    def history(
        self, history: Mapping[Any, float] | Iterable[Any], *, unknown: Unknown = "raise"
    ) -> CountMatrix:
        """A history by item id as a row of counts.

        Args:
            history: Counts by item id, or ids alone for a count of 1 each (repeats add up).
            unknown: What to do about items that are not in the catalogue.

        Returns:
            Counts, (1, n_items).

        Raises:
            DataError: If a count is not a finite number of at least 0, or an item is unknown.
        """
        if isinstance(history, str):
            raise DataError(f"a history is a mapping or list of item ids, got the text {history!r}")
        pairs = history.items() if isinstance(history, Mapping) else [(i, 1.0) for i in history]
        known = [(self.column_of[item], count) for item, count in pairs if item in self.column_of]
        strangers = [item for item, _ in pairs if item not in self.column_of]
        if strangers and unknown == "raise":
            raise DataError(self._not_known(strangers))
        if strangers and unknown == "warn":
            logger.warning("%s", self._not_known(strangers))
        columns = [column for column, _ in known]
        try:
            counts = np.array([count for _, count in known], dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError("the counts in a history must be numbers") from None
        rows = np.zeros(len(columns), dtype=np.int64)
        return as_count_matrix(csr_array((counts, (rows, columns)), (1, len(self))))

    def _not_known(self, items: list[Any]) -> str:
        others = f" and {len(items) - 1} more are" if len(items) > 1 else " is"
        return (
            f"item {items[0]!r}{others} not in this model ({len(self):,} items); "
            "leave out what it does not know, or train it again"
        )
