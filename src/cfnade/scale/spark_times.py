"""Times in the SQL of Spark: the forms of `cfnade.data.ingest.times` that Spark reads alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cfnade.data.ingest.scan import or_ignore
from cfnade.data.ingest.times import (
    LOCAL,
    WITH_OFFSET,
    WITH_ZONE,
    WITHOUT_ZONE,
    TimeForm,
    is_float,
    numbers,
)
from cfnade.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"  # Spark would read 1d, too
_DATE_OF_NUMBER = (
    "CAST(try_cast(regexp_replace(rpad(CAST(try_cast(moment AS BIGINT) AS STRING), 14, '0'), "
    "'^(....)(..)(..)(..)(..)(..)$', '$1-$2-$3 $4:$5:$6Z') AS TIMESTAMP) AS DOUBLE)"
)


def spark_time_form(rows: DataFrame, kind: str, column: str) -> TimeForm:
    """How a column writes times, by its type in Spark and, for text, its first value.

    The time zone of the session makes no difference: without a zone, times are taken as UTC.

    Args:
        rows: With the column `time`.
        kind: Its type.
        column: Its own name, for messages.

    Raises:
        DataError: If times are written in a way that Spark does not read as one machine does.
    """
    if kind in ("tinyint", "smallint", "int", "bigint", "float", "double") or "decimal" in kind:
        return numbers("CAST(time AS DOUBLE)", TimeForm.is_missing, _DATE_OF_NUMBER)
    if kind == "date":
        return TimeForm("unix_date(time) * 86400D", "dates")
    if kind == "timestamp":
        return TimeForm("CAST(time AS DOUBLE)", WITH_ZONE)
    if kind == "timestamp_ntz":
        return TimeForm(_seconds("concat(CAST(time AS STRING), 'Z')"), WITHOUT_ZONE)
    if kind != "string":
        raise DataError(
            f"column {column!r} of type {kind} cannot serve as times on Spark; write them as "
            f"timestamps, numbers or text{or_ignore('time')}"
        )
    written, is_missing = "trim(time) AS written", "time IS NULL OR written = ''"
    found = rows.selectExpr("time", written).where(f"NOT ({is_missing})").first()
    first = "" if found is None else found["written"]
    if is_float(first):
        value = f"CASE WHEN {_matches('written', _NUMBER)} THEN try_cast(written AS DOUBLE) END"
        return numbers(value, is_missing, _DATE_OF_NUMBER, written)
    if first and not re.fullmatch(f"{LOCAL}|{WITH_OFFSET}", first):
        raise DataError(
            f"times in column {column!r} cannot be used: Spark does not read {first!r:.60}; write "
            f"them as 2024-05-31T18:30:00Z{or_ignore('time')}"
        )
    is_local, has_offset = (_matches("written", pattern) for pattern in (LOCAL, WITH_OFFSET))
    # As 2024-05-31 18:30:00Z: Spark needs seconds, and hyphens in the date.
    whole = "regexp_replace(replace(written, ',', '.'), '^([0-9]+)/([0-9]+)/', '$1-$2-')"
    whole = f"regexp_replace({whole}, ' *(Z|z|UTC|GMT)$', 'Z')"
    whole = f"regexp_replace({whole}, '^([^:]+:[0-9][0-9])(?![:0-9])', '$1:00')"
    local = "concat(whole, CASE WHEN contains(whole, ':') THEN 'Z' ELSE ' 00:00:00Z' END)"
    return TimeForm(
        f"CASE WHEN is_local THEN {_seconds(local)} WHEN {has_offset} THEN {_seconds('whole')} END",
        WITHOUT_ZONE,
        is_missing=is_missing,
        is_zoned="NOT is_local",  # of those that can be read
        before=(written, f"{is_local} AS is_local", f"{whole} AS whole"),
    )


def _seconds(text: str) -> str:
    """SQL of the seconds from 1970 to a text with a time zone; NULL if it cannot be read."""
    return f"CAST(try_cast({text} AS TIMESTAMP) AS DOUBLE)"


def _matches(text: str, pattern: str) -> str:
    quoted = f"^({pattern})$".replace("\\", "\\\\")
    return f"{text} RLIKE '{quoted}'"
