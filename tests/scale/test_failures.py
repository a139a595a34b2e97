"""What is told if a job fails on a real cluster."""

from __future__ import annotations

import pytest

from cfnade.errors import ClusterError, DataError
from cfnade.scale.failures import failures_told, reason_of

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]


class JavaCause:
    """As Py4J shows a Java exception."""

    def __init__(self, text, cause=None):
        self.text, self.cause = text, cause

    def toString(self):
        return self.text

    def getCause(self):
        return self.cause


def test_the_deepest_cause_is_told():
    error = RuntimeError("An error occurred while calling o97.parquet.")
    error.java_exception = JavaCause(
        "SparkException: Job aborted.",
        JavaCause("java.io.IOException: No space left on device\n\tat org.apache.X"),
    )
    assert reason_of(error) == "java.io.IOException: No space left on device"
    error.java_exception.cause.cause = error.java_exception  # a ring ends
    assert reason_of(error)
    assert reason_of(RuntimeError()) == "RuntimeError"


def test_of_a_tasks_traceback_the_error_is_told():
    told = (
        "Job aborted due to stage failure: Task 0 failed: PythonException: Traceback (most recent "
        'call last):\n  File "worker.py", line 1, in main\n    import cfnade\n'
        "ModuleNotFoundError: No module named 'cfnade'\n\n\tat org.apache.spark.Y\n"
        "Driver stacktrace:\n\tat org.apache.spark.Z"
    )
    assert reason_of(RuntimeError(told)) == "ModuleNotFoundError: No module named 'cfnade'"


def test_a_job_that_fails_on_the_executors_is_no_bad_input(spark):
    def fail(batches):
        raise OSError(28, "the disk is full")

    job = spark.range(4).mapInArrow(fail, "id bigint")
    with pytest.raises(ClusterError, match=r"OSError: .*the disk is full"), failures_told():
        job.collect()
    with pytest.raises(DataError, match=r"Spark cannot do that: .*nowhere"), failures_told():
        spark.range(4).selectExpr("nowhere").collect()
