from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.columns import Columns
from cfnade.data.ratings import RelativeRating, likes_alone
from cfnade.errors import ConfigError, DataError
from cfnade.estimator import ImplicitCFNADE
from cfnade.scale.prepare import PrepareConfig, prepare
from cfnade.scale.prepared import Prepared, parquet
from tests.planted import window_shopping
from tests.scale.shards_on_disk import n_held_alone

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]


def users_of(folder):
    """All rows of the shards, by user."""
    rows = [
        row
        for path in Prepared.open(folder).shards
        for row in parquet().read_table(path).to_pylist()
    ]
    assert len({row["user"] for row in rows}) == len(rows)
    return {row["user"]: row for row in rows}


def counts_by_pair(rows, parts=("", "validation_", "test_")):
    return {
        (user, item): n
        for user, row in rows.items()
        for part in parts
        for item, n in zip(row[f"{part}items"], row[f"{part}counts"], strict=True)
    }


def test_the_shards_hold_the_counts_that_one_machine_reads(prepared, plays):
    alone = read_interactions(plays)
    whole = Prepared.open(prepared)
    assert whole.catalogue.ids.tolist() == alone.item_ids.tolist()
    pairs = alone.counts.tocoo()
    expected = {
        (alone.user_ids[u], int(i)): n
        for u, i, n in zip(pairs.row, pairs.col, pairs.data, strict=True)
    }
    assert counts_by_pair(users_of(prepared)) == expected
    assert whole.summary["n_pairs"] == alone.n_pairs and whole.n_items == alone.n_items
    assert whole.summary["n_users"] == alone.n_users


def test_the_ratings_equal_those_of_one_machine_exactly(prepared):
    whole, rows = Prepared.open(prepared), users_of(prepared)
    users = sorted(rows)
    dense = np.zeros((len(users), whole.n_items))
    for place, user in enumerate(users):
        dense[place, rows[user]["items"]] = rows[user]["counts"]

    fitted = RelativeRating().fit(csr_array(dense))
    ratings = fitted.transform(csr_array(dense)).toarray()
    for place, user in enumerate(users):
        assert ratings[place, rows[user]["items"]].tolist() == rows[user]["ratings"]
    for name in ("item_starts_", "distinct_counts_", "n_watchers_up_to_"):
        assert np.array_equal(getattr(whole.relative_rating, name), getattr(fitted, name))


def test_the_parts_are_held_out_by_the_rule_of_one_machine(prepared):
    n_validated = 0
    for row in users_of(prepared).values():
        n_left = len(row["items"]) + len(row["validation_items"])
        n_items = n_left + len(row["test_items"])
        assert len(row["test_items"]) == n_held_alone(n_items, 0.1)
        if row["validation_items"]:
            n_validated += 1
            assert len(row["validation_items"]) == n_held_alone(n_left, 0.1)
        assert len({*row["items"], *row["validation_items"], *row["test_items"]}) == n_items
    assert 60 < n_validated < 140
    whole = Prepared.open(prepared)
    pieces = list(whole.held_out("validation"))
    for matrices in zip(*pieces, strict=True):
        assert sum(matrix.shape[0] for matrix in matrices) == n_validated
    n_pairs = sum(held_out.nnz for _, held_out in pieces)
    assert n_pairs == whole.summary["n_validation_pairs"]


def test_events_in_a_csv_are_counted_and_their_ids_read_as_on_one_machine(spark, tmp_path):
    lines = ["user,film", *(f"{k % 7},{k % 5:03d}" for k in range(60)), "7,001", "7,001"]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    frame = spark.read.option("header", True).csv(str(tmp_path / "events.csv"))
    config = PrepareConfig(shards=2, validation_share=0.0)
    summary = prepare(frame, tmp_path / "out", config, from_text=True)
    alone, whole = read_interactions(tmp_path / "events.csv"), Prepared.open(tmp_path / "out")
    assert whole.catalogue.ids.tolist() == alone.item_ids.tolist() == [f"{k:03d}" for k in range(5)]
    rows = users_of(tmp_path / "out")
    assert sorted(rows) == alone.user_ids.tolist() == list(range(8))
    assert counts_by_pair(rows)[7, 1] == 2.0
    assert summary["n_pairs"] == alone.n_pairs and summary["n_validation_pairs"] == 0


