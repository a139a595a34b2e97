"""Times that come one at a time, as those of a history at request time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from cfnade.data.events import Clock
from cfnade.errors import DataError

SMALLEST_SECONDS = 1e8
"""1973: smaller numbers in a table count days or weeks from some start."""

_UNITS = ((1e11, 1.0, "seconds"), (1e14, 1e3, "milliseconds"), (1e17, 1e6, "microseconds"))
LAST_DATE = 21001231
"""Whole numbers from 19000101 to here may be dates written as YYYYMMDD."""

_WRITTEN = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}  # by the number of digits
_DAY = re.compile(r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?=$|[T ])")
_DATE = "a date or time such as 2024-05-31 or 2024-05-31T18:30:00Z"
_EXPECTED: dict[Clock | None, str] = {
    "seconds": f"{_DATE}, or seconds since 1970",
    "number": "a number, in the unit of the times that the model was fitted on",
    "order": "a number, the place in the order of the history",
    None: f"a number, or {_DATE}",
}


class MixedZonesError(DataError):
    """Some times have a time zone and others have none."""

    def __init__(self) -> None:
        super().__init__(
            "some times of the history have a time zone and others have none; write all of them "
            "with one, such as 2024-05-31T18:30:00Z, or all without"
        )


def unit_of(size: float) -> tuple[float, str]:
    """How many make a second, and their name, of numbers of this size that count since 1970."""
    for limit, per_second, name in _UNITS:
        if size < limit:
            return per_second, name
    return 1e9, "nanoseconds"


def expected_time(clock: Clock | None) -> str:
    """What a time should look like, for messages."""
    return _EXPECTED[clock]


def as_time(when: Any, clock: Clock | None) -> float:
    """A time in terms of a clock.

    With the clock `seconds`, numbers are read as in a table: by their size they are seconds,
    milliseconds, micro- or nanoseconds since 1970, or a date written as YYYYMMDD, perhaps with a
    time of day (YYYYMMDDhhmm, YYYYMMDDhhmmss). Dates and times without a time zone are taken as
    UTC.

    Args:
        when: A number, or a date or time as ISO text, `datetime`, `date` or `numpy.datetime64`.
        clock: What the times of the model are; None accepts all of these.

    Raises:
        DataError: If it is none of these, or the clock does not go by dates.
    """
    try:
        time = _read(when, clock)
    except (ValueError, OverflowError):  # pandas' NaT, an endless integer
        time = None
    if time is None or not math.isfinite(time):
        raise DataError(f"a time must be {expected_time(clock)}; got {when!r:.60}")
    return time


def check_zones(times: Iterable[Any]) -> None:
    """Refuse a mix of dates and times with and without a time zone, as in a table.

    Numbers have no zone to write. Raises `MixedZonesError`.
    """
    if {True, False} <= {_is_zoned(when) for when in times}:
        raise MixedZonesError


def _is_zoned(when: Any) -> bool | None:
    """Whether a readable time has a time zone; None for a number and for no time."""
    if isinstance(when, str):
        try:
            when = _moment(when.strip())
        except ValueError:
            return None
    if isinstance(when, np.datetime64 | date):
        return isinstance(when, datetime) and when.tzinfo is not None
    return None


def _read(when: Any, clock: Clock | None) -> float | None:
    if isinstance(when, str):
        return _of_text(when.strip(), clock)
    if isinstance(when, np.datetime64 | date):  # a datetime is a date
        return _of_date(when) if clock in ("seconds", None) else None
    if isinstance(when, int | float | np.integer | np.floating) and not isinstance(when, bool):
        return _of_number(float(when), clock)
    return None


def _moment(text: str) -> datetime:
    """A date or time as a table may write it; raises `ValueError` for anything else."""
    if text.isdecimal() and len(text) != len("20240531"):  # Python would read a date in some
        raise ValueError(text)
    day = _DAY.match(text)
    if day:
        rest = re.sub(r" *(Z|z|UTC|GMT)$", "+00:00", text[day.end() :].replace(",", "."))
        rest = re.sub(r"^([T ])(\d:)", r"\g<1>0\2", re.sub(r" +([+-])", r"\1", rest))
        text = f"{day[1]}-{day[3]:0>2}-{day[4]:0>2}{rest}"
    return datetime.fromisoformat(text)


def _of_text(text: str, clock: Clock | None) -> float | None:
    if clock in ("seconds", None):
        try:
            return _of_date(_moment(text))
        except ValueError:
            if len(text) == 4:  # a year is no date, and 2,024 seconds are not meant
                return None
    return _of_number(float(text), clock)


def _of_number(number: float, clock: Clock | None) -> float | None:
    if clock != "seconds" or not math.isfinite(number):
        return number
    digits = f"{number:.0f}"
    form = _WRITTEN.get(len(digits)) if number.is_integer() else None
    if form is not None and 1900 <= int(digits[:4]) <= 2100:
        with suppress(ValueError):
            return _of_date(datetime.strptime(digits, form))
    return number / unit_of(abs(number))[0]


def _of_date(when: date | np.datetime64) -> float | None:
    """Seconds since 1970."""
    if isinstance(when, np.datetime64):
        return (
            None if np.isnat(when) else float(when.astype("datetime64[us]").astype(np.int64)) / 1e6
        )
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
