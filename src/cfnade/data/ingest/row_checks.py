"""Look at every row before any is counted: what cannot be used is reported, never dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cfnade.data.ingest.connection import Connection, quote_name
from cfnade.data.ingest.scan import FLOAT_TYPES, ID_ROLES, INTEGER_TYPES, Scan
from cfnade.errors import DataError

BAD_COUNTS = {
    "missing or NaN": '"count" IS NULL OR isnan(number)',
    "not a number": '"count" IS NOT NULL AND number IS NULL',
    "infinite": "isinf(number)",
    "negative": "number < 0 AND NOT isinf(number)",
}
"""Why a count cannot be used, as SQL; each bad count is of exactly one kind."""

EXACT_LIMIT = 2.0**53
"""Sums of whole numbers below this are exact in float64, in whatever order they are added."""


class CheckedRows(NamedTuple):
    """Rows that can all be counted."""

    query: str
    """SQL of the columns `user`, `item` and, if rows carry counts, `number`."""

    total: str
    """SQL of what a group of rows adds up to, the same in whatever order they come."""


def check_rows(connection: Connection, scan: Scan, columns: Mapping[str, str]) -> CheckedRows:
    """Make sure that every row has a user, an item and a count that is finite and at least 0.

    Args:
        connection: Where the scan can be read.
        scan: The rows, with the roles "user", "item" and perhaps "count".
        columns: Column by role, for the messages.

    Returns:
        How to read and to add up the rows.

    Raises:
        DataError: If there are no rows, or one cannot be used: with how many there are of
            these, the first of them, and what to do.
    """
    expressions = usable_columns(connection.types(scan.query))
    query = f"SELECT {expressions} FROM ({scan.query})"
    bad = {role: f"{quote_name(role)} IS NULL" for role in ID_ROLES}
    sums = "true, 0"
    if "count" in columns:
        bad |= BAD_COUNTS
        sums = "bool_and(number = trunc(number)), sum(number)"
    tallies = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in bad.values())
    answer = connection.execute(f"SELECT count(*), {sums}, {tallies} FROM ({query})").fetchall()
    n_rows, whole, total, *tallied = answer[0]
    if n_rows == 0:
        raise DataError(f"there are no rows in {scan.parts[0].label}; expected at least one")
    n_bad = {kind: n for kind, n in zip(bad, tallied, strict=True) if n}

    for role in ID_ROLES:
        if role in n_bad:
            place, row = _first(connection, scan, expressions, bad[role])
            (other,) = set(ID_ROLES) - {role}
            raise DataError(
                f"{n_bad[role]:,} of {n_rows:,} rows have no {role} in column "
                f"{columns[role]!r}; the first is {place} ({other} {row[other]}); "
                "fill it in or drop these rows"
            )
    if n_bad:
        place, row = _first(connection, scan, expressions, " OR ".join(BAD_COUNTS.values()))
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in n_bad.items())
        raise DataError(
            f"{sum(n_bad.values()):,} of {n_rows:,} counts in column {columns['count']!r} cannot "
            f"be used ({kinds}); the first is {row['count']} in {place} (user {row['user']}, "
            f"item {row['item']}); make it a finite number of at least 0 or drop these rows"
        )
    if "count" not in columns:
        return CheckedRows(query, "count(*)")
    exact = whole and total < EXACT_LIMIT
    return CheckedRows(query, "sum(number)" if exact else "sum(number ORDER BY number)")


def usable_columns(types: Mapping[str, str]) -> str:
    """SQL of the columns for counting: NaN is no id, and `number` is what `count` says."""
    expressions = []
    for role, kind in types.items():
        name = quote_name(role)
        if role in ID_ROLES and kind in FLOAT_TYPES:
            expressions.append(f"CASE WHEN NOT isnan({name}) THEN {name} END AS {name}")
        else:
            expressions.append(name)
        if role == "count":
            # Through text, a date or a truth value is not taken for a number.
            given = name if _is_numeric(kind) else f"CAST({name} AS VARCHAR)"
            expressions.append(f"TRY_CAST({given} AS DOUBLE) AS number")
    return ", ".join(expressions)


def _is_numeric(kind: str) -> bool:
    known = INTEGER_TYPES | FLOAT_TYPES | {"HUGEINT", "UHUGEINT"}
    return kind in known or kind.startswith("DECIMAL")


def _first(
    connection: Connection, scan: Scan, expressions: str, condition: str
) -> tuple[str, dict[str, str]]:
    """Where the first row is that meets a condition, and its values as people should see them."""
    for part in scan.parts:
        found = connection.execute(
            f"SELECT * FROM (SELECT row_number() OVER () AS row, {expressions} "
            f"FROM ({part.query})) WHERE {condition} ORDER BY row LIMIT 1"
        ).fetchall()
        for place, *values in found:
            roles = connection.types(f"SELECT {expressions} FROM ({part.query})")
            shown = {role: scan.shown(role, v) for role, v in zip(roles, values, strict=True)}
            return f"data row {place:,} of {part.label}", shown
    raise AssertionError("a row that was counted is not there any more")
