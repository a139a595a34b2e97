"""The Spark cluster: sessions, sources and folders on it, and its errors in one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.errors import ClusterError, ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # `Path` reduces two slashes to one
_MOST = 300  # characters of an error


def spark_session(
    master: str | None = None, settings: dict[str, str] | None = None
) -> SparkSession:
    """The current Spark session, or a new one.

    Args:
        master: Such as `spark://host:7077` or `local[4]`. None uses the master of `spark-submit`
            or of Spark's configuration, or else this machine.
        settings: Further Spark settings by name.

    Raises:
        MissingExtraError: If pyspark is not installed.
        ConfigError: If there is no Java, or the cluster cannot be reached.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("pyspark", "spark", "running on Spark") from error
    builder = SparkSession.builder.appName("cfnade").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"Spark does not start ({reason_of(error)}); it needs Java 17 or later "
            "(JAVA_HOME or `java` on the path), and a master that can be reached"
        ) from error
    use_this_python(session.sparkContext)
    return session


def use_this_python(context: SparkContext) -> None:
    """Run the Python of workers on this machine as this one, not as the first on the path."""
    is_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not is_chosen:
        context.pythonExec = sys.executable


def read_frame(session: SparkSession, source: str, file_format: str | None = None) -> DataFrame:
    """Open files, a folder or glob of them that the executors see, or a table of the catalogue.

    Args:
        session: Spark session to use.
        source: A path, or the name of a table with `file_format="table"`.
        file_format: Any format that this Spark reads; None goes by the file names.

    Raises:
        DataError: If it cannot be opened.
    """
    from pyspark.errors import PySparkException

    try:
        if file_format == "table":
            return session.table(source)
        file_format = file_format or format_of(source)
        reader = session.read.format(file_format)
        if file_format == "csv":
            separator = "\t" if any(".tsv" in name for name in _names(source)) else ","
            reader = reader.options(header="true", sep=separator, escape='"')
        return reader.load(source)
    except PySparkException as error:
        reason = reason_of(error)
        raise DataError(f"Spark cannot read {source} as {file_format}: {reason}") from error


def format_of(source: str) -> str:
    """The format of files by their names: csv, json, orc or else parquet."""
    for name in _names(source):
        if ".csv" in name or ".tsv" in name:
            return "csv"
        if name.endswith((".json", ".jsonl")):
            return "json"
        if name.endswith(".orc"):
            return "orc"
    return "parquet"


def _names(source: str) -> list[str]:
    """The names of a folder's data files, or of the file itself."""
    place = Path(source)
    if not place.is_dir():
        return [place.name]
    return [path.name for path in sorted(place.iterdir()) if not path.name.startswith((".", "_"))]


def own_folder(folder: str | Path) -> Path:
    """Make a folder's path absolute; raises `ConfigError` for an address such as `s3a://`."""
    if _SCHEME.match(str(folder)):
        raise ConfigError(
            f"{folder} is not a path: mount that store on all machines, and give the path there "
            "(only data may come from an address)"
        )
    return Path(folder).resolve()


def for_spark(folder: Path) -> str:
    """The folder's address for Spark, whose default file system may be another."""
    return f"file://{folder}"  # not `as_uri`: Spark takes its %20 for a part of the name


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn Spark's errors into ours: `DataError` for a refused query, `ClusterError` for a job."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:
        raise DataError(f"Spark cannot do that: {reason_of(error)}") from error
    except (PySparkException, Py4JError, ConnectionError) as error:  # the last: Java is gone
        reason = reason_of(error)
        raise ClusterError(f"the Spark job failed: {reason}; see the executors' logs") from error


def reason_of(error: BaseException) -> str:
    """The deepest cause of an error, in one line."""
    reason = _one_line(str(error))
    java: Any = getattr(error, "java_exception", None)  # of Py4J
    if java is None:
        java = getattr(error, "_origin", None)  # of PySpark
    with suppress(Exception):  # Java does not answer if it is gone
        for _ in range(50):  # causes may form a ring
            if java is None:
                break
            reason = _one_line(str(java.toString())) or reason
            java = java.getCause()
    return f"{reason or type(error).__name__:.{_MOST}}"


def _one_line(text: str) -> str:
    """The error at the end of a Python traceback, or else the first line."""
    message = re.split(r"^(?:\tat |JVM stacktrace:|Driver stacktrace:)", text, flags=re.M)[0]
    lines = [line for line in message.splitlines() if line.strip()]
    for start, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            raised = [line for line in lines[start + 1 :] if not line.startswith(" ")]
            return raised[0] if raised else lines[-1].strip()
    return lines[0].strip() if lines else ""