def test_fractions_add_up_as_on_one_machine(spark, tmp_path):
    """In ascending order: 0.3 + 0.2 + 0.1, as they come, would be another double."""
    rows = [(user, "x", n) for user in ("a", "b") for n in (0.3, 0.2, 0.1)]
    frame = spark.createDataFrame([*rows, ("b", "x", 0.0)], "user string, item string, n double")
    frame.toPandas().to_csv(tmp_path / "rows.csv", index=False)
    alone = read_interactions(tmp_path / "rows.csv", count_col="n")
    config = PrepareConfig(shards=1, validation_share=0.0)
    prepare(frame.repartition(3), tmp_path / "out", config, Columns(count_col="n"))
    found = counts_by_pair(users_of(tmp_path / "out"))
    assert set(found.values()) == set(alone.counts.data.tolist()) == {0.1 + 0.2 + 0.3}
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1


def test_kinds_of_events_are_weighed_as_on_one_machine_and_the_model_reads_them_alike(
    spark, tmp_path, caplog
):
    pytest.importorskip("torch")
    from cfnade.scale.shard_training import train_prepared

    shop = window_shopping().log
    kind = np.array(shop.kinds)[shop.kind]
    rows = pd.DataFrame({"user": shop.user, "item": shop.item, "what": kind, "time": 0})
    rows.to_parquet(tmp_path / "shop.parquet", index=False)
    weights = {"view": 0.1, "cart": 2.5, "buy": 10.0, "skip": -3.0}
    config = PrepareConfig(shards=2, validation_share=0.0, event_weights=weights)
    frame = spark.read.parquet(str(tmp_path / "shop.parquet"))
    columns = Columns(event_col="what")
    summary = prepare(frame, tmp_path / "out", config, columns)
    alone = read_interactions(tmp_path / "shop.parquet", event_col="what", event_weights=weights)
    found = counts_by_pair(users_of(tmp_path / "out"))
    pairs = alone.counts.tocoo()
    assert found == dict(zip(zip(pairs.row, pairs.col, strict=True), pairs.data, strict=True))
    n_dropped = alone.log.counts(pairs.shape).nnz - alone.n_pairs
    assert summary["n_dropped_pairs"] == n_dropped > 0
    dropped = f"{n_dropped} pairs are dropped: their weighted sum is not above 0"
    assert caplog.messages == [dropped]

    settings = {"n_hidden": 4, "max_epochs": 1, "batch_size": 100}
    train_prepared(tmp_path / "out", tmp_path / "model", settings)
    model = ImplicitCFNADE.load(tmp_path / "model")
    assert model.event_weights_ == weights
    plain = read_interactions(tmp_path / "shop.parquet", event_col="what")
    assert (likes_alone(model.histories(plain)) != alone.counts).nnz == 0


def test_event_weights_that_do_not_fit_are_refused(spark, tmp_path):
    rows = [("a", "x", "view", 1), ("b", "y", "buy", 2)]
    frame = spark.createDataFrame(rows, "user string, item string, event string, time int")

    def refused(weights, why, frame=frame, **columns):
        config = PrepareConfig(shards=1, event_weights=weights)
        with pytest.raises((ConfigError, DataError), match=why):
            prepare(frame, tmp_path / "out", config, Columns(**columns))

    refused({"view": 1.0}, "event 'buy' has no weight")
    refused({"view": 1.0, "buy": 2.0, "like": 1.0}, "no event 'like' to weigh")
    refused({"view": -1.0, "buy": 0.0}, "no pair has a count above 0 with these event weights")
    refused({"view": 1.0}, "need a column with the kind", frame.drop("event"))
    refused(None, "without their kinds of events; leave out event_col='event'", event_col="event")


