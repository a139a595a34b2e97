"""What is known about items: categories, genres, tags and words, as one sparse matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from cfnade.errors import DataError, n_of

WORDS = "words"
"""Form of a column of text."""

MOST_SHARED = 5
"""Values to name of those that two items have in common."""

_MOST_COMPARED = 2_000  # texts compared for a suggestion


class Entries(NamedTuple):
    """Values of items in one column of a table."""

    items: Sequence[int] | NDArray[np.integer]
    """Row of the item, (n_entries,) like the others."""
    values: Sequence[str]
    """A value that it has."""
    weights: Sequence[float] | NDArray[np.floating]
    """Of the value: 1 for a category."""


@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """What is known about items: a sparse row of features for each item."""

    matrix: csr_array
    """float32, (n_items, n_features): 1 for a category, tag or genre, a weight for a word."""

    values: NDArray[np.object_]
    """Text of each feature, such as "Drama", (n_features,)."""

    column: NDArray[np.int64]
    """Which of `columns` each feature belongs to, (n_features,)."""

    columns: tuple[str, ...]
    """Names of the table's columns, such as ("genre", "brand")."""

    forms: tuple[str, ...] = ()
    """How the cells of each column are read: `values`, `words`, or `list` and what separates them;
    empty if they were not read from a table. A later table of few items is read alike."""

    def __post_init__(self) -> None:
        n_features = self.matrix.shape[1]
        if len(self.values) != n_features or len(self.column) != n_features:
            raise DataError(
                f"a matrix of {n_of(n_features, 'feature')} needs as many values and columns, got "
                f"{len(self.values)} and {len(self.column)}"
            )
        if self.forms and len(self.forms) != len(self.columns):
            raise DataError(f"{len(self.columns)} columns need as many forms or none")
        if n_features and not 0 <= self.column.min() <= self.column.max() < len(self.columns):
            raise DataError(f"a feature belongs to none of the {len(self.columns)} columns")

    @classmethod
    def from_entries(
        cls, n_items: int, columns: Mapping[str, Entries], forms: Mapping[str, str]
    ) -> ItemFeatures:
        """Build from the values of items, by column of the table, and how its cells are read.

        Values are in the order of the columns, then of the text. Of a value that an item has
        twice, the larger weight counts.
        """
        values: list[str] = []
        parts, places = [], []
        for place, entries in enumerate(columns.values()):
            found = sorted(set(entries.values))
            feature = {value: n for n, value in enumerate(found, start=len(values))}
            of = np.fromiter(map(feature.__getitem__, entries.values), np.int64)
            parts.append((np.asarray(entries.items, np.int64), of, np.asarray(entries.weights)))
            values += found
            places += [place] * len(found)
        return cls(
            _matrix(parts, (n_items, len(values))),
            np.array(values, dtype=object),
            np.array(places, dtype=np.int64),
            tuple(columns),
            tuple(forms[name] for name in columns),
        )

    @classmethod
    def joined(
        cls, n_items: int, parts: Sequence[tuple[NDArray[np.integer], ItemFeatures]]
    ) -> ItemFeatures:
        """Features of several tables in one; columns with the same name become one.

        Args:
            n_items: Number of rows.
            parts: For each table the row of each of its items, -1 to leave it out, and features.
        """
        forms = {name: form for _, part in reversed(parts) for name, form in part.form_of.items()}
        columns = list(dict.fromkeys(name for _, part in parts for name in part.columns))
        keys = [
            [(columns.index(part.columns[c]), v) for c, v in zip(*part.named, strict=True)]
            for _, part in parts
        ]
        feature = {key: n for n, key in enumerate(sorted({key for some in keys for key in some}))}
        arrays = []
        for (rows, part), own in zip(parts, keys, strict=True):
            place = np.array([feature[key] for key in own], dtype=np.int64)
            row = rows[np.repeat(np.arange(part.n_items), np.diff(part.matrix.indptr))]
            kept = row >= 0
            arrays.append((row[kept], place[part.matrix.indices[kept]], part.matrix.data[kept]))
        of_column, values = zip(*feature, strict=True) if feature else ((), ())
        return cls(
            _matrix(arrays, (n_items, len(values))),
            np.array(values, dtype=object),
            np.array(of_column, dtype=np.int64),
            tuple(columns),
            tuple(forms[name] for name in columns) if len(forms) == len(columns) else (),
        )

    @property
    def sha256(self) -> str:
        """A checksum of all that is known."""
        matrix, names = self.matrix, repr((self.columns, self.values.tolist()))
        parts = [matrix.indptr, matrix.indices, matrix.data, self.column]
        found = hashlib.sha256(names.encode())
        for part in parts:
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()

    @property
    def named(self) -> tuple[list[int], list[str]]:
        """Column and text of each feature."""
        return self.column.tolist(), self.values.tolist()

    @property
    def form_of(self) -> dict[str, str]:
        """How the cells of each column are read, where that is known."""
        return dict(zip(self.columns, self.forms, strict=False))

    @property
    def n_items(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.matrix.shape[1])

    def with_any(self, wanted: Mapping[str, Any]) -> NDArray[np.int64]:
        """Items that have, in every column of a mapping, its value or one of its values.

        Args:
            wanted: A value, or a list of values, by column of the table.

        Returns:
            Ascending, (n,).

        Raises:
            DataError: If a column or a value is unknown.
        """
        found = np.arange(self.n_items)
        for column, values in wanted.items():
            listed = [values] if isinstance(values, str) else _listed(values)
            any_of = [self.members(column, str(value)) for value in listed]
            found = np.intersect1d(found, np.concatenate([np.empty(0, np.int64), *any_of]))
        return found

    def members(self, column: str, value: str) -> NDArray[np.int64]:
        """Items with a feature, ascending, (n,).

        Args:
            column: A column of the table, such as "genre".
            value: Its text, such as "Drama". If no value is written so, case does not matter.

        Raises:
            DataError: If the column or the value is unknown.
        """
        places = self._places(column)
        feature = places.get(value)
        if feature is None:
            feature = self._folded_feature_of[column].get(str(value).casefold())
        if feature is None:
            raise DataError(f"no item has {column}={value}; {_suggestions(str(value), places)}")
        start, end = self._by_feature.indptr[feature : feature + 2]
        return np.asarray(self._by_feature.indices[start:end], dtype=np.int64)

    def of(self, item_column: int) -> dict[str, list[str]]:
        """What is known about one item: values by column, the heaviest words first."""
        start, end = self.matrix.indptr[item_column : item_column + 2]
        features, weights = self.matrix.indices[start:end], self.matrix.data[start:end]
        found: dict[str, list[str]] = {}
        for feature in features[np.lexsort((features, -weights))].tolist():
            found.setdefault(self.columns[self.column[feature]], []).append(self.values[feature])
        return {name: found[name] for name in self.columns if name in found}

    def shared(self, one: int, other: int, most: int = MOST_SHARED) -> dict[str, list[str]]:
        """What two items have in common: values by column, the rarest first."""
        first, second = (self._features_of(item) for item in (one, other))
        both = np.intersect1d(first, second, assume_unique=True)
        found: dict[str, list[str]] = {}
        for feature in both[np.argsort(self._n_with[both], kind="stable")][:most].tolist():
            found.setdefault(self.columns[self.column[feature]], []).append(self.values[feature])
        return found

    def of_column(self, column: str) -> NDArray[np.int64]:
        """Features that belong to a column, ascending, (n,).

        Raises:
            DataError: If the column is unknown.
        """
        if column not in self.columns:
            near = _suggestions(str(column), self.columns)
            raise DataError(f"nothing is known about the items' {column}; {near}")
        return np.flatnonzero(self.column == self.columns.index(column)).astype(np.int64)

    def first(self, n_items: int) -> ItemFeatures:
        """Features of the first items alone."""
        return replace(self, matrix=self.matrix[:n_items])

    def grown(self, n_items: int) -> ItemFeatures:
        """The same with more items at the end, of which nothing is known."""
        grown = csr_array(self.matrix, copy=True)
        grown.resize(n_items, self.n_features)
        return replace(self, matrix=grown)

    def _features_of(self, item: int) -> NDArray[np.integer]:
        return np.asarray(self.matrix.indices[slice(*self.matrix.indptr[item : item + 2])])

    @cached_property
    def _n_with(self) -> NDArray[np.int64]:
        """Items with each feature, (n_features,)."""
        return np.bincount(self.matrix.indices, minlength=self.n_features)

    @cached_property
    def _by_feature(self) -> csc_array:
        """The matrix by feature, items in order."""
        by_feature = csc_array(self.matrix)
        by_feature.sort_indices()
        return by_feature

    @cached_property
    def _feature_of(self) -> dict[str, dict[str, int]]:
        """Place of each value, by column and text."""
        found: dict[str, dict[str, int]] = {name: {} for name in self.columns}
        for place, (column, value) in enumerate(zip(*self.named, strict=True)):
            found[self.columns[column]][value] = place
        return found

    @cached_property
    def _folded_feature_of(self) -> dict[str, dict[str, int]]:
        """Place of each value, by column and text without case."""
        return {
            column: {text.casefold(): place for text, place in places.items()}
            for column, places in self._feature_of.items()
        }

    def _places(self, column: str) -> dict[str, int]:
        """Place of each value of a column; raises `DataError` for an unknown column."""
        self.of_column(column)
        return self._feature_of[column]


