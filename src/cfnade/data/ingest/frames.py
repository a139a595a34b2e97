"""pandas, polars and Arrow frames as rows for DuckDB, without importing pandas or polars.

The frame's own library numbers the ids, so DuckDB sees only integers: ids of any Python type are
returned unchanged, and pyarrow is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.data.ingest.scan import ID_ROLES, Connection, RowSource, Scan, quote_name
from cfnade.data.interactions import as_objects
from cfnade.errors import DataError

NAME_IN_DUCKDB = "frame"

FrameLibrary: TypeAlias = Literal["pandas", "polars"]


def frame_rows(frame: Any) -> RowSource | None:
    """The rows of a pandas, polars or Arrow frame; None for anything else."""
    library = frame_library(frame)
    if library == "pandas":
        names = [str(name) for name in frame.columns]

        def take(wanted: Sequence[str]) -> list[Any]:  # by position: names may repeat
            return [frame.iloc[:, names.index(name)] for name in wanted]

        scan = partial(_scan_frame, "the pandas frame", take, _number_pandas)
        return RowSource(names, scan)
    if library == "polars":
        lazy = frame.lazy()

        def compute(wanted: Sequence[str]) -> list[Any]:  # once: it may reorder rows at each read
            return list(lazy.select(wanted).collect().get_columns())

        scan = partial(_scan_frame, "the polars frame", compute, _number_polars)
        return RowSource(lazy.collect_schema().names(), scan)
    if not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__")):
        return None
    kind = type(frame).__name__
    try:
        import pyarrow

        table = pyarrow.table(frame)
        return RowSource(table.column_names, partial(_scan_arrow, table))
    except ImportError as error:
        raise DataError(f"reading {kind} needs pyarrow; pip install pyarrow") from error
    except (TypeError, ValueError) as error:  # an array or a column, for example
        raise DataError(
            f"expected a frame with named columns, got {kind}; "
            "make it a table with a user and an item column"
        ) from error


def frame_library(frame: Any) -> FrameLibrary | None:
    """The library of a frame; None for anything else."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(frame).__mro__}
    if "pandas" in libraries and hasattr(frame, "columns"):
        return "pandas"
    return "polars" if "polars" in libraries and hasattr(frame, "lazy") else None


def _scan_frame(
    label: str,
    take: Callable[[Sequence[str]], Sequence[Any]],
    number: Callable[[Any], tuple[NDArray[np.int64], NDArray[Any]]],
    connection: Connection,
    roles: Mapping[str, str],
) -> Scan:
    """Register the values of the columns that `take` gives by name, after numbering the ids.

    `number` gives each row's place among the sorted ids, -1 if missing, and those ids.
    """
    arrays, coded_ids, selected = {}, {}, []
    for role, column in zip(roles, take(list(roles.values())), strict=True):
        if role not in ID_ROLES:
            arrays[role], name = _values(column), quote_name(role)
            zoned = f"timezone('UTC', CAST({name} AS TIMESTAMP)) AS {name}"
            selected.append(zoned if role == "time" and _is_zoned(column) else name)
            continue
        try:
            arrays[role], coded_ids[role] = number(column)
        except TypeError as error:  # lists, for example
            raise DataError(
                f"the values of column {roles[role]!r} cannot serve as {role} ids: {error}; "
                "use numbers or text"
            ) from error
        selected.append(f'nullif("{role}", -1) AS "{role}"')
    connection.register(NAME_IN_DUCKDB, arrays)
    query = f"SELECT {', '.join(selected)} FROM {NAME_IN_DUCKDB}"
    return Scan(query, {label: query}, coded_ids=coded_ids)


def _values(column: Any) -> NDArray[Any]:
    """The values of a pandas or polars column, (n_rows,), of a type that DuckDB reads."""
    if getattr(column.dtype, "tz", None) is not None:  # of pandas: numpy has no zones
        column = column.dt.tz_convert(None)
    values: NDArray[Any] = np.ascontiguousarray(column.to_numpy())
    if values.ndim > 1 or values.dtype.names:  # arrays and structures of polars
        return as_objects(column.to_list())
    return values.astype("datetime64[us]") if values.dtype == "datetime64[D]" else values


def _is_zoned(column: Any) -> bool:
    """Whether `_values` gives times in UTC of a column with a time zone."""
    kind = column.dtype
    return any(getattr(kind, name, None) is not None for name in ("tz", "time_zone"))


def _number_pandas(series: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    codes, found = series.array.factorize()  # a series may convert objects
    ids: NDArray[Any] = found.to_numpy()
    try:
        order = np.argsort(ids, kind="stable")
    except TypeError:  # some cannot be compared with others
        keys = [(type(value).__name__, str(value)) for value in ids.tolist()]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)
    place = np.full(len(ids) + 1, -1)  # the last entry serves code -1
    place[order] = np.arange(len(ids))
    return place[codes], ids[order]


def _number_polars(series: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
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


def _scan_arrow(table: Any, connection: Connection, roles: Mapping[str, str]) -> Scan:
    """Register the columns of an Arrow table; DuckDB reads them in place."""
    places = [table.column_names.index(column) for column in roles.values()]
    connection.register(NAME_IN_DUCKDB, table.select(places).rename_columns(list(roles)))
    query = f"SELECT {', '.join(map(quote_name, roles))} FROM {NAME_IN_DUCKDB}"
    return Scan(query, {"the Arrow table": query})
