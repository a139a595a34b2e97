"""The first step of the pipeline: rows of any kind become `Interactions`.

Columns are chosen, every row is checked (bad ones raise an error, none is dropped silently), ids
are numbered and the rows of each pair are added up, all in DuckDB.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.data.events import EventLog, Weights
from cfnade.data.ingest.columns import (
    Columns,
    choose_columns,
    is_order,
    is_time,
)
from cfnade.data.ingest.frames import frame_rows
from cfnade.data.ingest.scan import (
    FLOAT_TYPES,
    ID_ROLES,
    INTEGER_TYPES,
    Connection,
    RowSource,
    Scan,
    connect,
    fill_in,
    find_files,
    is_numeric,
    or_ignore,
    quote_name,
)
from cfnade.data.ingest.times import PLACES, BadTimes, Times, doubtful_times, time_form
from cfnade.data.interactions import Interactions, as_objects
from cfnade.errors import ConfigError, DataError

logger = logging.getLogger(__name__)

PLAIN_INTEGER = "0|-?[1-9][0-9]*"  # as Python writes it: `007` and `+7` are text
EXACT_LIMIT = 2.0**53  # sums of whole numbers below this are exact in float64, in any order
MOST_KINDS = 100  # a column with more holds no kinds of events

FAITHFUL_TYPES = INTEGER_TYPES | FLOAT_TYPES | {"BOOLEAN", "VARCHAR", "UUID", "TIMESTAMP"}
"""Types that DuckDB converts to numpy unchanged, unlike dates and huge integers."""

HAS_IDS = " AND ".join(f"{quote_name(role)} IS NOT NULL" for role in ID_ROLES)

BAD_COUNTS = {
    "missing or NaN": '"count" IS NULL OR isnan(number)',
    "not a number": '"count" IS NOT NULL AND number IS NULL',
    "infinite": "isinf(number)",
    "negative": "number < 0 AND NOT isinf(number)",
}
"""Conditions in SQL of counts that cannot be used; a bad count meets exactly one."""


def read_interactions(
    source: Any,
    *,
    user_col: str | None = None,
    item_col: str | None = None,
    count_col: str | None = None,
    events: bool | None = None,
    time_col: str | None = None,
    event_col: str | None = None,
    name_col: str | None = None,
    drop_missing_ids: bool = False,
    event_weights: Weights | None = None,
    target_event: str | None = None,
    min_user_items: int = 0,
    min_item_users: int = 0,
    memory_limit: str | None = None,
    temp_directory: str | Path | None = None,
) -> Interactions:
    """Read who interacted with what, and how often.

    Rows are events, which are counted, or carry counts, which are added up per pair. DuckDB does
    this on disk if memory is short; only the pairs are held in memory, about 40 bytes each while
    reading and 12 at the end. If rows have a time or a kind of event, `log` of the result holds
    them too: 16 to 26 bytes for each different user, item, time and kind.

    Times are dates, timestamps or ISO texts, with or without a zone, not mixed (without: UTC);
    seconds, milliseconds, micro- or nanoseconds since 1970, by their size; smaller numbers, such as
    a week; or places in the order of each user's events, by names such as `position`.

    Ids are returned unchanged and sorted. In a CSV all values are text: ids become integers if
    every id of the column is a plain integer, else they stay as written (`007`).

    A count of zero is not an interaction: the pair is dropped, but its user keeps a row and its
    item a column, which may be empty.

    Args:
        source: CSV (comma, semicolon, tab or bar; also .tsv and .gz) or Parquet: a file, a
            folder, a glob, or several of these. Or a pandas, polars or Arrow frame; a scipy
            sparse matrix of counts, whose row and column numbers become the ids; `Interactions`.
        user_col: Column of users; None recognises names such as `user_id`.
        item_col: Column of items; None recognises names such as `item` or `movie_id`.
        count_col: Column of counts; None recognises names such as `count` or `plays`.
        events: True counts rows even if there is a count column, False requires counts, None
            uses counts if a column is named or recognised.
        time_col: Column of times; None recognises names such as `timestamp`, `date` or `basket`;
            "none" ignores times.
        event_col: Column of kinds of events; None recognises names such as `event` or `action`;
            "none" ignores kinds.
        name_col: Column of readable names of items; None reads no names.
        drop_missing_ids: Leave out rows without a user or an item, such as anonymous events, and
            log how many; else they are an error.
        event_weights: What an event of each kind adds to the count of its pair, such as
            `{"view": 1, "purchase": 10, "skip": -1}`; 0 ignores a kind, a pair whose sum is below
            0 is a dislike. None counts all events alike, or leaves it to the fit if there is a
            target event.
        target_event: Kind of event to predict, such as "purchase".
        min_user_items: Drop users with fewer distinct items.
        min_item_users: Drop items with fewer distinct users. Both floors are applied in turn
            until nothing changes.
        memory_limit: For DuckDB, such as "4GB"; beyond it, DuckDB uses the disk.
        temp_directory: For DuckDB's temporary files, which are removed at the end.

    Returns:
        The counts with their ids, independent of the order of the rows.

    Raises:
        DataError: If the data cannot be used as they are.
        ConfigError: If settings are invalid, alone or together.
    """
    named = Columns(user_col, item_col, count_col, events, time_col, event_col, drop_missing_ids)
    if isinstance(source, Interactions) or issparse(source):
        if named != Columns() or name_col is not None:
            raise ConfigError(
                f"{type(source).__name__} has no columns to choose from; leave out user_col, "
                "item_col, count_col, events, time_col, event_col, name_col and drop_missing_ids"
            )
        interactions = Interactions.from_matrix(source) if issparse(source) else source
    else:
        with connect(memory_limit, temp_directory) as connection:
            rows = open_rows(connection, source)
            columns = choose_columns(rows.columns, named, name_col=name_col)
            scan = rows.scan(connection, columns)
            interactions = _aggregate(connection, scan, columns, named)
        if name_col is not None:
            from cfnade.data.ingest.item_names import read_item_names  # which imports this module

            names = read_item_names(source, item_col=columns["item"], name_col=name_col)
            interactions = interactions.with_item_names(names)
    if event_weights is not None or target_event is not None:
        interactions = interactions.weighed(event_weights, target_event)
    if interactions.n_pairs == 0:
        raise DataError("there is no interaction: no count is above zero; check the count column")
    return interactions.with_floors(min_user_items, min_item_users)


def open_rows(connection: Connection, source: Any) -> RowSource:
    """Find out what kind of source it is, and its columns."""
    if isinstance(source, str | os.PathLike):
        return find_files(connection, source)
    if rows := frame_rows(source):
        return rows
    if isinstance(source, Iterable) and not isinstance(source, np.ndarray | dict | bytes):
        return find_files(connection, source)
    raise DataError(
        "expected a path, a pandas, polars or Arrow frame, a scipy sparse matrix or Interactions, "
        f"got {type(source).__name__}; wrap a dense array as scipy.sparse.csr_array(array)"
    )


# Rows are checked -------------------------------------------------------------------------------


@dataclass(frozen=True)
class UsableRows:
    """Rows that can all be used, in SQL."""

    query: str
    """The columns `user`, `item` and, if rows carry counts, `number`; `at` if they have times;
    `event`, a text, if they have kinds."""

    total: str
    """The sum over a group of rows, the same in any order."""

    times: Times | None


def check_rows(
    connection: Connection,
    scan: Scan,
    columns: Mapping[str, str],
    *,
    drop_missing_ids: bool = False,
    are_ratings: bool = False,
) -> UsableRows:
    """Refuse rows without a user, an item, a finite count of at least 0, a time or a kind.

    Those without a user or an item may be dropped instead. Ratings, in the role of counts, may be
    negative.
    """
    bad_counts = {k: v for k, v in BAD_COUNTS.items() if not are_ratings or k != "negative"}
    types = connection.types(scan.query)
    query, is_kept = f"SELECT {usable_columns(types)} FROM ({scan.query})", "true"
    if drop_missing_ids:
        _report_dropped_rows(connection, query)
        is_kept = HAS_IDS
        query = f"SELECT * FROM ({query}) WHERE {is_kept}"
    form = time_form(connection, query, types["time"]) if "time" in columns else None
    query = query if form is None else form.on(query)

    def first(condition: str) -> tuple[str, dict[str, str]]:
        def usable(part: str) -> str:
            rows = f"SELECT {usable_columns(types)} FROM ({part})"
            return rows if form is None else form.on(rows)

        return _first(connection, scan, usable, f"({condition}) AND {is_kept}")

    bad = {role: f"{quote_name(role)} IS NULL" for role in (*ID_ROLES, "event") if role in columns}
    sums = "true, 0"
    if "count" in columns:
        bad |= bad_counts
        sums = "bool_and(number = trunc(number)), sum(number)"
    figures = [f"count(*) FILTER (WHERE {condition})" for condition in bad.values()]
    figures += [] if form is None else form.figures
    answer = connection.execute(
        f"SELECT count(*), {sums}, {', '.join(figures)} FROM ({query})"
    ).fetchall()
    n_rows, whole, total, *found = answer[0]
    if n_rows == 0:
        raise DataError(f"there are no rows in {next(iter(scan.parts))}; expected at least one")
    n_bad = {kind: n for kind, n in zip(bad, found, strict=False) if n}

    for role in (*ID_ROLES, "event"):
        if role in n_bad:
            place, row = first(bad[role])
            other = "item" if role == "user" else "user"
            error = DataError(
                f"{n_bad[role]:,} of {n_rows:,} rows have no {role} in column {columns[role]!r}; "
                f"the first is {place} ({other} {row[other]}); {fill_in(role)}"
            )
            if role in ID_ROLES:
                reader = "read_ratings" if are_ratings else "read_interactions"
                error.add_note(f"in Python: fit({reader}(data, drop_missing_ids=True))")
            raise error
    if n_bad:
        place, row = first(" OR ".join(bad_counts.values()))
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in n_bad.items())
        has_comma = re.fullmatch(r"' *-?[0-9]+,[0-9]+ *'", row["count"])
        point = ", with a decimal point," if has_comma else ""
        raise DataError(
            f"{sum(n_bad.values()):,} of {n_rows:,} {'ratings' if are_ratings else 'counts'} in "
            f"column {columns['count']!r} cannot be used ({kinds}); the first is {row['count']} "
            f"in {place} (user {row['user']}, item {row['item']}); make it a finite number"
            f"{'' if are_ratings else ' of at least 0'}{point} or drop these rows"
        )
    times: Times | BadTimes | None = None
    if form is not None:
        times = form.judge(found[len(bad) :], is_order=is_order(columns["time"]))
    if isinstance(times, BadTimes):
        place, row = first(times.is_bad)
        raise DataError(
            f"times in column {columns['time']!r} cannot be used: {times.reason}; the first is "
            f"{row['time']} in {place} (user {row['user']}, item {row['item']}); write all times "
            f"alike, best as 2024-05-31T18:30:00Z{or_ignore('time')}"
        )
    if times is not None:
        query = f"SELECT *, {times.value} AS at FROM ({query})"
    if "count" not in columns:
        return UsableRows(query, "count(*)", times)
    exact = whole and total < EXACT_LIMIT
    return UsableRows(query, "sum(number)" if exact else "sum(number ORDER BY number)", times)


def _report_dropped_rows(connection: Connection, query: str) -> None:
    figures = f"count(*), count(*) FILTER (WHERE {HAS_IDS})"
    report_dropped(*connection.execute(f"SELECT {figures} FROM ({query})").fetchall()[0])


def report_dropped(n_rows: int, n_kept: int) -> None:
    """Log how many rows have no user or no item; raises `DataError` if none has both."""
    if n_rows and not n_kept:
        raise DataError(
            f"none of the {n_rows:,} rows has a user and an item; name other columns as user_col "
            "or item_col"
        )
    if n_kept < n_rows:
        logger.warning(
            "%s of %s rows have no user or no item and are left out",
            f"{n_rows - n_kept:,}",
            f"{n_rows:,}",
        )


def usable_columns(types: Mapping[str, str]) -> str:
    """SQL of the columns with NaN ids as NULL, and `number`, the value of `count`."""
    expressions = []
    for role, kind in types.items():
        name = quote_name(role)
        if role in ID_ROLES and kind in FLOAT_TYPES:
            expressions.append(f"CASE WHEN NOT isnan({name}) THEN {name} END AS {name}")
        elif role == "time" and "TIME ZONE" in kind:  # else Python needs a module for zones
            expressions.append(f"timezone('UTC', {name}) AS {name}")
        elif role == "event":
            expressions.append(f"nullif(trim(CAST({name} AS VARCHAR)), '') AS {name}")
        else:
            expressions.append(name)
        if role == "count":
            # Through text, so that dates and truth values are not taken for numbers.
            given = name if is_numeric(kind) else f"CAST({name} AS VARCHAR)"
            expressions.append(f"TRY_CAST({given} AS DOUBLE) AS number")
    return ", ".join(expressions)


def _first(
    connection: Connection, scan: Scan, usable: Callable[[str], str], condition: str
) -> tuple[str, dict[str, str]]:
    """The place and the values, for messages, of the first row that meets a condition."""
    for label, part in scan.parts.items():
        query = usable(part)
        found = connection.execute(
            f"SELECT * FROM (SELECT row_number() OVER () AS row, * FROM ({query})) "
            f"WHERE {condition} ORDER BY row LIMIT 1"
        ).fetchall()
        for place, *values in found:
            roles = connection.types(query)
            shown = {role: scan.shown(role, v) for role, v in zip(roles, values, strict=True)}
            return f"data row {place:,} of {label}", shown
    raise DataError(
        f"rows of {next(iter(scan.parts))} that cannot be used were counted, but not found when "
        "read again; the file is damaged or was changed meanwhile: write it anew"
    )


# Rows become counts -----------------------------------------------------------------------------


def _aggregate(
    connection: Connection, scan: Scan, columns: dict[str, str], named: Columns
) -> Interactions:
    """Number the ids, add up each pair or event, and fetch only numbers."""
    rows = check_rows(connection, scan, columns, drop_missing_ids=named.drop_missing_ids)
    user_ids = number_ids(connection, scan, rows.query, "user")
    item_ids = number_ids(connection, scan, rows.query, "item")
    kinds = _number_kinds(connection, rows.query, columns, named)
    keys = {"u": "u.code", "i": "i.code"}
    joins = 'JOIN user_ids AS u ON r."user" = u.id JOIN item_ids AS i ON r."item" = i.id '
    if rows.times is not None:
        keys["t"] = "r.at"
    if kinds:
        keys["k"] = "k.code"
        joins += 'JOIN kinds AS k ON r."event" = k.id '
    selected = ", ".join(f"{value} AS {name}" for name, value in keys.items())
    query = (
        f"SELECT {selected}, CAST({rows.total} AS DOUBLE) AS n FROM ({rows.query}) AS r {joins}"
        f"GROUP BY {', '.join(keys.values())}"
    )
    if rows.times is None and not kinds:
        pairs = connection.execute(query).fetchnumpy()
        counts = csr_array((pairs["n"], (pairs["u"], pairs["i"])), (len(user_ids), len(item_ids)))
        return Interactions(counts, user_ids, item_ids)
    in_order = [key for key in ("u", "t", "i", "k") if key in keys]
    entries = connection.execute(
        f"SELECT * FROM ({query}) WHERE n > 0 ORDER BY {', '.join(in_order)}"
    ).fetchnumpy()
    log = EventLog(
        user=entries["u"],
        item=entries["i"],
        count=entries["n"],
        time=entries.get("t"),
        clock=None if rows.times is None else rows.times.clock,
        kind=entries.get("k"),
        kinds=kinds,
        unit="" if rows.times is None else rows.times.unit,
    )
    if log.clock == "number" and not is_time(columns["time"]) and log.is_gapless:
        log = replace(log, clock="order", unit=PLACES)
    for line in log.lines():
        logger.info("%s", line)
    for line in doubtful_times(log, now=time.time()):
        logger.warning("%s", line)
    return Interactions.from_log(log, user_ids, item_ids)


def _number_kinds(
    connection: Connection, query: str, columns: dict[str, str], named: Columns
) -> tuple[str, ...]:
    """Number the kinds of events, in a table `kinds` of `id` and `code`; the kinds by code.

    A column that was only recognised by its name is left out if it holds too many.
    """
    if "event" not in columns:
        return ()
    connection.execute(
        "CREATE TABLE kinds AS SELECT id, CAST(row_number() OVER (ORDER BY id) - 1 AS SMALLINT) "
        f'AS code FROM (SELECT DISTINCT "event" AS id FROM ({query}) LIMIT {MOST_KINDS + 1})'
    )
    found = connection.execute("SELECT id FROM kinds ORDER BY code").fetchall()
    kinds = usable_kinds([kind for (kind,) in found], columns["event"], named)
    if not kinds:
        columns.pop("event")
    return kinds


def usable_kinds(found: Sequence[str], column: str, named: Columns) -> tuple[str, ...]:
    """The kinds of events found in a column; none, with a warning, if there are too many.

    Kinds that differ in upper and lower case alone are reported: they are rarely meant.

    Raises:
        DataError: If the caller named the column, and there are more than `MOST_KINDS`.
    """
    if len(found) <= MOST_KINDS:
        folded = [kind.casefold() for kind in found]
        alike = [kind for kind in found if folded.count(kind.casefold()) > 1]
        if alike:
            logger.warning(
                "these events differ in upper and lower case alone and count as different ones: %s",
                ", ".join(map(repr, alike)),
            )
        return tuple(found)
    too_many = f"column {column!r} has more than {MOST_KINDS} different values"
    if named.event_col is not None:
        raise DataError(f"{too_many}; name a column of kinds of events as event_col, or 'none'")
    logger.warning("%s, so it does not hold kinds of events and is not used", too_many)
    return ()


def number_ids(connection: Connection, scan: Scan, query: str, role: str) -> NDArray[Any]:
    """Number the distinct ids, in a table `<role>_ids` of `id` and `code`; the ids by code."""
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
    ids = _fetch(connection, f"SELECT value FROM {table} ORDER BY code", role)
    return scan.coded_ids[role][ids] if role in scan.coded_ids else ids


def _fetch(connection: Connection, query: str, role: str) -> NDArray[Any]:
    kind = connection.types(query)["value"]
    if kind in FAITHFUL_TYPES:
        return connection.execute(query).fetchnumpy()["value"]
    import duckdb

    try:
        values = [value for (value,) in connection.execute(query).fetchall()]
        hash(values[0])
    except (duckdb.Error, TypeError) as error:
        raise DataError(
            f"values of type {kind} cannot serve as {role} ids; write them as numbers or text"
        ) from error
    return as_objects(values)
