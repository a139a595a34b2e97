from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from tests.scale.cluster import Cluster, environment


@pytest.fixture(scope="session")
def needs_spark():
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later, and there is no `java` here")


@pytest.fixture(scope="session")
def cluster(needs_spark, tmp_path_factory):
    """A master and two workers, for all tests."""
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield started.start(2)
    finally:
        started.stop()


@pytest.fixture(scope="session")
def spark(cluster):
    """A session on that cluster."""
    from cfnade.scale.cluster import spark_session

    os.environ.update(
        {k: v for k, v in environment().items() if k.startswith(("PYSPARK", "SPARK"))}
    )
    session = spark_session(cluster.url, cluster.settings())
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def plays(tmp_path_factory):
    """An event log with counts: text ids, one item that most have, pairs in several rows."""
    import pandas as pd

    rng = np.random.default_rng(0)
    n_users, n_rows = 400, 6000
    taste = rng.integers(4, size=n_users)
    user = rng.integers(n_users, size=n_rows)
    item = taste[user] * 12 + np.minimum(rng.geometric(0.12, n_rows), 20)
    frame = pd.DataFrame({"user": user, "item": item, "plays": rng.integers(0, 5, n_rows)})
    most = pd.DataFrame({"user": np.arange(n_users), "item": 99, "plays": 1 + user[:n_users] % 3})
    frame = pd.concat([frame, most[rng.random(n_users) < 0.8]])
    frame["user"] = [f"u{k:04d}" for k in frame["user"]]
    frame["item"] = [f"show {k}" for k in frame["item"]]
    path = tmp_path_factory.mktemp("plays") / "plays.parquet"
    frame.to_parquet(path, index=False)
    return path


@pytest.fixture(scope="session")
def prepared(spark, plays, tmp_path_factory):
    """The log as prepared on the cluster."""
    from cfnade.scale.prepare import PrepareConfig, prepare

    out = tmp_path_factory.mktemp("prepared") / "data"
    config = PrepareConfig(shards=4, test_share=0.1, validation_users=100)
    prepare(spark.read.parquet(str(plays)), out, config)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small prepared folder, written without Spark."""
    from tests.scale.shards_on_disk import write_prepared

    return write_prepared(tmp_path_factory.mktemp("shards") / "prepared")
