"""Times in SQL: how a column writes them, whether all can be read, and as what clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfnade.data.events import Clock, EventLog, shown_time
from cfnade.data.ingest.scan import Connection, is_numeric, quote_text
from cfnade.data.moments import LAST_DATE, SMALLEST_SECONDS, unit_of
from cfnade.errors import n_of

WITH_ZONE = "dates and times with a time zone"
WITHOUT_ZONE = "dates and times without a time zone, taken as UTC"
PLACES = "places in the order of each user's events"

_DATE = r"\d{4}([-/])\d{1,2}[-/]\d{1,2}"
_TIME_OF_DAY = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
_OFFSET = r"Z|z|UTC|GMT|[+-]\d{2}(:?\d{2})?"
LOCAL = rf"{_DATE}([T ]{_TIME_OF_DAY})?"
WITH_OFFSET = rf"{_DATE}[T ]{_TIME_OF_DAY} *({_OFFSET})"
_ZONED = rf"{_DATE}[T ]{_TIME_OF_DAY} *({_OFFSET}|[A-Z]\w+(/\w+)+)"
_YEAR_LAST = r"\d{1,2}([-/.])\d{1,2}[-/.]\d{4}( .*)?"
_TIMES_OF_DAY = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")

_DAY = 86_400.0  # clocks and time zones may differ by that much

_TIME_OF_DAY_ALONE = rf"{_TIME_OF_DAY}( *[AaPp][Mm])?"
_WRITTEN_DATES = " OR ".join(
    f"moment BETWEEN 19000101{'0' * more} AND 21001231{'9' * more}" for more in (0, 4, 6)
)
"""SQL of numbers that may write dates: as 20240531, 202405311830 or 20240531183000."""

_DATE_OF_NUMBER = (
    "epoch(try_strptime(CAST(TRY_CAST(moment AS BIGINT) AS VARCHAR), "
    "['%Y%m%d', '%Y%m%d%H%M', '%Y%m%d%H%M%S']))"
)


@dataclass(frozen=True)
class Times:
    """How all times of a column are read."""

    value: str
    """SQL of a time as a DOUBLE, from the columns of the form."""

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

    `steps` add its columns to rows. `figures` are computed in the pass that checks all of them, and
    `judge` decides by the values. DuckDB and Spark both run the SQL of these.
    """

    value: str
    """A number or seconds since 1970, as a DOUBLE; NULL if it is written another way."""

    unit: str = ""
    is_number: bool = False
    is_missing: str = "time IS NULL"
    is_zoned: str = "false"
    day_first: str = "NULL"
    """As `value`, if `value` takes the month to come before the day."""

    before: tuple[str, ...] = ()
    """Columns that the others are computed from, in this order."""

    date: str = "NULL"
    """Seconds from 1970 to the date that `moment` writes, perhaps with a time of day, as 20240531
    and 20240531183000 do; NULL if it is none."""

    is_time_of_day: bool = False
    """Whether the first one is a time of day, without a date."""

    @property
    def steps(self) -> list[tuple[str, ...]]:
        """Columns to add, in turn: at last `moment`, `day_first`, `is_zoned` and `is_missing`."""
        last = (
            f"{self.value} AS moment",
            f"CAST({self.day_first} AS DOUBLE) AS day_first",
            f"{self.is_zoned} AS is_zoned",
            f"{self.is_missing} AS is_missing",
        )
        return [*((column,) for column in self.before), last]

    def on(self, query: str) -> str:
        """The rows of a query with the columns of `steps`."""
        for columns in self.steps:
            query = f"SELECT *, {', '.join(columns)} FROM ({query})"
        return query

    @property
    def figures(self) -> list[str]:
        """Aggregates over all rows, with these columns, that `judge` needs."""
        conditions = (
            "is_missing",
            _unreadable("moment"),
            _unreadable("day_first"),
            "moment IS DISTINCT FROM day_first",
            "is_zoned",
        )
        tallies = [f"count(*) FILTER (WHERE {condition})" for condition in conditions]
        usable = f"CASE WHEN {_is_finite('moment')} THEN moment END"
        is_date = "false"
        if self.is_number:
            is_date = (
                f"CASE WHEN ({_WRITTEN_DATES}) AND moment % 1 = 0 "
                f"THEN {self.date} IS NOT NULL ELSE false END"
            )
        return ["count(*)", *tallies, f"min({usable})", f"max({usable})", f"bool_and({is_date})"]

    def judge(self, figures: Sequence[Any], *, is_order: bool) -> Times | BadTimes:
        """What the times are, or what is wrong with them, by the values of `figures`.

        With `is_order`, numbers are places in the order of each user's events.
        """
        n_rows, n_missing, n_bad, n_bad_other, n_differ, n_zoned, low, high, all_dates = figures
        if n_missing:
            return BadTimes(f"{n_missing:,} of {n_rows:,} are missing", "is_missing")
        value, unit = "moment", self.unit
        if self.day_first != "NULL":
            if n_differ and n_bad == n_bad_other == 0:
                reason = "it is not clear whether the day or the month comes first"
                return BadTimes(reason, "moment IS DISTINCT FROM day_first")
            if n_bad_other < n_bad:
                value, n_bad, unit = "day_first", n_bad_other, unit.replace("month", "day")
        if n_bad:
            what = "finite numbers"
            if self.is_time_of_day and n_bad == n_rows:
                reason = "they are times of day without a date; name a column that has the date"
                return BadTimes(f"{reason} as time_col", _unreadable(value))
            if not self.is_number:
                what = "dates or times" + (" like the first" if n_bad < n_rows else "")
            return BadTimes(f"{n_bad:,} of {n_rows:,} are not {what}", _unreadable(value))
        if 0 < n_zoned < n_rows:
            reason = f"{n_rows - n_zoned:,} of {n_rows:,} have no time zone, the others have one"
            return BadTimes(reason, "NOT is_zoned")
        if self.is_number:
            date = self.date if all_dates else None
            return _judge_numbers(low, high, date=date, is_order=is_order)
        return Times(value, "seconds", WITH_ZONE if n_zoned else unit)


