"""Rows on Spark become the pairs that one machine reads."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.beyond.recency import decayed
from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.columns import Columns
from cfnade.errors import DataError
from cfnade.scale.source import check_frame

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]

WEIGHTS = {"buy": 3.7, "skip": -1.1, "view": 0.1}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Events with counts, some of 0; the order changes the last digit of weighted sums."""
    import pandas as pd

    rng, n = np.random.default_rng(0), 400
    columns = {
        "user": rng.integers(9, size=n),
        "item": rng.integers(8, size=n),
        "plays": rng.integers(0, 4, size=n),
        "week": rng.integers(30, size=n),
        "event": rng.choice(list(WEIGHTS), size=n),
    }
    never = {"user": [9, 9], "item": [1, 2], "plays": 0, "week": [4, 5], "event": "view"}
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pd.concat([pd.DataFrame(columns), pd.DataFrame(never)]).to_parquet(path, index=False)
    return path


def by_pair(pairs, value="n"):
    return {(r["user_id"], r["item_id"]): r[value] for r in pairs.collect()}


def as_pairs(counts):
    pairs = counts.tocoo()
    return dict(zip(zip(pairs.row, pairs.col, strict=True), pairs.data.tolist(), strict=True))


def test_times_and_kinds_of_events_are_reported_as_unused_unless_they_are_asked_for(spark, caplog):
    rows = [("u", "a", 5, "view"), ("u", "a", 6, "buy"), ("v", "a", 7, "view")]
    frame = spark.createDataFrame(rows, ["user", "item", "timestamp", "event"])
    assert by_pair(check_frame(frame).pairs()) == {("u", "a"): 2.0, ("v", "a"): 1.0}
    assert caplog.messages == ["unused columns: 'timestamp', 'event'"]
    caplog.clear()
    checked = check_frame(frame, with_times=True, with_kinds=True)
    assert (checked.clock, checked.kinds) == ("number", ("buy", "view"))
    assert not caplog.messages
    checked = check_frame(frame, Columns(time_col="none"), with_times=True)
    assert checked.clock is None and checked.about_n_users == 2


def test_weighted_sums_are_those_of_one_machine_to_the_bit(spark, log):
    frame, alone = spark.read.parquet(str(log)).repartition(3), read_interactions(log)
    pairs = check_frame(frame, with_kinds=True).pairs(weights=WEIGHTS)
    shape = alone.counts.shape
    found = by_pair(pairs)
    assert {pair: n for pair, n in found.items() if n > 0} == as_pairs(
        alone.log.counts(shape, WEIGHTS)
    )
    assert {pair: -n for pair, n in found.items() if n < 0} == as_pairs(
        alone.log.dislikes(shape, WEIGHTS)
    )
    assert {user for user, _ in found} == set(range(10))  # also one with nothing but zeros


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_recent_sums_are_those_of_a_plain_loop_and_targets_are_marked(spark, log, weights):
    import pandas as pd

    rows = pd.read_parquet(log)
    happened = rows[rows["plays"] > 0]
    latest = happened.groupby("user")["week"].max()
    sums = dict.fromkeys(zip(rows["user"], rows["item"], strict=True), 0.0)
    plain, bought = dict(sums), set()
    for row in happened.itertuples():
        weight = 1.0 if weights is None else weights[row.event]
        age = float(latest[row.user] - row.week)
        sums[row.user, row.item] += float(decayed(row.plays * weight, age, 6.5))
        plain[row.user, row.item] += row.plays * weight
        bought |= {(row.user, row.item)} if row.event == "buy" else set()
    checked = check_frame(spark.read.parquet(str(log)), with_times=True, with_kinds=True)
    pairs = checked.pairs(2, weights=weights, half_life=6.5, target="buy")
    found = by_pair(pairs)
    expected = {pair: n if n > 0 else min(plain[pair], 0.0) for pair, n in sums.items()}
    assert found == pytest.approx(expected)
    assert {pair for pair, is_owned in by_pair(pairs, "is_owned").items() if is_owned} == bought


def test_rows_without_a_kind_and_columns_with_too_many_are_refused(spark, caplog):
    frame = spark.createDataFrame(
        [("u", "a", None), ("u", "b", "view")], "user string, item string, event string"
    )
    with pytest.raises(DataError, match=r"1 of 2 rows have no event .* event_col 'none'"):
        check_frame(frame, with_kinds=True)
    many = spark.range(150).selectExpr("id AS user", "id AS item", "id AS event", "id AS kind")
    assert check_frame(many, with_kinds=True).kinds == ()
    assert "'event' has more than 100 different values" in caplog.text
    with pytest.raises(DataError, match="'kind' has more than 100 different values"):
        check_frame(many, Columns(event_col="kind"), with_kinds=True)


def test_rows_without_an_id_can_be_dropped_as_on_one_machine(spark, tmp_path, caplog):
    path = tmp_path / "a.csv"
    path.write_text('user,item,count,day\n1,a,2,2025-12-31\n"",b,-1,x\n2,,3,y\n2,b,3,2025-12-30\n')
    frame = spark.read.csv(str(path), header=True)
    columns = Columns(drop_missing_ids=True)
    checked = check_frame(frame, columns, from_text=True, with_times=True)
    alone = read_interactions(path, drop_missing_ids=True)
    assert by_pair(checked.pairs()) == {(1, "a"): 2.0, (2, "b"): 3.0}
    assert alone.user_ids.tolist() == [1, 2] and checked.clock == alone.clock == "seconds"
    line = "2 of 4 rows have no user or no item and are left out"
    assert caplog.messages.count(line) == 2
    with pytest.raises(DataError, match="none of the 1 rows has a user and an item"):
        check_frame(frame.where("item = 'b' AND user IS NULL"), columns)


def test_blanks_around_a_kind_of_event_do_not_count(spark):
    rows = [("1", "a", " view "), ("1", "b", "view"), ("2", "a", "buy")]
    checked = check_frame(spark.createDataFrame(rows, ["user", "item", "event"]), with_kinds=True)
    assert checked.kinds == ("buy", "view")
