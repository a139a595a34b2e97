"""Readable names of items, from a table of their own or from the data themselves."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from scipy.sparse import issparse

from cfnade.data.ingest.columns import choose_name_columns, find_name_columns
from cfnade.data.ingest.read import number_ids, open_rows, usable_columns
from cfnade.data.ingest.scan import Connection, RowSource, Scan, connect
from cfnade.data.interactions import Interactions

_MOST_NAMES = 2  # different names for an item of the data, on average
_MOST_SHARED = 2  # items for each different name, on average


def read_item_names(
    source: Any,
    *,
    item_col: str | None = None,
    name_col: str | None = None,
    data_item_col: str | None = None,
) -> dict[Hashable, str]:
    """Read a readable name for each item, for `Interactions.with_item_names`.

    Args:
        source: Files or a frame, as for `read_interactions`, perhaps the same.
        item_col: Column of item ids; None recognises names such as `item` or `movie_id`.
        name_col: Column of names; None recognises names such as `name` or `title`, and takes the
            other one of two columns.
        data_item_col: Column of item ids in the data: taken if this table has it and `item_col` is
            None.

    Returns:
        Name by item id. Items without a name are left out; of several names the first in
        alphabetical order is taken.

    Raises:
        DataError: If the table or a column is missing.
    """
    with connect() as connection:
        rows = open_rows(connection, source)
        roles = choose_name_columns(
            rows.columns, item_col=item_col, name_col=name_col, data_item_col=data_item_col
        )
        return _read_names(connection, *_named_rows(connection, rows, roles))


def find_name_column(source: Any, *, item_col: str | None = None) -> str | None:
    """Find a column of item names in the data themselves.

    Its own name must say so, items must have about one name each, and few may share theirs: a
    column `name` may also hold the names of users.

    Args:
        source: As for `read_interactions`.
        item_col: Column of item ids.

    Returns:
        The column; None if there is none.
    """
    if isinstance(source, Interactions) or issparse(source):
        return None
    with connect() as connection:
        rows = open_rows(connection, source)
        roles = find_name_columns(rows.columns, item_col)
        if roles is None:
            return None
        _, query = _named_rows(connection, rows, roles)
        ((n_items, n_names, n_pairs),) = connection.execute(
            "SELECT count(DISTINCT item), count(DISTINCT name), count(DISTINCT (item, name)) "
            f"FROM ({query})"
        ).fetchall()
        if n_pairs > _MOST_NAMES * n_items or n_names * _MOST_SHARED < n_items:
            return None
        return roles["name"]


def _named_rows(connection: Connection, rows: RowSource, roles: dict[str, str]) -> tuple[Scan, str]:
    """The rows that have both an item and a name, as SQL."""
    scan = rows.scan(connection, roles)
    usable = usable_columns(connection.types(scan.query))
    query = f"SELECT {usable} FROM ({scan.query}) WHERE item IS NOT NULL AND name IS NOT NULL"
    return scan, query


def _read_names(connection: Connection, scan: Scan, query: str) -> dict[Hashable, str]:
    """The first name of each item."""
    ids = number_ids(connection, scan, query, "item")
    names = connection.execute(
        f"SELECT min(CAST(r.name AS VARCHAR)) FROM ({query}) AS r "
        "JOIN item_ids AS i ON r.item = i.id GROUP BY i.code ORDER BY i.code"
    ).fetchall()
    return dict(zip(ids.tolist(), (name for (name,) in names), strict=True))
