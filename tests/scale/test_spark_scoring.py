from __future__ import annotations

import json
import os
import shutil
import sys
import time

import numpy as np
import pytest

from cfnade.answer.all_users import write_recommendations
from cfnade.answer.dials import Dials
from cfnade.beyond.readout import Readout
from cfnade.data.ingest import read_interactions
from cfnade.errors import DataError
from cfnade.estimator import ImplicitCFNADE
from cfnade.scale.prepared import Prepared
from cfnade.scale.spark_scoring import score, score_prepared
from tests.planted import changing_tastes, window_shopping
from tests.scale.cluster import Cluster
from tests.scale.processes import start

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("torch")
N_FREE = 8  # as in `gated_daemon`, which cannot be imported without Spark


@pytest.fixture(scope="module")
def model(plays, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    settings = {"n_hidden": 16, "max_epochs": 3, "validation_share": 0.0, "random_state": 0}
    ImplicitCFNADE(**settings).fit(read_interactions(plays)).save(folder)
    return folder


def rows_of(path):
    """Recommendations by user: item ids in their order, scores and probabilities."""
    import pandas as pd

    frame = pd.read_parquet(path).sort_values(["user_id", "rank"])
    groups = frame.groupby("user_id")
    assert all(group["rank"].tolist() == list(range(1, len(group) + 1)) for _, group in groups)
    values = ["score", "probability"]
    return {user: (g["item_id"].tolist(), g[values].to_numpy(float)) for user, g in groups}


def alone(model, plays, path, n=10, **filters):
    """What one machine writes."""
    loaded, table = ImplicitCFNADE.load(model), read_interactions(plays)
    filters = {"owned": loaded.owned(table), **filters}
    histories = loaded.histories(table, unknown="ignore")
    write_recommendations(loaded.answers_, histories, table.user_ids, path, n, **filters)
    return rows_of(path)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for user, (items, values) in expected.items():
        assert found[user][0] == items
        np.testing.assert_allclose(found[user][1], values, rtol=1e-5)


def test_the_cluster_recommends_what_one_machine_does_to_the_last_id(
    spark, model, plays, tmp_path, caplog
):
    frame = spark.read.parquet(str(plays)).repartition(3)
    scored = score(frame, model, tmp_path / "out", partitions=5)
    expected = alone(model, plays, tmp_path / "alone.parquet")
    assert_same(rows_of(tmp_path / "out"), expected)
    assert not caplog.messages
    assert (scored["n_users"], scored["n_unknown_pairs"]) == (len(expected), 0)
    assert scored["n_recommendations"] == sum(len(items) for items, _ in expected.values())


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """Events with times, and a model whose histories fade."""
    import pandas as pd

    folder, log = tmp_path_factory.mktemp("dated"), changing_tastes().log
    start = pd.Timestamp("2024-03-01", tz="UTC")
    time = (start + pd.to_timedelta(log.time, "D")).astype("datetime64[us, UTC]")
    frame = pd.DataFrame({"user": log.user, "item": log.item, "time": time, "plays": 1})
    frame.to_parquet(folder / "log.parquet", index=False)
    readout = Readout(history_half_life=5 * 86_400.0, trend_gain=0.0, popularity_gain=0.0)
    settings = {"n_hidden": 8, "max_epochs": 2, "validation_share": 0.0, "random_state": 0}
    ImplicitCFNADE(readout=readout, **settings).fit(folder / "log.parquet").save(folder / "model")
    later = frame[frame["user"] % 2 == 0].groupby("user", as_index=False)["time"].max()
    later["time"] += pd.Timedelta(days=9)
    unknown = later.assign(item=99, plays=2)  # makes all that is known older
    never = later.assign(item=0, plays=0, time=later["time"] + pd.Timedelta(days=90))
    pd.concat([frame, unknown, never]).to_parquet(folder / "later.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A log of kinds of events, with times, and a model that predicts `buy`."""
    import pandas as pd

    folder, log = tmp_path_factory.mktemp("shop"), window_shopping(with_times=True).log
    kind = np.array(log.kinds)[log.kind]
    frame = pd.DataFrame({"user": log.user, "item": log.item, "day": log.time, "event": kind})
    frame.to_parquet(folder / "log.parquet", index=False)
    data = read_interactions(folder / "log.parquet", target_event="buy")
    readout = Readout(history_half_life=20.0)
    settings = {"n_hidden": 8, "max_epochs": 2, "random_state": 0}
    ImplicitCFNADE(readout=readout, **settings).fit(data).save(folder / "model")
    return folder


def test_recent_events_weigh_more_as_on_one_machine(spark, dated, tmp_path):
    later, model = dated / "later.parquet", dated / "model"
    frame = spark.read.parquet(str(later)).repartition(3)
    scored = score(frame, model, tmp_path / "out", partitions=2)
    expected = alone(model, later, tmp_path / "alone.parquet")
    assert_same(rows_of(tmp_path / "out"), expected)
    assert scored["n_unknown_pairs"] == 60
    undated = read_interactions(later, time_col="none")
    unlike = alone(model, undated, tmp_path / "undated.parquet")
    assert np.mean([unlike[user][0] != expected[user][0] for user in expected]) > 0.5


def test_what_was_viewed_but_not_bought_is_a_candidate(spark, shop, tmp_path):
    log, model = shop / "log.parquet", shop / "model"
    score(spark.read.parquet(str(log)), model, tmp_path / "out", {"n": 40}, partitions=2)
    found = rows_of(tmp_path / "out")
    assert_same(found, alone(model, log, tmp_path / "alone.parquet", n=40))
    table = read_interactions(log, target_event="buy")
    for user in range(table.n_users):
        bought = set(table.target_counts[[user]].indices.tolist())
        assert set(found[user][0]) == set(range(40)) - bought


def test_events_of_negative_weight_are_dislikes_as_on_one_machine(spark, shop, tmp_path):
    log, model = shop / "log.parquet", tmp_path / "model"
    weights = {"buy": 4.0, "cart": 2.0, "view": 1.0, "skip": -9.0}
    readout = Readout(history_half_life=20.0)
    data = read_interactions(log, event_weights=weights)
    fitted = ImplicitCFNADE(readout=readout, n_hidden=8, max_epochs=2).fit(data)
    assert (fitted.histories(data).data < 0).any()
    fitted.save(model)
    score(spark.read.parquet(str(log)), model, tmp_path / "out", {"n": 40}, partitions=2)
    expected = alone(model, read_interactions(log), tmp_path / "alone.parquet", n=40)
    assert_same(rows_of(tmp_path / "out"), expected)


def test_of_a_log_without_the_event_to_predict_all_items_are_left_out(spark, shop, tmp_path):
    import pandas as pd

    log, model = pd.read_parquet(shop / "log.parquet"), shop / "model"
    path = tmp_path / "views.parquet"
    log[log["event"] == "view"].to_parquet(path, index=False)
    score(spark.read.parquet(str(path)), model, tmp_path / "out", partitions=2)
    assert_same(rows_of(tmp_path / "out"), alone(model, path, tmp_path / "alone.parquet"))


def test_a_kind_of_event_that_the_model_does_not_know_is_refused(spark, shop, tmp_path):
    rows = spark.read.parquet(str(shop / "log.parquet")).replace("cart", "wish", "event")
    with pytest.raises(DataError, match="the model knows no event 'wish'; its events are 'buy'"):
        score(rows, shop / "model", tmp_path / "out")
    with pytest.raises(DataError, match=r"data are dates or seconds .* fitted on numbers"):
        dates = rows.where("event != 'wish'").selectExpr("user", "item", "event", "now() AS time")
        score(dates, shop / "model", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_without_times_and_kinds_is_scored_with_a_warning(spark, shop, tmp_path, caplog):
    path = tmp_path / "bare.parquet"
    bare = spark.read.parquet(str(shop / "log.parquet")).select("user", "item")
    bare.toPandas().to_parquet(path, index=False)
    score(bare, shop / "model", tmp_path / "out", partitions=2)
    assert caplog.messages == [
        "the data have no kinds of events: all events count alike",
        "the data have no times: all events of a history weigh the same",
    ]
    assert_same(rows_of(tmp_path / "out"), alone(shop / "model", path, tmp_path / "alone.parquet"))


def test_filters_mean_the_same(spark, model, plays, tmp_path):
    filters = {
        "filter_already_liked_items": False,
        "filter_items": ["show 99"],
        "items": [f"show {k}" for k in range(99, 0, -1) if k < 15 or k == 99],
    }
    known = set(ImplicitCFNADE.load(model).catalogue_.ids.tolist())
    filters["items"] = [item for item in filters["items"] if item in known]
    frame = spark.read.parquet(str(plays))
    score(frame, model, tmp_path / "out", {"n": 3, **filters}, partitions=2)
    expected = alone(model, plays, tmp_path / "alone.parquet", n=3, **filters)
    assert_same(rows_of(tmp_path / "out"), expected)


def test_a_model_with_features_recommends_cold_items_by_category(spark, plays, tmp_path):
    import pandas as pd

    kinds = {f"show {k}": "film" if k % 3 == 0 else "series" for k in range(100)}
    items = pd.DataFrame({"item": list(kinds), "category": list(kinds.values())})
    settings = {"n_hidden": 16, "max_epochs": 3, "random_state": 0}
    ImplicitCFNADE(**settings).fit(read_interactions(plays), items=items).save(tmp_path / "model")
    asked = {"n": 60, "items": {"category": "film"}}
    score(spark.read.parquet(str(plays)), tmp_path / "model", tmp_path / "out", asked, partitions=2)
    expected = alone(tmp_path / "model", plays, tmp_path / "alone.parquet", **asked)
    assert_same(rows_of(tmp_path / "out"), expected)
    found = {item for listed, _ in expected.values() for item in listed}
    assert "show 96" in found and {kinds[item] for item in found} == {"film"}


def test_dials_mean_the_same(spark, model, plays, tmp_path):
    dials = Dials(popularity=-0.5, diversity=0.4, pin={"show 99": 2}, boost={"show 7": 1.0})
    score(spark.read.parquet(str(plays)), model, tmp_path / "out", {"dials": dials}, partitions=2)
    expected = alone(model, plays, tmp_path / "alone.parquet", dials=dials)
    assert_same(rows_of(tmp_path / "out"), expected)


def test_a_prepared_folder_is_scored_by_whole_histories(spark, model, plays, prepared, tmp_path):
    score_prepared(spark, prepared, model, tmp_path / "out")
    assert_same(rows_of(tmp_path / "out"), alone(model, plays, tmp_path / "alone.parquet"))
    n_files = len(list((tmp_path / "out").glob("part-*.parquet")))
    assert n_files == len(Prepared.open(prepared).shards) == 4  # each shard was a task


def test_a_prepared_folder_must_have_the_event_weights_of_the_model(
    spark, shop, folder, tmp_path, caplog
):
    ready = shutil.copytree(folder, tmp_path / "ready")
    summary = json.loads((ready / "prepared.json").read_text())
    summary["settings"] = {"event_weights": {"view": 1.0, "buy": 2.0}}
    (ready / "prepared.json").write_text(json.dumps(summary))
    with pytest.raises(DataError, match=r"prepared with the event weights .* the model has .*cart"):
        score_prepared(spark, ready, shop / "model", tmp_path / "out")
    assert caplog.messages == ["the data have no times: all events of a history weigh the same"]
    caplog.clear()
    score_prepared(spark, folder, shop / "model", tmp_path / "out")
    assert caplog.messages[1] == "the data have no kinds of events: all events count alike"


def test_ids_that_are_numbers_stay_numbers_of_any_width(spark, plays, tmp_path):
    import pandas as pd

    frame = pd.read_parquet(plays)
    frame["user"] = frame["user"].str.removeprefix("u").astype("int64") + 2**40
    frame["item"] = frame["item"].str.removeprefix("show ").astype("int32")
    numbers, model = tmp_path / "numbers.parquet", tmp_path / "model"
    frame.to_parquet(numbers, index=False)
    settings = {"n_hidden": 4, "max_epochs": 1, "validation_share": 0.0}
    ImplicitCFNADE(**settings).fit(read_interactions(numbers)).save(model)
    score(spark.read.parquet(str(numbers)), model, tmp_path / "out", partitions=2)
    found = rows_of(tmp_path / "out")
    assert min(found) >= 2**40
    assert_same(found, alone(model, numbers, tmp_path / "alone.parquet"))


def test_items_that_the_model_lacks_are_left_out_and_counted(spark, model, plays, tmp_path):
    table = spark.read.parquet(str(plays))
    strange = spark.createDataFrame([("u0001", "radio", 3), ("new", "radio", 1)], table.schema)
    scored = score(table.union(strange), model, tmp_path / "out", partitions=2)
    assert scored["n_unknown_pairs"] == 2
    found = rows_of(tmp_path / "out")
    assert len(found.pop("new")[0]) == 10  # nothing is known of them: what an empty history gets
    assert_same(found, alone(model, plays, tmp_path / "alone.parquet"))
    with pytest.raises(DataError, match="knows none of the items"):
        score(strange, model, tmp_path / "none", partitions=1)


def test_a_default_file_system_elsewhere_changes_nothing(spark, model, prepared, tmp_path):
    spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    try:
        scored = score_prepared(spark, prepared, model, tmp_path / "out")
    finally:
        spark.conf.unset("fs.defaultFS")
    assert scored["n_users"] == len(rows_of(tmp_path / "out")) == 400


def test_an_executor_that_comes_after_scoring_finds_what_it_asks_for(
    spark, model, prepared, tmp_path
):
    score_prepared(spark, prepared, model, tmp_path / "out")
    context = spark.sparkContext._jsc.sc()

    def executors():
        ids = context.getExecutorIds()
        return {ids.apply(k) for k in range(ids.size())}

    before, until = executors(), time.monotonic() + 120
    for number in before:  # all that were there when the model was shipped
        assert context.killAndReplaceExecutor(number)
    while not executors() or executors() & before:
        assert time.monotonic() < until
        time.sleep(0.1)
    found = spark.range(0, 40, 1, 4).mapInArrow(lambda batches: batches, "id bigint").count()
    assert found == 40
    score_prepared(spark, prepared, model, tmp_path / "again")
    assert_same(rows_of(tmp_path / "again"), rows_of(tmp_path / "out"))


def test_only_recommendations_are_replaced_and_a_failed_job_can_be_tried_again(
    spark, model, prepared, tmp_path
):
    out = tmp_path / "out"
    (out / "_temporary").mkdir(parents=True)  # what a job that was killed leaves
    score_prepared(spark, prepared, model, out)
    before = rows_of(out)
    with pytest.raises(Exception, match="nothing of the kind"):
        # The model lacks this item, which only the tasks find out.
        asked = {"n": 3, "filter_items": ["nothing of the kind"]}
        score_prepared(spark, prepared, model, out, asked)
    assert_same(rows_of(out), before)
    score_prepared(spark, prepared, model, out, {"n": 3})
    assert {len(items) for items, _ in rows_of(out).values()} == {3}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    other = tmp_path / "other"
    spark.range(3).write.parquet(str(other))
    with pytest.raises(DataError, match="holds more than recommendations"):
        score_prepared(spark, prepared, model, other)
    (out / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="holds more than recommendations"):
        score_prepared(spark, prepared, model, out)
    assert spark.read.parquet(str(other)).count() == 3


def test_the_executors_need_no_torch(spark, model, plays, tmp_path):
    def modules(batches):
        import sys

        import pyarrow as pa

        from cfnade.scale.spark_scoring import _recommend_batches  # noqa: F401  what a task imports

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": ["torch" in sys.modules]})

    found = spark.range(0, 4, 1, 4).mapInArrow(modules, "found boolean").collect()
    assert {row["found"] for row in found} == {False}


@pytest.fixture
def own_cluster(needs_spark, tmp_path, spark):
    """A cluster that a test may break."""
    started = Cluster(tmp_path)
    try:
        yield started.start(2)
    finally:
        started.stop()


def test_a_worker_killed_while_scoring_changes_nothing(own_cluster, model, plays, tmp_path):
    gate, out = tmp_path / "gate", tmp_path / "out"
    gated = {
        "spark.python.daemon.module": "tests.scale.gated_daemon",
        "spark.executorEnv.CFNADE_TEST_GATE": str(gate),
    }
    settings = {**own_cluster.settings(), **gated}
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    job = start(
        [sys.executable, "-m", "cfnade", "scale", "score", model, "--data", plays, "--out", out,
         "--master", own_cluster.url, "--partitions", "60", *conf, "--json", "-"]
    )  # fmt: skip

    def n_written():  # by `os.walk`, which bears folders that vanish
        return sum(
            name.startswith("part-") and name.endswith(".parquet")
            for place in tmp_path.glob(f".{out.name}.*")
            for _, _, names in os.walk(place)
            for name in names
        )

    until = time.monotonic() + 200
    while n_written() < 4:  # tasks that are done; most of the others wait for the gate
        if time.monotonic() > until:
            job.kill()
        assert job.poll() is None, job.communicate()
        time.sleep(0.02)
    killed = own_cluster.kill_worker(1)
    assert len(killed) > 1  # an executor was running on it
    assert n_written() <= N_FREE
    gate.touch()
    output, errors = job.communicate(timeout=500)
    assert job.returncode == 0, errors
    expected = alone(model, plays, tmp_path / "alone.parquet")
    assert_same(rows_of(out), expected)
    assert json.loads(output)["n_users"] == len(expected)