def _unreadable(value: str) -> str:
    return f"NOT is_missing AND NOT coalesce({_is_finite(value)}, false)"


def _is_finite(value: str) -> str:
    return f"abs({value}) < CAST('infinity' AS DOUBLE)"


def _judge_numbers(
    low: float, high: float, *, date: str | None, is_order: bool
) -> Times | BadTimes:
    """What numbers are, by their range; `date` is SQL if all of them write dates."""
    if is_order:
        return Times("moment", "order", PLACES)
    if date is not None:
        what = "dates" if high <= LAST_DATE else "dates and times"
        form = "YYYYMMDD" if high <= LAST_DATE else "YYYYMMDDhhmm or YYYYMMDDhhmmss, taken as UTC"
        return Times(date, "seconds", f"{what} written as {form}")
    size = max(abs(low), abs(high))
    if size < SMALLEST_SECONDS:
        return Times("moment", "number", "numbers of an unknown unit")
    per_second, name = unit_of(size)
    if low >= SMALLEST_SECONDS and unit_of(low) != (per_second, name):
        reason = f"by their size some are {unit_of(low)[1]} since 1970, others {name}"
        return BadTimes(reason, f"moment < {SMALLEST_SECONDS * per_second!r}")
    return Times(f"moment / {per_second!r}", "seconds", f"{name} since 1970, by their size")


def doubtful_times(log: EventLog, now: float) -> list[str]:
    """What looks wrong with times that can be read: 1970 or before, or the future."""
    if log.time is None or log.clock != "seconds":
        return []
    lines = []
    is_early, is_later = log.time <= 0, log.time > now + _DAY
    if is_early.any() and not is_early.all():
        n, first = n_of(int(log.count[is_early].sum()), "event"), log.time.min()
        where = "at 1970-01-01" if first == 0 else f"from {shown_time(first, log.clock)}"
        where += "" if first == 0 else " to 1970-01-01"
        means = "a time of 0" if first == 0 else "such a time"
        lines.append(f"{n} {where}: if {means} means that it is missing, drop these rows")
    if is_later.any():
        n = n_of(int(log.count[is_later].sum()), "event")
        last = shown_time(float(log.time.max()), log.clock)
        lines.append(f"{n} in the future, up to {last}: what is recent counts back from there")
    return lines


def time_form(connection: Connection, query: str, kind: str) -> TimeForm:
    """How a column writes times, by its type in DuckDB and, for text, its first value."""
    if is_numeric(kind):
        return numbers("CAST(time AS DOUBLE)", TimeForm.is_missing, _DATE_OF_NUMBER)
    if kind == "DATE":
        return TimeForm("epoch(time)", "dates")
    if kind.startswith("TIMESTAMP"):
        return TimeForm("epoch(time)", WITH_ZONE if "TIME ZONE" in kind else WITHOUT_ZONE)
    written = "trim(CAST(time AS VARCHAR)) AS written"
    is_missing = "time IS NULL OR written = ''"
    found = connection.execute(
        f"SELECT written FROM (SELECT time, {written} FROM ({query})) "
        f"WHERE NOT ({is_missing}) LIMIT 1"
    ).fetchall()
    first = found[0][0] if found else ""
    if is_float(first):
        return numbers("TRY_CAST(written AS DOUBLE)", is_missing, _DATE_OF_NUMBER, written)
    if match := re.fullmatch(_YEAR_LAST, first):
        month_first, day_first = (
            _by_formats(match[1].join((*order, "%Y"))) for order in (("%m", "%d"), ("%d", "%m"))
        )
        return TimeForm(
            month_first,
            "dates with the month first, taken as UTC",
            is_missing=is_missing,
            day_first=day_first,
            before=(written,),
        )
    is_local, is_zoned = (
        f"regexp_full_match(written, {quote_text(pattern)})" for pattern in (LOCAL, _ZONED)
    )
    in_utc = "regexp_replace(replace(written, ',', '.'), ' *(Z|z|UTC|GMT)$', '+00')"
    joined = f"regexp_replace({in_utc}, ' +([+-])', '\\1')"
    # DuckDB before 2.0 reads a zone after seconds only.
    with_seconds = f"regexp_replace({joined}, '^([^:]+:..)([ +-])', '\\1:00\\2')"
    with_zone = f"TRY_CAST({with_seconds} AS TIMESTAMPTZ)"
    return TimeForm(
        "CASE WHEN is_local THEN epoch(TRY_CAST(replace(written, ',', '.') AS TIMESTAMP)) "
        f"WHEN {is_zoned} THEN epoch({with_zone}) END",
        WITHOUT_ZONE,
        is_missing=is_missing,
        is_time_of_day=re.fullmatch(_TIME_OF_DAY_ALONE, first) is not None,
        is_zoned="NOT is_local",  # of those that can be read
        before=(written, f"{is_local} AS is_local"),
    )


def numbers(value: str, is_missing: str, date: str, *before: str) -> TimeForm:
    """The form of numbers, for which NaN is missing, too; the arguments are those of the form."""
    is_missing = f"{is_missing} OR coalesce(isnan({value}), false)"
    return TimeForm(value, is_number=True, is_missing=is_missing, before=before, date=date)


def _by_formats(date: str) -> str:
    formats = ", ".join(quote_text(date + time) for time in _TIMES_OF_DAY)
    return f"epoch(try_strptime(written, [{formats}]))"


def is_float(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
