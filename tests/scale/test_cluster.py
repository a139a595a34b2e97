"""Sources, folders and errors on a real cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cfnade.cli import main as cli
from cfnade.errors import ClusterError, ConfigError, DataError
from cfnade.scale.cluster import (
    for_spark,
    format_of,
    own_folder,
    read_frame,
    reason_of,
    spark_errors,
    use_this_python,
)
from cfnade.scale.prepared import Prepared

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]


def test_a_source_that_is_not_there_is_reported(spark, tmp_path):
    with pytest.raises(DataError, match=r"Spark cannot read .*no\.csv as csv"):
        read_frame(spark, str(tmp_path / "no.csv"))
    with pytest.raises(DataError, match="Spark cannot read nothing as table"):
        read_frame(spark, "nothing", "table")
    assert [format_of(name) for name in ("a.csv.gz", "b", "c.orc", "d.jsonl")] == [
        "csv",
        "parquet",
        "orc",
        "json",
    ]


def test_a_folder_of_tabbed_files_is_read_as_such(spark, tmp_path):
    folder = tmp_path / "plays"
    folder.mkdir()
    for name in ("a.tsv", "b.tsv"):
        (folder / name).write_text("user\titem\n1,5\tx\n")
    (folder / "_SUCCESS").touch()
    frame = read_frame(spark, str(folder))
    assert format_of(str(folder)) == "csv"
    assert [tuple(row) for row in frame.collect()] == [("1,5", "x")] * 2


@pytest.mark.parametrize("address", ["hdfs://host/data", "s3a://bucket/x", "file:///data"])
def test_an_address_is_no_folder_of_ours(address, tmp_path, capsys):
    for given in (address, Path(address)):  # of which Path makes hdfs:/host/data
        with pytest.raises(ConfigError, match="is not a path: mount that store"):
            own_folder(given)
    with pytest.raises(ConfigError, match="is not a path"):
        Prepared.open(address)
    for command in (
        ["scale", "prepare", "x.csv", "--out", address],
        ["scale", "train", str(tmp_path), "--out", address],
        ["scale", "train", address, "--out", str(tmp_path / "m")],
        ["scale", "score", str(tmp_path), "--data", "x.csv", "--out", address],
    ):
        assert cli.run(command) == 2
        told = capsys.readouterr().err
        assert "is not a path" in told and told.count("\n") == 1


def test_a_path_becomes_an_address_that_spark_does_not_decode(tmp_path):
    assert own_folder(tmp_path / "a b" / ".." / "c d") == tmp_path / "c d"
    assert for_spark(tmp_path / "c d") == f"file://{tmp_path}/c d"


class JavaCause:
    """As Py4J shows a Java exception."""

    def __init__(self, text, cause=None):
        self.text, self.cause = text, cause

    def toString(self):
        return self.text

    def getCause(self):
        return self.cause


@pytest.mark.parametrize(
    ("master", "configured", "chosen", "used"),
    [
        ("local[*]", [], None, sys.executable),
        ("local[*]", [], "python4", "python3"),
        ("local[*]", ["spark.pyspark.python"], None, "python3"),
        ("spark://host:7077", [], None, "python3"),
    ],
)
def test_workers_on_this_machine_run_this_python(monkeypatch, master, configured, chosen, used):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    context = SimpleNamespace(
        master=master,
        pythonExec="python3",
        getConf=lambda: SimpleNamespace(contains=configured.__contains__),
    )
    use_this_python(context)
    assert context.pythonExec == used


def test_the_deepest_cause_is_reported():
    error = RuntimeError("An error occurred while calling o97.parquet.")
    error.java_exception = JavaCause(
        "SparkException: Job aborted.",
        JavaCause("java.io.IOException: No space left on device\n\tat org.apache.X"),
    )
    assert reason_of(error) == "java.io.IOException: No space left on device"
    error.java_exception.cause.cause = error.java_exception  # a ring ends
    assert reason_of(error)
    assert reason_of(RuntimeError()) == "RuntimeError"


def test_of_a_tasks_traceback_the_error_is_reported():
    text = (
        "Job aborted due to stage failure: Task 0 failed: PythonException: Traceback (most recent "
        'call last):\n  File "worker.py", line 1, in main\n    import cfnade\n'
        "ModuleNotFoundError: No module named 'cfnade'\n\n\tat org.apache.spark.Y\n"
        "Driver stacktrace:\n\tat org.apache.spark.Z"
    )
    assert reason_of(RuntimeError(text)) == "ModuleNotFoundError: No module named 'cfnade'"


def test_a_job_that_fails_on_the_executors_is_no_bad_input(spark):
    def fail(batches):
        raise OSError(28, "the disk is full")

    job = spark.range(4).mapInArrow(fail, "id bigint")
    with pytest.raises(ClusterError, match=r"OSError: .*the disk is full"), spark_errors():
        job.collect()
    with pytest.raises(DataError, match=r"Spark cannot do that: .*nowhere"), spark_errors():
        spark.range(4).selectExpr("nowhere").collect()
