from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.times import WITH_ZONE
from cfnade.errors import DataError
from tests.data.ingest.helpers import write, write_query

MAY = dt.datetime(2024, 5, 1, 10, 30, tzinfo=dt.UTC).timestamp()
DAY = 86_400.0


def log_of_times(tmp_path, *texts, **options):
    rows = "".join(f'u,"i{place}","{text}"\n' for place, text in enumerate(texts))
    return read_interactions(write(tmp_path / "a.csv", "user,item,time\n" + rows), **options).log


def refusal(source, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_interactions(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01T10:30:00",
        "2024-05-01 10:30",
        "2024-05-01 10:30:00.000000",
        "2024/05/01 10:30:00",
        "2024-5-1 10:30",
        " 2024-05-01T10:30:00 ",
        "2024-05-01T10:30:00Z",
        "2024-05-01T10:30Z",
        "2024-05-01 12:30 +0200",
        "2024-05-01 12:30 Europe/Berlin",
        "2024-05-01 10:30:00 UTC",
        "2024-05-01T12:30:00+02:00",
        "2024-05-01T12:30:00.000+0200",
        "2024-05-01 05:30:00 -05",
        "2024-05-01 12:30:00 Europe/Berlin",
        "1714559400",
        "1714559400.0",
        "1714559400000",
        "1714559400000000",
        "1714559400000000000",
        "202405011030",
        "20240501103000",
    ],
)
def test_a_moment_is_read_from_any_usual_text(tmp_path, text, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")  # must not matter
    log = log_of_times(tmp_path, text)
    assert log.time.tolist() == [MAY]
    assert log.clock == "seconds"


@pytest.mark.parametrize(
    ("expression", "expected", "unit"),
    [
        ("DATE '2024-05-01'", MAY - 37_800, "dates"),
        ("TIMESTAMP '2024-05-01 10:30:00'", MAY, "without a time zone, taken as UTC"),
        ("TIMESTAMP_S '2024-05-01 10:30:00'", MAY, "without a time zone"),
        ("TIMESTAMP_NS '2024-05-01 10:30:00.5'", MAY + 0.5, "without a time zone"),
        ("TIMESTAMPTZ '2024-05-01 12:30:00+02'", MAY, "with a time zone"),
        ("1714559400::INTEGER", MAY, "seconds since 1970, by their size"),
        ("1714559400.25::DOUBLE", MAY + 0.25, "seconds since 1970"),
        ("1714559400.25::DECIMAL(12, 2)", MAY + 0.25, "seconds since 1970"),
        ("1714559400123::BIGINT", MAY + 0.123, "milliseconds since 1970"),
        ("20240501::INTEGER", MAY - 37_800, "dates written as YYYYMMDD"),
        ("20240501103000::BIGINT", MAY, "YYYYMMDDhhmmss"),
    ],
)
def test_a_moment_is_read_from_any_type_of_parquet(tmp_path, expression, expected, unit):
    query = f"SELECT 1 AS user, 'x' AS item, {expression} AS ts"
    log = read_interactions(write_query(tmp_path / "a.parquet", query)).log
    assert log.time.tolist() == [pytest.approx(expected, abs=1e-6)]
    assert unit in log.unit


def test_small_numbers_are_a_clock_of_their_own(tmp_path):
    log = log_of_times(tmp_path, "3", "17", "2")
    assert (log.clock, log.time.tolist()) == ("number", [2.0, 3.0, 17.0])
    assert "unknown unit" in log.unit


def test_dates_with_the_year_last_are_read_if_one_shows_what_comes_first(tmp_path):
    log = log_of_times(tmp_path, "12/1/2010 8:26", "12/13/2010 17:00")
    assert log.time[1] - log.time[0] == 12 * DAY + 8.0 * 3600 + 34 * 60
    assert "month first" in log.unit
    log = log_of_times(tmp_path, "1.2.2024", "13.2.2024")
    assert log.time[1] - log.time[0] == 12 * DAY
    assert "day first" in log.unit
    log = log_of_times(tmp_path, "11/13/2019 9:05:58 AM", "11/13/2019 9:05:58 PM")
    assert log.time[1] - log.time[0] == DAY / 2
    path = write(tmp_path / "b.csv", "user,item,date\n1,a,4/4/2024\n1,b,1/2/2024\n")
    assert "not clear whether the day or the month comes first; the first is '1/2/2024'" in refusal(
        path
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            ["2024-05-01", "soon"],
            "1 of 2 are not dates or times like the first; the first is 'soon'",
        ),
        (["soon", "2024-05-01"], "the first is 'soon' in data row 1 of"),
        (["2024-02-30"], "1 of 1 are not dates or times; the first is '2024-02-30'"),
        (["2024-05-01", "1714559400"], "the first is '1714559400'"),
        (["1714559400", "2024-05-01"], "1 of 2 are not finite numbers; the first is '2024-05-01'"),
        (["5", "inf"], "1 of 2 are not finite numbers; the first is 'inf'"),
        (["2024-05-01", ""], "1 of 2 are missing; the first is none in data row 2 of"),
        (["7", "nan"], "1 of 2 are missing; the first is 'nan'"),
        (
            ["2024-05-01T10:00:00Z", "2024-05-01T10:00:00", "2024-05-02"],
            "2 of 3 have no time zone, the others have one; the first is '2024-05-01T10:00:00' in "
            "data row 2 of",
        ),
        (
            ["1714559400", "1714559400000"],
            "by their size some are seconds since 1970, others milliseconds; the first is "
            "'1714559400' in data row 1 of",
        ),
        (["epoch"], "not dates or times"),
        (["10:30", "9:15:00 PM"], "they are times of day without a date; name a column that has"),
        (["10:30", "2024-05-01"], "1 of 2 are not dates or times like the first"),
    ],
)
def test_times_that_cannot_be_used_are_refused_in_one_line(tmp_path, values, said):
    rows = "".join(f"u,i{place},{value}\n" for place, value in enumerate(values))
    line = refusal(write(tmp_path / "a.csv", "user,item,time\n" + rows))
    assert said in line
    assert "times in column 'time' cannot be used" in line
    assert "a.csv (user 'u', item 'i" in line
    assert "ignore the column with time_col 'none'" in line


