"""Times in SQL: how a column writes them, whether all can be read, and as what clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfnade.data.events import Clock
from cfnade.data.ingest.scan import Connection, Scan, is_numeric, quote_text
from cfnade.data.moments import SMALLEST_SECONDS, unit_of

WITH_ZONE = "dates and times with a time zone"
WITHOUT_ZONE = "dates and times without a time zone, taken as UTC"
PLACES = "places in the order of each user's events"

_DATE = r"\d{4}([-/])\d{1,2}[-/]\d{1,2}"
_TIME_OF_DAY = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
_LOCAL = rf"{_DATE}([T ]{_TIME_OF_DAY})?"
_ZONE = r"(Z|z|UTC|GMT|[+-]\d{2}(:?\d{2})?|[A-Z]\w+(/\w+)+)"
_ZONED = rf"{_DATE}[T ]{_TIME_OF_DAY} *{_ZONE}"
_YEAR_LAST = r"\d{1,2}([-/.])\d{1,2}[-/.]\d{4}( .*)?"
_TIMES_OF_DAY = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")

_TEXT = "replace(trim(CAST(time AS VARCHAR)), ',', '.')"


@dataclass(frozen=True)
class Times:
    """How all times of a column are read."""

    value: str
    """SQL of a time as a DOUBLE, from the column `time`."""

    clock: Clock
    unit: str
    """How they are written, for people to read."""


@dataclass(frozen=True)
class BadTimes:
    """Why the times of a column cannot be read."""

    reason: str
    is_bad: str
    """SQL condition of the rows to blame."""


@dataclass(frozen=True)
class TimeForm:
    """One way to write times, in SQL of the column `time`.

    `figures` are computed in the pass that checks all rows; `judge` decides by their values.
    """

    value: str
    """A number or seconds since 1970, as a DOUBLE; NULL if it is written another way."""

    unit: str = ""
    is_number: bool = False
    is_missing: str = "time IS NULL"
    is_zoned: str = "false"
    day_first: str | None = None
    """As `value`, if `value` takes the month to come before the day."""

    @property
    def figures(self) -> list[str]:
        """Aggregates over all rows that `judge` needs."""
        other = self.day_first or self.value
        usable = f"CASE WHEN isfinite({self.value}) THEN {self.value} END"
        is_date = "false"
        if self.is_number:
            is_date = (
                f"CASE WHEN {self.value} BETWEEN 19000101 AND 21001231 AND {self.value} = "
                f"trunc({self.value}) THEN {_date_of(self.value)} IS NOT NULL ELSE false END"
            )
        conditions = (
            self.is_missing,
            self._unreadable(self.value),
            self._unreadable(other),
            f"{self.value} IS DISTINCT FROM {other}",
            self.is_zoned,
        )
        tallies = [f"count(*) FILTER (WHERE {condition})" for condition in conditions]
        return ["count(*)", *tallies, f"min({usable})", f"max({usable})", f"bool_and({is_date})"]

    def judge(self, figures: Sequence[Any], *, is_order: bool) -> Times | BadTimes:
        """What the times are, or what is wrong with them, by the values of `figures`.

        With `is_order`, numbers are places in the order of each user's events.
        """
        n_rows, n_missing, n_bad, n_bad_other, n_differ, n_zoned, low, high, all_dates = figures
        if n_missing:
            return BadTimes(f"{n_missing:,} of {n_rows:,} are missing", self.is_missing)
        value, unit = self.value, self.unit
        if self.day_first is not None:
            if n_differ and n_bad == n_bad_other == 0:
                reason = "it is not clear whether the day or the month comes first"
                return BadTimes(reason, f"{value} IS DISTINCT FROM {self.day_first}")
            if n_bad_other < n_bad:
                value, n_bad, unit = self.day_first, n_bad_other, unit.replace("month", "day")
        if n_bad:
            what = "finite numbers" if self.is_number else "dates or times like the first"
            return BadTimes(f"{n_bad:,} of {n_rows:,} are not {what}", self._unreadable(value))
        if 0 < n_zoned < n_rows:
            reason = f"{n_rows - n_zoned:,} of {n_rows:,} have no time zone, the others have one"
            return BadTimes(reason, f"NOT ({self.is_zoned})")
        if self.is_number:
            return self._judge_numbers(low, high, all_dates=all_dates, is_order=is_order)
        return Times(value, "seconds", WITH_ZONE if n_zoned else unit)

    def _judge_numbers(
        self, low: float, high: float, *, all_dates: bool, is_order: bool
    ) -> Times | BadTimes:
        if is_order:
            return Times(self.value, "order", PLACES)
        if all_dates:
            return Times(f"epoch({_date_of(self.value)})", "seconds", "dates written as YYYYMMDD")
        size = max(abs(low), abs(high))
        if size < SMALLEST_SECONDS:
            return Times(self.value, "number", "numbers of an unknown unit")
        per_second, name = unit_of(size)
        if low >= SMALLEST_SECONDS and unit_of(low) != (per_second, name):
            reason = f"by their size some are {unit_of(low)[1]} since 1970, others {name}"
            return BadTimes(reason, f"{self.value} < {SMALLEST_SECONDS * per_second!r}")
        unit = f"{name} since 1970, by their size"
        return Times(f"({self.value} / {per_second!r})", "seconds", unit)

    def _unreadable(self, value: str) -> str:
        return f"NOT ({self.is_missing}) AND NOT coalesce(isfinite({value}), false)"


def time_form(connection: Connection, scan: Scan, kind: str) -> TimeForm:
    """How a column writes times, by its type in DuckDB and, for text, its first value."""
    if is_numeric(kind):
        return _numbers("CAST(time AS DOUBLE)", TimeForm.is_missing)
    if kind == "DATE":
        return TimeForm("epoch(time)", "dates")
    if kind.startswith("TIMESTAMP"):
        return TimeForm("epoch(time)", WITH_ZONE if "TIME ZONE" in kind else WITHOUT_ZONE)
    is_missing = f"{TimeForm.is_missing} OR {_TEXT} = ''"
    found = connection.execute(
        f"SELECT {_TEXT} FROM ({scan.query}) WHERE NOT ({is_missing}) LIMIT 1"
    ).fetchall()
    first = found[0][0] if found else ""
    if _is_float(first):
        return _numbers(f"TRY_CAST({_TEXT} AS DOUBLE)", is_missing)
    if match := re.fullmatch(_YEAR_LAST, first):
        month_first, day_first = (
            _by_formats(match[1].join((*order, "%Y"))) for order in (("%m", "%d"), ("%d", "%m"))
        )
        unit = "dates with the month first, taken as UTC"
        return TimeForm(month_first, unit, is_missing=is_missing, day_first=day_first)
    is_local, is_zoned = (
        f"regexp_full_match({_TEXT}, {quote_text(pattern)})" for pattern in (_LOCAL, _ZONED)
    )
    in_utc = f"regexp_replace({_TEXT}, ' *(Z|z|UTC|GMT)$', '+00')"
    zoned = f"TRY_CAST(regexp_replace({in_utc}, ' +([+-])', '\\1') AS TIMESTAMPTZ)"
    value = (
        f"CASE WHEN {is_local} THEN epoch(TRY_CAST({_TEXT} AS TIMESTAMP)) "
        f"WHEN {is_zoned} THEN epoch({zoned}) END"
    )
    return TimeForm(value, WITHOUT_ZONE, is_missing=is_missing, is_zoned=is_zoned)


def _numbers(value: str, is_missing: str) -> TimeForm:
    is_nan = f"coalesce(isnan({value}), false)"
    return TimeForm(value, is_number=True, is_missing=f"{is_missing} OR {is_nan}")


def _by_formats(date: str) -> str:
    formats = ", ".join(quote_text(date + time) for time in _TIMES_OF_DAY)
    return f"epoch(try_strptime({_TEXT}, [{formats}]))"


def _date_of(number: str) -> str:
    return f"try_strptime(CAST(TRY_CAST({number} AS BIGINT) AS VARCHAR), '%Y%m%d')"


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