def test_a_default_file_system_elsewhere_and_a_name_with_a_blank_change_nothing(
    spark, plays, tmp_path
):
    spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    try:
        out = tmp_path / "made ready"
        frame = spark.read.parquet(f"file://{plays}")
        summary = prepare(frame, out, PrepareConfig(shards=2))
    finally:
        spark.conf.unset("fs.defaultFS")
    assert len(users_of(out)) == summary["n_users"] == 400
    assert [path.name for path in tmp_path.iterdir()] == ["made ready"]


def test_a_part_that_nobody_has_enough_items_for_is_warned_of(spark, tmp_path, caplog):
    frame = spark.createDataFrame([("a", "x"), ("a", "y"), ("b", "x")], "user string, item string")
    prepare(frame, tmp_path / "out", PrepareConfig(shards=1, test_share=0.5))
    assert [record.args for record in caplog.records] == [("validation", 5), ("test", 5)]
    caplog.clear()
    prepare(frame, tmp_path / "out", PrepareConfig(shards=1, validation_share=0.0))
    assert not caplog.records


def test_floors_leave_what_they_leave_on_one_machine(spark, plays, tmp_path):
    alone = read_interactions(plays, min_user_items=6, min_item_users=40)
    kept_before = set(spark.sparkContext._jsc.getPersistentRDDs())  # of other jobs
    config = PrepareConfig(min_user_items=6, min_item_users=40, shards=2)
    summary = prepare(spark.read.parquet(str(plays)), tmp_path / "out", config)
    sizes = (summary["n_users"], summary["n_items"], summary["n_pairs"])
    assert sizes == (alone.n_users, alone.n_items, alone.n_pairs)
    assert alone.n_users < 400
    kept = set(spark.sparkContext._jsc.getPersistentRDDs())
    assert kept <= kept_before  # nothing of this job stays on the executors


def test_the_order_and_the_parts_of_the_input_change_nothing(spark, plays, prepared, tmp_path):
    config = PrepareConfig(shards=4, test_share=0.1, validation_users=100)
    shuffled = spark.read.parquet(str(plays)).orderBy("plays", "item").repartition(7)
    prepare(shuffled, tmp_path / "out", config)
    assert users_of(tmp_path / "out") == users_of(prepared)
    assert Prepared.open(tmp_path / "out").summary == Prepared.open(prepared).summary


def test_rows_that_cannot_be_used_are_reported(spark, tmp_path):
    rows = [("a", "x", "3"), ("a", None, "1"), ("b", "y", "much")]
    frame = spark.createDataFrame(rows, "user string, item string, count string")
    with pytest.raises(DataError, match=r"1 of 3 rows have no item .*_ids=True"):
        prepare(frame, tmp_path / "out")
    with pytest.raises(DataError, match=r"1 of 2 counts .* one is 'much' \(user 'b', item 'y'\)"):
        prepare(frame.where("item is not null"), tmp_path / "out")
    with pytest.raises(DataError, match="no count is above zero"):
        prepare(frame.selectExpr("user", "'z' item", "0 count"), tmp_path / "out")
    with pytest.raises(DataError, match="cannot serve as user ids"):
        prepare(frame.selectExpr("1.5D user", "'z' item"), tmp_path / "out")
    with pytest.raises(DataError, match="name one of these as item_col"):
        prepare(frame, tmp_path / "out", columns=Columns(item_col="thing"))


def test_a_folder_with_other_things_in_it_is_left_alone(spark, plays, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="not a prepared folder"):
        prepare(spark.read.parquet(str(plays)), tmp_path)
    with pytest.raises(DataError, match="cfnade scale prepare"):
        Prepared.open(tmp_path)
    with pytest.raises(ConfigError, match="test_share"):
        PrepareConfig(test_share=1.0)
