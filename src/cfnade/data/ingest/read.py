"""The first step of the pipeline: rows of any kind become `Interactions`."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.data.ingest.columns import (
    ITEM_NAMES,
    LABEL_NAMES,
    check_distinct,
    choose_columns,
    required_column,
)
from cfnade.data.ingest.connection import Connection, connect, quote_name
from cfnade.data.ingest.file_source import Files
from cfnade.data.ingest.frame_source import frame_rows
from cfnade.data.ingest.row_checks import check_rows, usable_columns
from cfnade.data.ingest.scan import INTEGER_TYPES, RowSource, Scan
from cfnade.data.interactions import Interactions, as_objects
from cfnade.errors import ConfigError, DataError

PLAIN_INTEGER = "0|-?[1-9][0-9]*"
"""An integer that is written as Python would write it: `007` and `+7` are text."""

FAITHFUL_TYPES = INTEGER_TYPES | {"BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR", "UUID", "TIMESTAMP"}
"""What DuckDB gives to numpy without a change; a date or a huge integer would become another."""


def read_interactions(
    source: Any,
    *,
    user_col: str | None = None,
    item_col: str | None = None,
    count_col: str | None = None,
    events: bool | None = None,
    min_user_items: int = 0,
    min_item_users: int = 0,
    memory_limit: str | None = None,
    temp_directory: str | Path | None = None,
) -> Interactions:
    """Read who interacted with what how often.

    Rows are events, which are counted, or carry counts, which are added up if a pair comes
    more than once. DuckDB does this on disk where memory does not suffice; only the resulting
    pairs are held, some 40 bytes each while reading and 12 in the end.

    Ids are given back unchanged, in sorted order. In a CSV all is text: ids become integers if
    each one of the column is a plain integer, otherwise they stay as written (`007`).

    A count of zero is not an interaction: the pair is left out, but its user stays as a row,
    perhaps an empty one, and its item as a column.

    Args:
        source: CSV (comma, semicolon, tab or bar; also .tsv and .gz) or Parquet: a file, a
            folder, a glob, or several of these. Or a pandas, polars or Arrow frame; a scipy
            sparse matrix of counts, whose rows and columns become the ids; `Interactions`.
        user_col: Column of the users; None recognises names such as `user_id`.
        item_col: Column of the items; None recognises names such as `item` or `movie_id`.
        count_col: Column of the counts; None recognises names such as `count` or `plays`.
        events: True counts rows even where there is a count column, False insists on counts,
            None takes counts where a column is named or recognised.
        min_user_items: Leave out users with fewer distinct items.
        min_item_users: Leave out items with fewer distinct users. Both floors hold in the
            result: they are applied in turn until nothing changes.
        memory_limit: For DuckDB, such as "4GB"; beyond it, it writes to disk.
        temp_directory: Where it writes to; what it wrote is removed at the end.

    Returns:
        The counts with their ids. The order of the rows makes no difference.

    Raises:
        DataError: If the data cannot be used as they are.
        ConfigError: If settings have no meaning, alone or together.
    """
    if isinstance(source, Interactions) or issparse(source):
        if (user_col, item_col, count_col, events) != (None, None, None, None):
            raise ConfigError(
                f"{type(source).__name__} has no columns to choose from; leave out user_col, "
                "item_col, count_col and events"
            )
        interactions = (
            source if isinstance(source, Interactions) else Interactions.from_matrix(source)
        )
    else:
        with connect(memory_limit, temp_directory) as connection:
            rows = open_rows(connection, source)
            columns = choose_columns(
                rows.columns,
                user_col=user_col,
                item_col=item_col,
                count_col=count_col,
                events=events,
            )
            interactions = _aggregate(connection, rows.scan(connection, columns), columns)
    if interactions.n_pairs == 0:
        raise DataError("there is no interaction: no count is above zero; check the count column")
    return interactions.with_floors(min_user_items, min_item_users)


def read_item_names(
    source: Any, *, item_col: str | None = None, name_col: str | None = None
) -> dict[Hashable, str]:
    """Read a readable name for each item, for `Interactions.with_item_names`.

    Args:
        source: Files or a frame, as for `read_interactions`; the same source will do if it
            has names in it.
        item_col: Column of the item ids; None recognises names such as `item` or `movie_id`.
        name_col: Column of the names; None recognises names such as `name` or `title`.

    Returns:
        Name by item id. Items without a name are left out; of several names the first in the
        alphabet is taken.

    Raises:
        DataError: If the table or a column is missing.
    """
    with connect() as connection:
        rows = open_rows(connection, source)
        roles = {"item": required_column(rows.columns, item_col, "item", (*ITEM_NAMES, "id"))}
        others = [column for column in rows.columns if column != roles["item"]]
        roles["name"] = required_column(others, name_col, "name", LABEL_NAMES)
        check_distinct(roles)
        scan = rows.scan(connection, roles)
        usable = usable_columns(connection.types(scan.query))
        query = f"SELECT {usable} FROM ({scan.query}) WHERE item IS NOT NULL AND name IS NOT NULL"
        ids = _number_ids(connection, scan, query, "item")
        names = connection.execute(
            f"SELECT min(CAST(r.name AS VARCHAR)) FROM ({query}) AS r "
            "JOIN item_ids AS i ON r.item = i.id GROUP BY i.code ORDER BY i.code"
        ).fetchall()
    return dict(zip(ids.tolist(), (name for (name,) in names), strict=True))


def open_rows(connection: Connection, source: Any) -> RowSource:
    """Find out what kind of source it is, and which columns it has."""
    if isinstance(source, str | os.PathLike):
        return Files.find(connection, source)
    rows = frame_rows(source)
    if rows is not None:
        return rows
    if isinstance(source, Iterable) and not isinstance(source, np.ndarray | dict | bytes):
        return Files.find(connection, source)
    raise DataError(
        "expected a path, a pandas, polars or Arrow frame, a scipy sparse matrix or Interactions, "
        f"got {type(source).__name__}; wrap a dense array as scipy.sparse.csr_array(array)"
    )


def _aggregate(connection: Connection, scan: Scan, columns: dict[str, str]) -> Interactions:
    """Number the ids, add up each pair, and bring over nothing but numbers."""
    rows = check_rows(connection, scan, columns)
    user_ids = _number_ids(connection, scan, rows.query, "user")
    item_ids = _number_ids(connection, scan, rows.query, "item")
    pairs = connection.execute(
        f"SELECT u.code AS u, i.code AS i, CAST({rows.total} AS DOUBLE) AS n "
        f'FROM ({rows.query}) AS r JOIN user_ids AS u ON r."user" = u.id '
        'JOIN item_ids AS i ON r."item" = i.id GROUP BY u.code, i.code'
    ).fetchnumpy()
    shape = len(user_ids), len(item_ids)
    counts = csr_array((pairs["n"], (pairs["u"], pairs["i"])), shape=shape)
    return Interactions(counts, user_ids, item_ids)


def _number_ids(connection: Connection, scan: Scan, query: str, role: str) -> NDArray[Any]:
    """Number the distinct ids in sorted order: a table `<role>_ids` of `id` and `code`.

    Returns:
        The ids by code, of the type they came with.
    """
    table, value = f"{role}_ids", "id"
    connection.execute(
        f"CREATE TABLE {table} AS SELECT DISTINCT {quote_name(role)} AS id FROM ({query})"
    )
    if scan.from_text:
        plain = f"regexp_full_match(id, '{PLAIN_INTEGER}') AND TRY_CAST(id AS BIGINT) IS NOT NULL"
        if connection.execute(f"SELECT bool_and({plain}) FROM {table}").fetchall() == [(True,)]:
            value = "CAST(id AS BIGINT)"
    connection.execute(
        f"CREATE OR REPLACE TABLE {table} AS SELECT id, {value} AS value, "
        f"CAST(row_number() OVER (ORDER BY {value}) - 1 AS INTEGER) AS code FROM {table}"
    )
    ids = _fetch(connection, table, role)
    return scan.coded_ids[role][ids] if role in scan.coded_ids else ids


def _fetch(connection: Connection, table: str, role: str) -> NDArray[Any]:
    query = f"SELECT value FROM {table} ORDER BY code"
    kind = connection.types(query)["value"]
    if kind in FAITHFUL_TYPES:
        ids: NDArray[Any] = connection.execute(query).fetchnumpy()["value"]
        return ids
    import duckdb

    try:
        values = [value for (value,) in connection.execute(query).fetchall()]
        hash(values[0])
    except (duckdb.Error, TypeError) as error:
        raise DataError(
            f"values of type {kind} cannot serve as {role} ids; write them as numbers or text"
        ) from error
    return as_objects(values)
