from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.ingest import read_interactions
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import hold_out
from cfnade.errors import ConfigError, DataError
from cfnade.scale.prepare import PrepareConfig, prepare
from cfnade.scale.prepared import Prepared, parquet
from cfnade.scale.source import Columns, run_query
from cfnade.scale.sql import (
    KNOWN,
    TEST,
    VALIDATION,
    distributions_query,
    relative_rating_query,
    split_query,
)

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


def n_held_alone(n_items, share):
    """How many of one user's items one machine holds out, if others have them as well."""
    others = np.eye(n_items)  # of one item each, which they keep
    return hold_out(csr_array(np.vstack([np.ones((1, n_items)), others])), share=share)[1].nnz


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
    histories, held_out = Prepared.open(prepared).held_out("validation")
    assert histories.shape[0] == held_out.shape[0] == n_validated
    assert held_out.nnz == Prepared.open(prepared).summary["n_validation_pairs"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    import pandas as pd

    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"user_id": rng.integers(300, size=3000), "item_id": rng.integers(40, size=3000)}
    )
    frame = frame.drop_duplicates()
    frame["n"] = rng.integers(0, 7, len(frame)) / 2
    path = tmp_path_factory.mktemp("pairs") / "pairs.parquet"
    frame.to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("share", [0.1, 0.145, 0.5, 0.9, 0.99])
def test_as_many_are_held_out_as_on_one_machine_and_never_all(tmp_path, share):
    import pandas as pd

    sizes = [*range(1, 60), 100, 200]  # of user k; 0.145 of 100 is a half as a decimal only
    frame = pd.DataFrame({"user_id": np.repeat(np.arange(len(sizes)), sizes)})
    frame = frame.assign(item_id=frame.groupby("user_id").cumcount(), n=1.0)
    frame.to_parquet(tmp_path / "pairs.parquet")
    query = split_query(
        f"'{tmp_path / 'pairs.parquet'}'",
        test_share=share,
        validation_share=share,
        validation_threshold="g",
        seed=0,
    )
    found = Counter(duckdb.sql(f"SELECT user_id, part FROM ({query})").fetchall())
    for user, n_items in enumerate(sizes):
        n_test = n_held_alone(n_items, share)
        n_validation = n_held_alone(n_items - n_test, share)
        parts = [found[user, part] for part in (TEST, VALIDATION, KNOWN)]
        assert parts == [n_test, n_validation, n_items - n_test - n_validation]
        assert parts[-1] > 0


SPLIT = {"test_share": 0.5, "validation_share": 0.1, "validation_threshold": "8", "seed": 5}


@pytest.mark.parametrize(
    "query",
    [relative_rating_query, distributions_query, lambda pairs: split_query(pairs, **SPLIT)],
    ids=["relative ratings", "distributions", "split"],
)
def test_the_same_query_text_gives_the_same_rows_on_duckdb_and_on_spark(spark, pairs, query):
    on_duckdb = duckdb.sql(query(f"'{pairs}'")).fetchall()
    on_spark = run_query(spark.read.parquet(str(pairs)), query).collect()
    assert sorted(map(tuple, on_spark)) == sorted(on_duckdb)


def test_both_queries_of_relative_ratings_equal_the_fitted_ones_exactly(spark, pairs):
    import pandas as pd

    frame = pd.read_parquet(pairs)
    frame = frame[frame["n"] > 0]
    counts = csr_array((frame["n"], (frame["user_id"], frame["item_id"])), shape=(300, 40))
    fitted = RelativeRating().fit(counts)
    liked = spark.read.parquet(str(pairs)).where("n > 0")
    found = run_query(liked, relative_rating_query).toPandas()
    expected = fitted.of_pairs(found["item_id"].to_numpy(), found["n"].to_numpy())
    assert found["rating"].tolist() == expected.tolist()
    found = run_query(liked, distributions_query).toPandas()
    expected = fitted.of_pairs(found["item_id"].to_numpy(), found["n"].to_numpy())
    assert found["rating"].tolist() == expected.tolist()


def test_an_item_that_everybody_has_is_sorted_by_its_distinct_counts_not_its_watchers(spark, plays):
    frame = spark.read.parquet(str(plays)).selectExpr("user user_id", "item item_id", "1.0D n")
    plan = run_query(frame, distributions_query)._jdf.queryExecution().executedPlan().toString()
    # reading from below: equal counts are added up before any window sorts what is left
    assert plan.index("Window") < plan.index("HashAggregate")
    assert run_query(frame, distributions_query).where("item_id = 'show 99'").count() == 1


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


def test_rows_that_cannot_be_used_are_told(spark, tmp_path):
    rows = [("a", "x", "3"), ("a", None, "1"), ("b", "y", "much")]
    frame = spark.createDataFrame(rows, "user string, item string, count string")
    with pytest.raises(DataError, match="1 of 3 rows have no item in column 'item'"):
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