def _matrix(
    parts: Iterable[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]], shape: tuple[int, int]
) -> csr_array:
    """Rows, columns and values as a matrix; of a place that occurs twice the largest value."""
    nothing = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    row, column, value = map(np.concatenate, zip(nothing, *parts, strict=True))
    order = np.lexsort((value, column, row))
    row, column, value = row[order], column[order], value[order].astype(np.float32)
    is_last = np.ones(row.size, dtype=np.bool_)
    is_last[:-1] = (np.diff(row) != 0) | (np.diff(column) != 0)
    starts = np.searchsorted(row[is_last], np.arange(shape[0] + 1))
    return csr_array((value[is_last], column[is_last], starts), shape=shape)


def _suggestions(wanted: str, known: Iterable[str]) -> str:
    """The likely meant names, or some of all, for a message."""
    names = list(known)
    alike = names if len(names) <= _MOST_COMPARED else _same_first_sign(wanted, names)
    near = get_close_matches(wanted, alike, 3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"known: {', '.join(names[:5])}{more}"


def _listed(values: Any) -> list[Any]:
    """Values of a collection, or a value alone."""
    return list(values) if isinstance(values, Collection) else [values]


def _same_first_sign(wanted: str, names: list[str]) -> list[str]:
    """Some of the names that begin like a text: comparing thousands takes seconds."""
    first = wanted[:1].casefold()
    return [name for name in names if name[:1].casefold() == first][:_MOST_COMPARED]
