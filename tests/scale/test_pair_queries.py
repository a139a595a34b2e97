"""The queries of preparation: the same rows on DuckDB and Spark, by the rules of one machine."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating
from cfnade.scale.pair_queries import (
    KNOWN,
    TEST,
    VALIDATION,
    distributions_query,
    split_query,
)
from tests.scale.shards_on_disk import n_held_alone

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]


def relative_rating_query(pairs):
    """The definition of relative ratings; it sorts all watchers of an item in one place."""
    return (
        "SELECT user_id, item_id, n, "
        f"cume_dist() OVER (PARTITION BY item_id ORDER BY n) AS rating FROM {pairs}"
    )


def run_query(frame, query):
    """As `prepare` does."""
    return frame.sparkSession.sql(query("{pairs}"), pairs=frame)


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
