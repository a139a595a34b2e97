"""pandas, polars and Arrow frames as rows for DuckDB, without importing pandas or polars.

The frame's own library numbers the ids, so DuckDB sees only integers: ids of any Python type are
returned unchanged, and pyarrow is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.ingest.connection import Connection, quote_name
from cfnade.data.ingest.sources import ID_ROLES, RowSource, Scan, SourcePart
from cfnade.data.interactions import as_objects
from cfnade.errors import DataError

NAME_IN_DUCKDB = "frame"


def frame_rows(frame: Any) -> RowSource | None:
    """The rows of a pandas, polars or Arrow frame; None for anything else."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(frame).__mro__}
    if "pandas" in libraries and hasattr(frame, "columns"):
        return InMemory("the pandas frame", _Pandas(frame))
    if "polars" in libraries and hasattr(frame, "lazy"):
        return InMemory("the polars frame", _Polars(frame))
    if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
        try:
            import pyarrow
        except ImportError as error:
            raise DataError(
                f"reading {type(frame).__name__} needs pyarrow; pip install pyarrow"
            ) from error
        try:
            return Arrow(pyarrow.table(frame))
        except (TypeError, ValueError) as error:  # an array or a column, for example
            raise DataError(
                f"expected a frame with named columns, got {type(frame).__name__}; "
                "make it a table with a user and an item column"
            ) from error
    return None


@dataclass(frozen=True)
class InMemory:
    """Rows of a pandas or polars frame."""

    label: str
    library: _Pandas | _Polars

    @property
    def columns(self) -> Sequence[str]:
        """The names of all columns."""
        return self.library.columns

    def scan(self, connection: Connection, roles: Mapping[str, str]) -> Scan:
        """Number the ids and register all values.

        Raises:
            DataError: If the values of an id column cannot be ids, such as lists.
        """
        library = self.library.only(list(roles.values()))
        arrays, coded_ids = {}, {}
        for role, column in roles.items():
            if role in ID_ROLES:
                arrays[role], coded_ids[role] = _number(library, role, column)
            else:
                arrays[role] = np.ascontiguousarray(library.values(column))
        connection.register(NAME_IN_DUCKDB, arrays)
        selected = ", ".join(
            f"nullif({name}, -1) AS {name}" if role in coded_ids else name
            for role, name in zip(arrays, map(quote_name, arrays), strict=True)
        )
        query = f"SELECT {selected} FROM {NAME_IN_DUCKDB}"
        return Scan(query, [SourcePart(self.label, query)], coded_ids=coded_ids)


def _number(
    library: _Pandas | _Polars, role: str, column: str
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Each row's position among the sorted ids, -1 if missing, and those ids."""
    try:
        return library.number(column)
    except TypeError as error:
        raise DataError(
            f"the values of column {column!r} cannot serve as {role} ids: {error}; "
            "use numbers or text"
        ) from error


@dataclass(frozen=True)
class _Pandas:
    """Columns of a pandas frame."""

    frame: Any

    @property
    def columns(self) -> Sequence[str]:
        return [str(name) for name in self.frame.columns]

    def only(self, columns: list[str]) -> _Pandas:
        return self

    def number(self, column: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        codes, found = self._series(column).array.factorize()  # a series may convert objects
        ids: NDArray[Any] = found.to_numpy()
        order = _sorted_order(ids)
        position = np.full(len(ids) + 1, -1)  # the last entry serves code -1
        position[order] = np.arange(len(ids))
        return position[codes], ids[order]

    def values(self, column: str) -> NDArray[Any]:
        values: NDArray[Any] = self._series(column).to_numpy()
        return values

    def _series(self, column: str) -> Any:
        # By position: names may be of any type, and repeat.
        return self.frame.iloc[:, self.columns.index(column)]


@dataclass(frozen=True)
class _Polars:
    """Columns of a polars frame, perhaps lazy."""

    frame: Any

    @property
    def columns(self) -> Sequence[str]:
        names: list[str] = self.frame.lazy().collect_schema().names()
        return names

    def only(self, columns: list[str]) -> _Polars:
        # Computed now: a lazy frame may reorder its rows at each read.
        return _Polars(self.frame.lazy().select(columns).collect())

    def number(self, column: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        series = self.frame.get_column(column)
        kind = series.dtype
        if kind.is_nested() or str(kind) == "Object":
            raise TypeError(f"they are of type {kind}")
        if kind.is_float():
            series = series.fill_nan(None)
        if str(kind).startswith(("Categorical", "Enum")):  # else sorted by first use
            series = series.cast(str)
        codes: NDArray[np.int64] = series.rank("dense").cast(int).fill_null(0).to_numpy() - 1
        ids = series.drop_nulls().unique().sort()
        if kind.is_numeric() and "128" not in str(kind):  # numpy has no such integers
            return codes, ids.to_numpy()
        return codes, as_objects(ids.to_list())

    def values(self, column: str) -> NDArray[Any]:
        values: NDArray[Any] = self.frame.get_column(column).to_numpy()
        return values


@dataclass(frozen=True)
class Arrow:
    """Rows of an Arrow table; DuckDB reads them in place."""

    table: Any

    @property
    def columns(self) -> Sequence[str]:
        """The names of all columns."""
        names: list[str] = self.table.column_names
        return names

    def scan(self, connection: Connection, roles: Mapping[str, str]) -> Scan:
        """Register the columns."""
        places = [self.columns.index(column) for column in roles.values()]
        connection.register(NAME_IN_DUCKDB, self.table.select(places).rename_columns(list(roles)))
        query = f"SELECT {', '.join(map(quote_name, roles))} FROM {NAME_IN_DUCKDB}"
        return Scan(query, [SourcePart("the Arrow table", query)])


def _sorted_order(ids: NDArray[Any]) -> NDArray[np.intp]:
    """The order that sorts the ids, even if some cannot be compared with others."""
    try:
        return np.argsort(ids, kind="stable")
    except TypeError:
        keys = [(type(value).__name__, str(value)) for value in ids.tolist()]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)
