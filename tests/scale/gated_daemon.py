"""Spark's Python daemon, whose scoring tasks wait for a file, but for the first few.

For `spark.python.daemon.module`: a test can so stop a job between its tasks.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.daemon import manager

from cfnade.scale import spark_scoring

N_FREE = 8
recommend_batches = spark_scoring._recommend_batches


def gated(batches, **settings):
    if TaskContext.get().partitionId() >= N_FREE:
        while not Path(os.environ["CFNADE_TEST_GATE"]).exists():
            time.sleep(0.05)
    yield from recommend_batches(batches, **settings)


if __name__ == "__main__":
    spark_scoring._recommend_batches = gated  # tasks find it by its name
    manager()