def test_times_of_zero_and_in_the_future_are_reported(tmp_path, caplog):
    path = write(tmp_path / "a.csv", "user,item,time\n1,a,0\n1,b,1700000000\n2,a,1700000001\n")
    read_interactions(path)
    assert "1 event at 1970-01-01: if a time of 0 means that it is missing" in caplog.text
    for first in ("1900-01-01", "1969-12-31"):  # the latter as -1 is read
        caplog.clear()
        path = write(tmp_path / "a.csv", f"user,item,time\n1,a,{first}\n1,b,2024-05-31\n")
        read_interactions(path)
        said = f"1 event from {first} to 1970-01-01: if such a time means that it is missing"
        assert said in caplog.text
    caplog.clear()
    path = write(tmp_path / "a.csv", "user,item,time\n1,a,2024-05-31\n1,b,2999-01-01\n")
    read_interactions(path)
    assert "1 event in the future, up to 2999-01-01: what is recent counts" in caplog.text
    caplog.clear()
    path = write(tmp_path / "a.csv", "user,item,week\n1,a,0\n1,b,3\n")
    read_interactions(path)
    assert caplog.text == ""


def test_a_missing_time_of_any_type_is_refused(tmp_path):
    for value in ("NULL::TIMESTAMP", "NULL::BIGINT", "'nan'::DOUBLE", "NULL::DATE"):
        query = f"SELECT 1 AS user, 'x' AS item, {value} AS ts"
        assert "1 of 1 are missing" in refusal(write_query(tmp_path / "a.parquet", query))


def test_a_bad_row_with_a_zoned_time_is_shown_without_a_module_for_zones(tmp_path):
    query = "SELECT 1 AS user, 'x' AS item, -1 AS count, TIMESTAMPTZ '2024-05-01 12:30:00+02' AS ts"
    assert "the first is -1 in data row 1" in refusal(write_query(tmp_path / "a.parquet", query))
    query = (
        "SELECT 1 AS user, 'x' AS item, "
        "unnest([TIMESTAMPTZ '2024-05-01 12:30:00+02', 'infinity'::TIMESTAMPTZ]) AS ts"
    )
    assert "1 of 2 are not dates" in refusal(write_query(tmp_path / "b.parquet", query))


def test_a_comma_may_stand_before_the_fractions_of_a_second(tmp_path):
    log = log_of_times(tmp_path, "2024-05-01 10:30:00,250", "2024-05-01 10:30:00.5")
    assert log.time.tolist() == [MAY + 0.25, MAY + 0.5]


@pytest.mark.parametrize("name", ["position", "Basket", "order", "sequence", "rank"])
def test_an_order_is_recognised_by_its_name(tmp_path, name):
    log = read_interactions(write(tmp_path / "a.csv", f"user,item,{name}\n1,a,7\n1,b,2\n")).log
    assert (log.clock, log.time.tolist(), log.item.tolist()) == ("order", [2.0, 7.0], [1, 0])


