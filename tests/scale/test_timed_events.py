"""Points in time and clocks of events on Spark are those of one machine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfnade.data.ingest.columns import Columns
from cfnade.scale.source import check_frame
from cfnade.scale.timed_events import NothingLaterError, TimedEvents, clock_of, time_of_last

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]


def slow_time_of_last(times, counts, share):
    """Every time but the first, and the events from there on."""
    total = counts.sum()
    off = [abs(counts[times >= at].sum() - share * total) for at in np.unique(times)[1:]]
    return np.unique(times)[1:][int(np.argmin(off))]


@pytest.mark.parametrize("seed", range(2))
def test_the_point_in_time_is_that_of_one_machine(spark, seed, monkeypatch):
    monkeypatch.setattr("cfnade.scale.timed_events.N_RANGES", 5)  # to look several times
    rng = np.random.default_rng(seed)
    times = np.round(rng.lognormal(10, 3, 400), seed)
    frame = pd.DataFrame({"at": times, "number": rng.integers(1, 4, 400).astype(float)})
    rows = spark.createDataFrame(frame)
    for share in (0.001, 0.37, 0.999):
        expected = slow_time_of_last(times, frame["number"].to_numpy(), share)
        assert time_of_last(rows, share) == expected
    two = rows.selectExpr("if(at < 100, 1D, 2D) AS at", "number")
    assert time_of_last(two, 0.9) == time_of_last(two, 0.1) == 2.0
    with pytest.raises(NothingLaterError, match="all events are at the same time"):
        time_of_last(two.where("at = 1"), 0.1)


def test_numbers_without_a_gap_are_an_order(spark):
    rows = [("a", "x", 1), ("a", "y", 2), ("b", "x", 1), ("b", "x", 1)]
    frame = spark.createDataFrame(rows, "user string, item string, turn int")
    read = lambda frame: clock_of(check_frame(frame, Columns(time_col="turn"), with_times=True))  # noqa: E731
    assert read(frame) == "order"
    assert read(frame.union(spark.createDataFrame([("b", "y", 4)], frame.schema))) == "number"
    assert read(frame.union(spark.createDataFrame([("c", "y", 2)], frame.schema))) == "number"
    assert (
        clock_of(check_frame(frame.withColumnRenamed("turn", "day"), with_times=True)) == "number"
    )
    events = TimedEvents.of(check_frame(frame, Columns(time_col="turn"), with_times=True), "order")
    assert events.half_lives() == (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
