"""A time that comes alone is read as in a table."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

from cfnade.data.ingest import read_interactions
from cfnade.data.moments import MixedZonesError, as_time, check_zones, expected_time
from cfnade.errors import DataError

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
SECONDS = NOON.timestamp()


@pytest.mark.parametrize(
    "when",
    [
        SECONDS, int(SECONDS), np.float32(SECONDS), np.int64(SECONDS), str(int(SECONDS)),
        SECONDS * 1e3, int(SECONDS) * 10**6, int(SECONDS) * 10**9,
        NOON, NOON.replace(tzinfo=None), NOON.astimezone(timezone(timedelta(hours=2))),
        np.datetime64("2024-05-31T12:00"), np.datetime64("2024-05-31T12:00:00.000000000"),
        pd.Timestamp("2024-05-31 12:00"), pd.Timestamp("2024-05-31 14:00", tz="Europe/Berlin"),
        "2024-05-31T12:00:00Z", "2024-05-31 12:00", " 2024-05-31T14:00:00+02:00 ",
        "2024/5/31 12:00", "2024-05-31 12:00:00 UTC", "2024-05-31 14:00 +0200",
        "2024-05-31T12:00:00,000Z", 202405311200, 20240531120000, "20240531120000",
    ],
)  # fmt: skip
def test_any_way_to_write_a_time_gives_the_same_seconds(when):
    assert as_time(when, "seconds") == pytest.approx(SECONDS, abs=64.0)  # of float32


@pytest.mark.parametrize("day", ["2024-05-31", 20240531, "20240531", date(2024, 5, 31)])
def test_a_date_is_midnight_utc(day):
    assert as_time(day, "seconds") == datetime(2024, 5, 31, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "times",
    [["2024-05-31T12:00:00+02:00", "2024-06-01T12:00:00Z"], ["2024-05-31", "2024-06-30"],
     [1_717_156_800, 1_717_156_801], [1_717_156_800_123, 1_717_156_801_999], [20240531, 20240601],
     [202405311200, 202406011359], [20240531120000, 20240601135959],
     ["2024/5/31 9:30", "2024/6/1"], ["2024-05-31 9:30 UTC", "2024-06-01 12:00:00,5 +02"],
     [NOON, NOON + timedelta(days=1)]],
)  # fmt: skip
def test_times_are_those_of_a_table(times):
    table = pd.DataFrame({"user": [1, 1], "item": ["a", "b"], "time": times})
    log = read_interactions(table).log
    assert log.clock == "seconds"
    assert [as_time(when, log.clock) for when in times] == pytest.approx(log.time.tolist())


@pytest.mark.parametrize("clock", ["number", "order"])
def test_other_clocks_take_numbers_as_they_are(clock):
    for when in (7, 7.0, "7", np.int16(7)):
        assert as_time(when, clock) == 7.0
    assert as_time(20240531, clock) == 20240531.0
    for wrong in ("2024-05-31", NOON, date(2024, 5, 31), np.datetime64("2024-05-31")):
        with pytest.raises(DataError, match="a time must be a number, "):
            as_time(wrong, clock)


@pytest.mark.parametrize("clock", ["seconds", "number", "order", None])
@pytest.mark.parametrize(
    "wrong",
    ["soon", "", "31.5.2024", "2024-13-01", True, [1], {}, float("nan"), "inf", 10**400, pd.NaT,
     np.datetime64("NaT"), b"7"],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(wrong, clock):
    with pytest.raises(DataError) as error:
        as_time(wrong, clock)
    assert str(error.value).startswith(f"a time must be {expected_time(clock)}; got ")
    assert "\n" not in str(error.value)


def test_digits_alone_are_a_number_though_python_reads_a_date_in_some():
    assert as_time("1612122512345", "seconds") == 1_612_122_512.345  # not 1612-12-25 23:45


def test_a_year_is_no_date():
    with pytest.raises(DataError, match="a date or time such as 2024-05-31"):
        as_time("2024", "seconds")


def test_without_a_clock_numbers_and_dates_are_taken():
    assert as_time(3, None) == 3.0 and as_time("2024-05-31T12:00Z", None) == SECONDS


WITHOUT_ZONE = ["2024-05-31", " 2024-05-31T12:00 ", date(2024, 5, 31), np.datetime64("2024-05-31")]


@pytest.mark.parametrize("without", [*WITHOUT_ZONE, NOON.replace(tzinfo=None)])
@pytest.mark.parametrize("zoned", [NOON, "2024-05-31T14:00:00+02:00", "2024-05-31 12:00Z"])
def test_a_mix_of_times_with_and_without_a_zone_is_refused(without, zoned):
    with pytest.raises(MixedZonesError, match="and others have none; write all of them with one"):
        check_zones([None, without, 5.0, zoned])
    for alike in (without, zoned):
        check_zones([alike, None, SECONDS, str(int(SECONDS)), "soon", alike])