def test_numbers_that_start_again_for_every_user_are_an_order(tmp_path):
    text = "user,item,visit\n1,a,1\n1,b,2\n1,c,2\n2,a,1\n2,b,2\n2,b,3\n"
    path = write(tmp_path / "a.csv", text)
    assert read_interactions(path, time_col="visit").log.clock == "order"
    later = write(tmp_path / "b.csv", text.replace("2,a,1", "2,a,0"))
    assert read_interactions(later, time_col="visit").log.clock == "number"
    week = write(tmp_path / "c.csv", text.replace("visit", "week"))
    assert read_interactions(week).log.clock == "number"


MOMENTS = [dt.datetime(2024, 5, 1, 10, 30, tzinfo=dt.UTC), dt.datetime(2024, 5, 2, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    "times",
    [
        pd.Series(pd.to_datetime(MOMENTS)).dt.tz_convert("Europe/Berlin"),
        pd.Series(pd.to_datetime(MOMENTS)).dt.tz_localize(None),
        pd.Series(MOMENTS, dtype=object),
        pd.Series([m.isoformat() for m in MOMENTS]),
        pl.Series(MOMENTS).dt.convert_time_zone("Asia/Tokyo"),
        pl.Series([m.replace(tzinfo=None) for m in MOMENTS]),
        pa.array(MOMENTS, pa.timestamp("ms", "Asia/Tokyo")),
        pa.array([int(m.timestamp()) for m in MOMENTS]),
    ],
    ids=lambda times: f"{type(times).__module__}-{getattr(times, 'dtype', '')}",
)
def test_moments_of_any_frame_are_read(times):
    columns = {"user": [1, 1], "item": ["a", "b"], "time": times}
    library = type(times).__module__.partition(".")[0]
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library](columns)
    log = read_interactions(frame).log
    assert log.time.tolist() == [m.timestamp() for m in MOMENTS]


def test_dates_of_polars_and_python_are_read():
    days = [dt.date(2024, 5, 1), dt.date(2024, 5, 2)]
    columns = {"user": [1, 1], "item": ["a", "b"], "date": days}
    for frame in (pl.DataFrame(columns), pd.DataFrame(columns)):
        assert np.diff(read_interactions(frame).log.time).tolist() == [DAY]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 4),
        st.sampled_from(["view", "buy", "skip"]),
    ),
    min_size=1,
    max_size=40,
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(rows=ROWS.filter(lambda rows: any(row[3] for row in rows)), seed=st.integers())
def test_the_log_agrees_with_a_plain_loop_over_the_rows(rows, seed):
    expected: defaultdict = defaultdict(float)
    for user, item, time, count, kind in rows:
        expected[user, item, time, kind] += count
    random.Random(seed).shuffle(rows)
    frame = pd.DataFrame(rows, columns=["user", "item", "week", "count", "event"])
    found = read_interactions(frame)
    log = found.log
    entries = {
        (found.user_ids[u], found.item_ids[i], t, log.kinds[k]): n
        for u, i, t, k, n in zip(log.user, log.item, log.time, log.kind, log.count, strict=True)
    }
    assert len(entries) == log.n_entries
    assert entries == {key: n for key, n in expected.items() if n}
    assert log.kinds == tuple(sorted({row[4] for row in rows}))
    in_order = sorted(zip(log.user, log.time, log.item, log.kind, strict=True))
    assert in_order == list(zip(log.user, log.time, log.item, log.kind, strict=True))
    assert (log.counts(found.counts.shape) != found.counts).nnz == 0


@pytest.mark.parametrize(
    "times",
    [
        pd.Series(MOMENTS),
        pd.Series(pd.to_datetime(MOMENTS)).dt.as_unit("ns").dt.tz_convert("Europe/Berlin"),
        pl.Series(MOMENTS).dt.convert_time_zone("Asia/Tokyo"),
        pa.array(MOMENTS, pa.timestamp("ms", "Asia/Tokyo")),
    ],
    ids=lambda times: f"{type(times).__module__}-{getattr(times, 'dtype', '')}",
)
def test_that_a_frame_has_time_zones_is_reported(times):
    columns = {"user": [1, 1], "item": ["a", "b"], "time": times}
    frame = pl.DataFrame(columns) if isinstance(times, pl.Series) else columns
    if isinstance(times, pa.Array):
        frame = pa.table(columns)
    elif not isinstance(frame, pl.DataFrame):
        frame = pd.DataFrame(columns)
    assert read_interactions(frame).log.unit == WITH_ZONE
