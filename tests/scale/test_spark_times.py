"""Times on Spark mean what they mean on one machine."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pytest

from cfnade.data.ingest import read_interactions
from cfnade.errors import DataError
from cfnade.scale.source import check_frame

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]

LOCAL = [
    "2024-05-01T10:30:00",
    "2024-03-10 02:30",  # an hour that New York skips
    "2024-11-03 01:30:00.25",
    "2024/05/01 10:30:00,5",
    "2024-5-1 9:30",
    " 2024-05-01 ",
    "2024/5/1",
]
WITH_OFFSET = [
    "2024-05-01T10:30:00Z",
    "2024-05-01T10:30z",
    "2024-05-01 10:30:00 UTC",
    "2024/05/01 10:30 GMT",
    "2024-05-01T12:30:00.125+02:00",
    "2024-05-01T12:30:00+0200",
    "2024-05-01 05:30 -05",
]
NUMBERS = {
    "seconds": [1714559400, 1714559401],
    "fractions of seconds": [1714559400.25, 1714559401.0],
    "milliseconds": [1714559400123, 1714559400124],
    "microseconds": [1714559400123456, 1714559400123457],
    "nanoseconds": [1714559400123456789, 1714559400123456790],
    "dates": [20240501, 20231231],
    "dates and times": [20240501103000, 20231231235959],
    "dates and minutes": [202405011030, 202312312359],
    "weeks": [3, 7],
    "text": ["3", " 7.5 "],
    "dates in text": ["20240501", "20231231"],
}


@pytest.fixture(scope="module")
def far_away(spark):
    """A session in another time zone, which must not matter."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def times_of(frame):
    """The times by item, and their clock, on Spark."""
    checked = check_frame(frame, with_times=True)
    return {r["item_id"]: r["at"] for r in checked.rows.collect()}, checked.clock


def times_alone(source):
    """The same on one machine."""
    log = read_interactions(source).log
    return dict(zip(log.item.tolist(), log.time.tolist(), strict=True)), log.clock


def table(times, name="time"):
    return pd.DataFrame({"user": 1, "item": range(len(times)), name: times})


@pytest.mark.parametrize("texts", [LOCAL, WITH_OFFSET], ids=["local", "with an offset"])
def test_texts_are_read_as_on_one_machine(far_away, texts):
    frame = table(texts)
    found, clock = times_of(far_away.createDataFrame(frame))
    assert (found, clock) == times_alone(frame)
    assert clock == "seconds" and len(found) == len(texts)


@pytest.mark.parametrize("times", NUMBERS.values(), ids=NUMBERS)
def test_numbers_are_read_by_their_size(far_away, times):
    frame = table(times)
    assert times_of(far_away.createDataFrame(frame)) == times_alone(frame)


def test_an_order_is_known_by_its_name(far_away):
    frame = table([1_714_559_400, 2_000_000_000], "position")
    found, clock = times_of(far_away.createDataFrame(frame))
    assert (found, clock) == times_alone(frame)
    assert clock == "order"


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE", "DECIMAL(12, 2)"])
def test_types_of_parquet_are_read_as_on_one_machine(far_away, kind, tmp_path):
    values = ["2024-03-10 02:30:00.25", "2024-11-03 01:30:00"]
    if kind == "DATE":
        values = ["2024-03-10", "2024-11-03"]
    if kind.startswith("DECIMAL"):
        values = ["1714559400.25", "1714559401"]
    rows = far_away.createDataFrame(table(values)).selectExpr(
        "user", "item", f"CAST(time AS {kind}) AS time"
    )
    rows.write.parquet(str(tmp_path / "rows"))
    found = times_of(far_away.read.parquet(str(tmp_path / "rows")))
    assert found == times_alone(tmp_path / "rows")
    if kind == "TIMESTAMP_NTZ":
        moment = dt.datetime(2024, 3, 10, 2, 30, 0, 250_000, dt.UTC)
        assert found[0][0] == moment.timestamp()


@pytest.mark.parametrize(
    ("times", "why"),
    [
        (["2024-05-01", None], "1 of 2 are missing; one is None"),
        (["2024-05-01", "soon"], "1 of 2 are not dates or times like the first; one is"),
        (["2024-05-01T10:30:00Z", "2024-05-01"], "1 of 2 have no time zone"),
        (["1714559400", "1714559400000"], "some are seconds since 1970, others milliseconds"),
        (["7", "1d"], "1 of 2 are not finite numbers; one is '1d'"),
        (["31.5.2024", "1.6.2024"], r"Spark does not read '(31.5|1.6).2024'; write them as 2024"),
        (["2024-05-01 10:30 Europe/Berlin"] * 2, "Spark does not read '2024-05-01 10:30 Europe"),
        ([True, False], "type boolean cannot serve as times on Spark"),
    ],
)
def test_what_spark_cannot_read_alike_ends_in_one_line(spark, times, why):
    frame = spark.createDataFrame(table(times)).coalesce(1)
    with pytest.raises(DataError, match=why) as caught:
        check_frame(frame, with_times=True)
    assert "\n" not in str(caught.value) and "time_col 'none'" in str(caught.value)
