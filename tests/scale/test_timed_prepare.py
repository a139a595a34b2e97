"""Events with times on Spark are held out and summed up as on one machine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from cfnade.beyond.recency import half_lives, log_watchers, recent_counts
from cfnade.data.event_splits import split_by_time, split_last
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import without_overlap
from cfnade.errors import ConfigError, DataError
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings
from cfnade.fit.training_part import TrainingPart
from cfnade.scale.prepare import PrepareConfig, prepare
from cfnade.scale.prepared import Prepared, parquet
from cfnade.scale.prepared_part import PreparedPart
from tests.scale.timed_logs import COLUMNS, WEIGHTS, columns_of, read_alone, write_log

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]


def parts_of(folder, prefix):
    """Counts by user and item of the shards."""
    whole = Prepared.open(folder)
    ids = whole.catalogue.ids
    return {
        (row["user"], ids[item]): n
        for path in whole.shards
        for row in parquet().read_table(path).to_pylist()
        for item, n in zip(row[f"{prefix}items"], row[f"{prefix}counts"], strict=True)
    }


def by_pair(data, counts):
    pairs = counts.tocoo()
    return {
        (data.user_ids[u], data.item_ids[i]): n
        for u, i, n in zip(pairs.row, pairs.col, pairs.data, strict=True)
    }


def sums_of(log, rows):
    """Events by user, item and time."""
    keys = zip(rows[log.user].tolist(), log.item.tolist(), log.time.tolist(), strict=True)
    sums = Counter()
    for key, count in zip(keys, log.count, strict=True):
        sums[key] += count
    return sums


def assert_same_figures(prepared, data):
    """The tables of a folder against the one-machine functions on the training part."""
    log, shape = data.log, data.counts.shape
    assert prepared.clock == log.clock
    part = TrainingPart(
        data, RelativeRating().fit(data.counts), FitPlan.of(data.counts, FitSettings())
    )
    for half_life in prepared.half_lives:
        counts = recent_counts(log, shape, half_life, data.event_weights)
        expected, found = RelativeRating().fit(counts), prepared.decayed(half_life)
        for name in ("item_starts_", "distinct_counts_", "n_watchers_up_to_"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    _, back, recent = prepared.trends
    saved = PreparedPart.of(prepared, data, part.plan)
    for half_life in (0.0, *prepared.half_lives):
        expected = log_watchers(log, data.n_items, half_life)
        np.testing.assert_allclose(saved._watchers(half_life), expected, rtol=1e-6)
    np.testing.assert_allclose(saved.repeat_features, part.repeat_features, rtol=1e-6)
    assert back.sum() > 0 and recent.shape == (data.n_items, 6)


@pytest.mark.parametrize(
    ("clock", "weights", "floors"),
    [
        ("seconds", None, {}),
        ("seconds", WEIGHTS, {"min_user_items": 5, "min_item_users": 6}),
        ("order", WEIGHTS, {}),
    ],
    ids=["seconds", "floors", "order"],
)
def test_both_folders_are_those_of_one_machine(spark, tmp_path, clock, weights, floors):
    path = write_log(tmp_path / "log.parquet", seed=4, clock=clock)
    config = PrepareConfig(
        shards=2, test_share=0.2, validation_users=10_000, event_weights=weights, **floors
    )
    summary = prepare(spark.read.parquet(str(path)), tmp_path / "out", config, columns_of(path))
    data = read_alone(path, weights, **floors)
    split = split_last if clock == "order" else split_by_time
    assert data.log.clock == clock == summary["clock"]
    tested = split(data, share=0.2)
    validated = split(tested.train, share=0.1)
    outer = Prepared.open(tmp_path / "out")
    assert outer.catalogue.ids.tolist() == data.item_ids.tolist()
    assert list(outer.half_lives) == pytest.approx(list(half_lives(validated.train.log)), rel=1e-12)
    for prepared, found, name in (
        (outer, tested, "test"),
        (outer.before, validated, "validation"),
    ):
        train = found.train
        assert parts_of(prepared.folder, "") == by_pair(train, train.counts)
        assert parts_of(prepared.folder, f"{name}_") == by_pair(train, found.test)
        assert summary[f"n_{name}_pairs"] == found.test.nnz > 0
        for each in ("users", "items", "pairs"):
            assert summary[f"{name}_born_{each}"] == getattr(found, f"n_born_{each}")
        ratings = RelativeRating().fit(train.counts)
        assert np.array_equal(prepared.relative_rating.entries()[2], ratings.entries()[2])
        assert_same_figures(prepared, train)
        _, held_out = zip(*prepared.held_out(name), strict=True)
        new = without_overlap(train.counts, found.test)
        assert sum(each.nnz for each in held_out) == new.nnz
        judged, is_later = prepared.judged()
        of_user = {user: row for row, user in enumerate(data.user_ids.tolist())}
        rows = [of_user[user] for user in judged.user_ids.tolist()]
        assert sorted(rows) == np.flatnonzero(np.diff(found.test.indptr)).tolist()
        earlier = judged.with_events(~is_later)
        assert (earlier.counts != train.counts[rows]).nnz == 0
        expected = sums_of(train.log.subset(np.isin(train.log.user, rows)), np.arange(data.n_users))
        assert sums_of(earlier.log, np.array(rows)) == expected
    if clock == "seconds" and not floors:
        assert summary["test_born_users"] > 0
        shown = tested.at
        assert summary["test_from"] == str(pd.Timestamp(shown, unit="s"))


def test_the_split_follows_the_times_or_is_asked_for(spark, tmp_path, caplog):
    path = write_log(tmp_path / "log.parquet", seed=1)
    frame, columns = spark.read.parquet(str(path)), columns_of(path)
    config = PrepareConfig(shards=1, split="random", validation_users=40)
    with pytest.raises(ConfigError, match="without their times; leave out time_col='time'"):
        prepare(frame, tmp_path / "out", config, columns)
    summary = prepare(frame, tmp_path / "out", config, COLUMNS)
    assert summary["settings"]["split"] == "random" and "clock" not in summary
    assert Prepared.open(tmp_path / "out").before is None
    assert "unused columns: 'time', 'event'" in caplog.messages
    summary = prepare(frame, tmp_path / "out", PrepareConfig(shards=1, split="last"), COLUMNS)
    assert summary["settings"]["split"] == "last" and summary["clock"] == "seconds"
    with pytest.raises(DataError, match="no times to split by"):
        prepare(frame.drop("time"), tmp_path / "out", PrepareConfig(split="time"), COLUMNS)
    places = frame.selectExpr("user", "item", "n", "1 AS position")
    with pytest.raises(DataError, match="an order of each user's events"):
        prepare(places, tmp_path / "out", PrepareConfig(split="time"), COLUMNS)
    with pytest.raises(DataError, match="every user has events at one time only"):
        prepare(places, tmp_path / "out", PrepareConfig(split="last"), COLUMNS)
    caplog.clear()
    summary = prepare(places, tmp_path / "out", PrepareConfig(shards=1), COLUMNS)
    assert summary["settings"]["split"] == "random" and "random pairs are held out" in caplog.text
    with pytest.raises(ConfigError, match="split"):
        PrepareConfig(split="tomorrow")


def test_a_part_without_anything_held_out_has_no_tables(spark, tmp_path):
    path = write_log(tmp_path / "log.parquet", seed=1)
    config = PrepareConfig(shards=1, validation_share=0.0)
    summary = prepare(spark.read.parquet(str(path)), tmp_path / "out", config, columns_of(path))
    whole = Prepared.open(tmp_path / "out")
    assert whole.before is None and whole.half_lives == () and summary["n_test_pairs"] == 0
    alone = read_alone(path, None)
    assert parts_of(tmp_path / "out", "") == by_pair(alone, alone.counts)


def test_what_is_planned_does_not_grow_with_users(spark, tmp_path):
    """Judged users are bounded, whatever the number of users."""
    path = write_log(tmp_path / "log.parquet", seed=1)
    config = PrepareConfig(shards=1, validation_users=10)
    prepare(spark.read.parquet(str(path)), tmp_path / "out", config, columns_of(path))
    before = Prepared.open(tmp_path / "out").before
    judged, _ = before.judged()
    assert 2 < judged.n_users < 25
    some, _ = before.judged(2)
    assert some.user_ids.tolist() == judged.user_ids.tolist()[:2]
