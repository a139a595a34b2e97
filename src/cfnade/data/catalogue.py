"""The items of a model: ids, names and columns, and histories by item id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.checks import check_choice
from cfnade.data.addresses import KINDS
from cfnade.data.described_items import DescribedItems
from cfnade.data.interactions import (
    CountMatrix,
    Interactions,
    append_ids,
    as_count_matrix,
    places_among,
)
from cfnade.data.item_features import ItemFeatures
from cfnade.errors import DataError

logger = logging.getLogger(__name__)

Unknown: TypeAlias = Literal["raise", "warn", "ignore"]
"""What to do about items that are not in the catalogue."""

History: TypeAlias = Mapping[Any, Any] | Iterable[Any]
"""Counts by item id, which `HistoryReader` makes of events with times and kinds; ids alone; or a
sparse row of counts, (1, n_items) or (n_items,)."""

_ALONE: Any = object()  # in place of the value of an id alone


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Ids and names of a model's items, in the order of its columns."""

    ids: NDArray[Any]
    """The original ids, (n_items,)."""

    names: NDArray[Any] | None = None
    """Readable names, (n_items,), if known."""

    features: ItemFeatures | None = None
    """What is known about the items, (n_items, n_features), if anything is."""

    addresses: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Safe addresses by what they lead to (`addresses.KINDS`) and by column, where known."""

    def __post_init__(self) -> None:
        if self.features is not None and self.features.n_items != len(self.ids):
            raise DataError(
                f"the features are of {self.features.n_items:,} items, not of {len(self.ids):,}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def column_of(self) -> dict[Hashable, int]:
        """Column of each id."""
        return {item: column for column, item in enumerate(self.ids.tolist())}

    def label(self, item: Hashable) -> str:
        """The item's name if known, else its id."""
        if self.names is None or item not in self.column_of:
            return str(item)
        return str(self.names[self.column_of[item]])

    def entry(self, column: int) -> dict[str, Any]:
        """Id and name of an item, for JSON."""
        item = self.ids[[column]].tolist()[0]
        return {"item": item, "name": self.label(item)}

    def columns(self, items: Iterable[Hashable], *, unknown: Unknown = "raise") -> list[int]:
        """Columns of the known items, in the given order.

        Raises:
            DataError: If these are no ids, or an item is unknown and `unknown` is "raise".
        """
        listed = as_ids("items", items)
        self._report_unknown([i for i in listed if i not in self.column_of], unknown)
        return [self.column_of[item] for item in listed if item in self.column_of]

    def with_features(self, wanted: Mapping[str, Any]) -> NDArray[np.int64]:
        """Columns of the items with these features; see `ItemFeatures.with_any`.

        Raises:
            DataError: If a column or a value is unknown, or nothing is known about the items.
        """
        if self.features is None:
            raise DataError(
                f"nothing is known about the items' {', '.join(map(str, wanted))}: the model was "
                "fitted without an items table; fit it with items=..., or choose items by id"
            )
        return self.features.with_any(wanted)

    def history(self, history: History, *, unknown: Unknown = "raise") -> CountMatrix:
        """Turn a history by item id into a row of counts, (1, n_items).

        Args:
            history: Counts by item id (a mapping or a pandas Series); ids alone, with a count of
                1 each (repeats add up); or a sparse row of counts, (1, n_items) or (n_items,), of
                which those below 0 are dislikes.
            unknown: What to do about items that are not in the catalogue.

        Raises:
            DataError: If a count is not a finite number of at least 0, or an item is unknown.
        """
        if issparse(history):
            row = as_histories(history)
            if row.shape != (1, len(self)):
                raise DataError(
                    f"a history is one row of counts, (1, {len(self)}); got {row.shape}; "
                    "pass user_items[userid]"
                )
            return row
        return self._row(counted_items(history), unknown, "counts in a history")

    def dislikes(
        self, disliked: History, *, weight: Callable[[int], float], unknown: Unknown = "raise"
    ) -> CountMatrix:
        """Turn dislikes by item id into a row of confidences, (1, n_items).

        Args:
            disliked: Confidences of at least 1 by item id, or ids alone.
            weight: Confidence of ids alone, by their number.
            unknown: What to do about items that are not in the catalogue.

        Raises:
            DataError: If a confidence is not a finite number of at least 1, or an item is unknown.
        """
        found = dict(_pairs("disliked", disliked, _ALONE))  # repeats do not add up
        usual = weight(len(found))
        pairs = [(item, usual if value is _ALONE else value) for item, value in found.items()]
        return self._row(pairs, unknown, "weights of disliked items", least=1.0)

    def align(self, data: Interactions, *, unknown: Unknown = "raise") -> CountMatrix:
        """Bring the counts of a table into the columns of the catalogue, (n_users, n_items).

        Ids are compared as text if the types differ.

        Raises:
            DataError: If an item is unknown and `unknown` is "raise", or all are unknown.
        """
        column_of = places_among(data.item_ids, self.ids, self.column_of)
        is_new = column_of[data.counts.indices] < 0  # (n_pairs,)
        if data.n_pairs and is_new.all():
            raise DataError(f"the model knows none of the items: {self._examples(data)}")
        new = np.unique(data.counts.indices[is_new])
        self._report_unknown(data.item_ids[new].tolist(), unknown)
        return _in_columns(data.counts, column_of, len(self))

    def numbered(self, matrix: Any) -> Interactions:
        """A bare matrix of counts with the ids of the catalogue, and column numbers for new items.

        Raises:
            DataError: If it has fewer columns than the catalogue, or more although ids are not
                column numbers.
        """
        counts = as_count_matrix(matrix)
        n_users, n_columns = counts.shape
        ids = self.ids
        if n_columns < len(ids):
            raise DataError(
                f"a matrix must have the model's {len(ids)} items as its first columns, got "
                f"{n_columns} columns; to give fewer, pass a frame or Interactions, with ids"
            )
        numbers = np.arange(n_columns)
        if n_columns > len(ids):
            if ids.dtype.kind not in "iu" or not np.array_equal(ids, numbers[: len(ids)]):
                raise DataError(
                    f"a matrix of {n_columns} columns has {n_columns - len(ids)} items without "
                    f"an id: the model's ids are like {ids[:1].tolist()[0]!r}; pass a frame or "
                    "Interactions, with ids"
                )
            ids = numbers
        return Interactions(counts, np.arange(n_users), ids)

    def grown(self, data: Interactions) -> tuple[Catalogue, CountMatrix]:
        """Append the new items of a table to the catalogue.

        Args:
            data: With its own order of items. If the types of the ids differ, they are compared as
                text, and new ids take this catalogue's type.

        Returns:
            The longer catalogue, or itself if nothing is new; and the counts in its columns,
            (n_users, n_items). A known item keeps its column and name.

        Raises:
            DataError: If no item is known, or the new ids cannot take the known type.
        """
        column_of = places_among(data.item_ids, self.ids, self.column_of)
        is_new = column_of < 0
        if data.n_pairs and is_new[data.counts.indices].all():
            raise DataError(
                f"the model knows none of the items: {self._examples(data)}; new items are learnt "
                "from users who also have known ones: give whole histories, with ids of one type"
            )
        column_of[is_new] = len(self) + np.arange(np.count_nonzero(is_new))
        catalogue = self
        if is_new.any():
            ids = append_ids(self.ids, data.item_ids[is_new])
            if len(set(ids.tolist())) < len(ids):
                raise DataError("item ids must be distinct; one occurs more than once")
            features = None if self.features is None else self.features.grown(len(ids))
            names = self._grown_names(data, column_of, ids)
            catalogue = replace(self, ids=ids, names=names, features=features)
        return catalogue, _in_columns(data.counts, column_of, len(catalogue))

    def described(self, table: DescribedItems) -> Catalogue:
        """Add what a table says about items, and the items that only the table has.

        Rows of the table replace what was known about their items, and their addresses. A known
        item keeps its column and name.

        Raises:
            DataError: If nothing is known about any item of the data, or ids cannot take the known
                type.
        """
        places = places_among(table.ids, self.ids, self.column_of)
        is_new = places < 0
        if is_new.all() and self.features is None:  # there is nothing to learn from
            raise DataError(
                "the items table has none of the items: its ids look like "
                f"{table.ids[:1].tolist()[0]!r}, those of the data like "
                f"{self.ids[:1].tolist()[0]!r}; write both alike"
            )
        if table.features.n_features == 0:  # names alone say nothing about unknown items
            names = self._described_names(table, places, self.ids)
            return replace(self, names=names, addresses=self._described_addresses(table, places))
        places[is_new] = len(self) + np.arange(np.count_nonzero(is_new))
        ids = append_ids(self.ids, table.ids[is_new]) if is_new.any() else self.ids
        parts = [(places, table.features)]
        if self.features is not None:
            kept = np.arange(len(self))
            kept[places[places < len(self)]] = -1
            parts.insert(0, (kept, self.features))
        features = ItemFeatures.joined(len(ids), parts)
        names, addresses = (
            self._described_names(table, places, ids),
            self._described_addresses(table, places),
        )
        return Catalogue(ids, names, features, addresses)

    def _described_addresses(
        self, table: DescribedItems, places: NDArray[np.intp]
    ) -> dict[str, dict[int, str]]:
        """Own addresses, and those of the table in their place."""
        pairs = list(zip(table.ids.tolist(), places.tolist(), strict=True))
        found = {}
        for kind in KINDS:
            theirs = table.addresses.get(kind, {})
            new = {place: theirs[item] for item, place in pairs if place >= 0 and item in theirs}
            found[kind] = {**self.addresses.get(kind, {}), **new}
        return {kind: by_column for kind, by_column in found.items() if by_column}

    def _described_names(
        self, table: DescribedItems, places: NDArray[np.intp], ids: NDArray[Any]
    ) -> NDArray[Any] | None:
        """Own names, those of the table for items without one, else ids."""
        if self.names is None and not table.names:
            return None
        names = np.array([str(item) for item in ids.tolist()], dtype=object)
        for item, place in zip(table.ids.tolist(), places.tolist(), strict=True):
            if place >= 0 and item in table.names:
                names[place] = table.names[item]
        if self.names is not None:
            names[: len(self)] = self.names
        return names

    def _grown_names(
        self, data: Interactions, column_of: NDArray[np.intp], ids: NDArray[Any]
    ) -> NDArray[Any] | None:
        """Names of a longer catalogue, from its own and the table's; else ids."""
        if self.names is None and data.item_names is None:
            return None
        names = np.array([str(item) for item in ids.tolist()], dtype=object)
        if data.item_names is not None:
            names[column_of] = data.item_names
        if self.names is not None:
            names[: len(self)] = self.names
        return names

    def _row(
        self, pairs: list[tuple[Any, float]], unknown: Unknown, what: str, least: float = 0.0
    ) -> CountMatrix:
        """Values by item id as a row, (1, n_items)."""
        columns = self.columns([item for item, _ in pairs], unknown=unknown)
        known = [value for item, value in pairs if item in self.column_of]
        try:
            values = np.array(known, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"the {what} must be numbers") from None
        if not (np.isfinite(values) & (values >= least)).all():
            raise DataError(f"the {what} must be finite and at least {least:g}")
        return as_count_matrix(csr_array((values, columns, [0, len(columns)]), (1, len(self))))

    def _examples(self, data: Interactions) -> str:
        """One id of a table and one of this catalogue, for messages."""
        other = data.item_ids[data.counts.indices[:1]].tolist()[0]
        return f"they look like {other!r}, its own like {self.ids[:1].tolist()[0]!r}"

    def _report_unknown(self, items: list[Any], unknown: Unknown) -> None:
        """Raise, warn or ignore that these items are not in the catalogue."""
        check_choice("unknown", unknown, get_args(Unknown))
        if not items or unknown == "ignore":
            return
        others = f" and {len(items) - 1} more are" if len(items) > 1 else " is"
        message = (
            f"item {items[0]!r}{others} not in this model ({len(self):,} items); "
            "leave out unknown items, or train the model again"
        )
        if unknown == "raise":
            raise DataError(message)
        logger.warning("%s", message)


