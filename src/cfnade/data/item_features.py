"""What is known about items: categories, genres, tags and words, as one sparse matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from cfnade.errors import DataError, n_of

_MOST_COMPARED = 2_000  # texts compared for a suggestion


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

    def __post_init__(self) -> None:
        n_features = self.matrix.shape[1]
        if len(self.values) != n_features or len(self.column) != n_features:
            raise DataError(
                f"a matrix of {n_of(n_features, 'feature')} needs as many values and columns, got "
                f"{len(self.values)} and {len(self.column)}"
            )
        if n_features and not 0 <= self.column.min() <= self.column.max() < len(self.columns):
            raise DataError(f"a feature belongs to none of the {len(self.columns)} columns")

    @classmethod
    def from_entries(
        cls, n_items: int, columns: Mapping[str, Sequence[tuple[int, str, float]]]
    ) -> ItemFeatures:
        """Build from an item's row, a value and its weight, by column of the table.

        Values are in the order of the columns, then of the text. Of a value that an item has
        twice, the larger weight counts.
        """
        values: list[str] = []
        parts, of_column = [np.empty((0, 3))], []
        for place, entries in enumerate(columns.values()):
            feature = {v: len(values) + n for n, v in enumerate(sorted({v for _, v, _ in entries}))}
            found = ((row, feature[value], weight) for row, value, weight in entries)
            parts.append(np.array([*found], dtype=np.float64).reshape(-1, 3))
            values += feature
            of_column += [place] * len(feature)
        rows = np.concatenate(parts)
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        is_last = np.append(
            (np.diff(rows[:, :2], axis=0) != 0).any(axis=1), [True] * bool(len(rows))
        )
        row, feature_of, weight = rows[is_last].T
        places = (row.astype(np.int64), feature_of.astype(np.int64))
        matrix = csr_array((weight.astype(np.float32), places), shape=(n_items, len(values)))
        matrix.sort_indices()
        texts = np.array(values, dtype=object)
        return cls(matrix, texts, np.array(of_column, dtype=np.int64), tuple(columns))

    @property
    def n_items(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.matrix.shape[1])

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
            folded = {text.casefold(): place for text, place in places.items()}
            feature = folded.get(str(value).casefold())
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

    def of_column(self, column: str) -> NDArray[np.int64]:
        """Features that belong to a column, ascending, (n,).

        Raises:
            DataError: If the column is unknown.
        """
        if column not in self.columns:
            near = _suggestions(str(column), self.columns)
            raise DataError(f"nothing is known about the items' {column}; {near}")
        return np.flatnonzero(self.column == self.columns.index(column)).astype(np.int64)

    def entries(self) -> dict[str, list[tuple[int, str, float]]]:
        """What `from_entries` takes."""
        row = np.repeat(np.arange(self.n_items), np.diff(self.matrix.indptr))
        found: dict[str, list[tuple[int, str, float]]] = {name: [] for name in self.columns}
        for item, feature, weight in zip(
            row.tolist(), self.matrix.indices.tolist(), self.matrix.data.tolist(), strict=True
        ):
            name = self.columns[self.column[feature]]
            found[name].append((item, self.values[feature], weight))
        return found

    def first(self, n_items: int) -> ItemFeatures:
        """Features of the first items alone."""
        return replace(self, matrix=self.matrix[:n_items])

    def grown(self, n_items: int) -> ItemFeatures:
        """The same with more items at the end, of which nothing is known."""
        grown = csr_array(self.matrix, copy=True)
        grown.resize(n_items, self.n_features)
        return replace(self, matrix=grown)

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
        for place, (column, value) in enumerate(
            zip(self.column.tolist(), self.values.tolist(), strict=True)
        ):
            found[self.columns[column]][value] = place
        return found

    def _places(self, column: str) -> dict[str, int]:
        """Place of each value of a column; raises `DataError` for an unknown column."""
        self.of_column(column)
        return self._feature_of[column]


def _suggestions(wanted: str, known: Iterable[str]) -> str:
    """The likely meant names, or some of all, for a message."""
    names = list(known)
    alike = names if len(names) <= _MOST_COMPARED else _same_first_sign(wanted, names)
    near = get_close_matches(wanted, alike, 3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"known: {', '.join(names[:5])}{more}"


def _same_first_sign(wanted: str, names: list[str]) -> list[str]:
    """Some of the names that begin like a text: comparing thousands takes seconds."""
    first = wanted[:1].casefold()
    return [name for name in names if name[:1].casefold() == first][:_MOST_COMPARED]