def _in_columns(counts: CountMatrix, column_of: NDArray[np.intp], n_items: int) -> CountMatrix:
    """The counts in other columns, (n_users, n_items); column -1 is left out."""
    pairs = counts.tocoo()
    columns = column_of[pairs.col]  # (n_pairs,)
    known = columns >= 0
    places = (pairs.row[known], columns[known])
    return as_count_matrix(csr_array((pairs.data[known], places), (counts.shape[0], n_items)))


def counted_items(history: History) -> list[tuple[Any, Any]]:
    """Items and counts of a history that is no matrix; ids alone count 1 each."""
    return _pairs("a history", history, 1.0)


def _pairs(name: str, values: History, alone: float) -> list[tuple[Any, float]]:
    """Items and values of a mapping or pandas Series; ids alone get the value `alone`."""
    if isinstance(values, Mapping) or (hasattr(values, "items") and hasattr(values, "index")):
        return list(values.items())
    return [(item, alone) for item in as_ids(name, values, "a mapping or list of item ids")]


def as_list(name: str, items: Any, expected: str = "a list of item ids") -> list[Any]:
    """The entries of anything that lists ids; messages call it `name`.

    Raises:
        DataError: If it is text or cannot be listed.
    """
    if isinstance(items, str) or not isinstance(items, Iterable):
        what = "the text " if isinstance(items, str) else ""
        raise DataError(f"{name} must be {expected}, got {what}{items!r:.80}")
    listed: list[Any] = (
        np.atleast_1d(items).tolist() if isinstance(items, np.ndarray) else list(items)
    )
    return listed


def as_ids(name: str, items: Any, expected: str = "a list of item ids") -> list[Hashable]:
    """The same; also refuses entries that cannot be ids, such as lists."""
    listed = as_list(name, items, expected)
    for item in listed:
        try:
            hash(item)
        except TypeError:
            raise DataError(
                f"{item!r:.80} is not a single item id; {name} must be {expected}"
            ) from None
    return listed


def as_histories(matrix: Any) -> CountMatrix:
    """Counts of one user, perhaps (n_items,) as `csr_array[user]`, or of many, as a matrix.

    A count below 0 is a dislike.
    """
    if issparse(matrix) and len(matrix.shape) == 1:
        matrix = matrix.reshape(1, -1)
    return as_count_matrix(matrix, signed=True)
