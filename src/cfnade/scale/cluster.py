"""The Spark cluster: sessions, sources and folders on it, and its errors in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.errors import ClusterError, ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
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
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"Spark does not start ({reason_of(error)}); it needs Java 17 or later "
            "(JAVA_HOME or `java` on the path), and a master that can be reached"
        ) from error


def read_frame(session: SparkSession, source: str, file_format: str | None = None) -> DataFrame:
    """Open files, a folder or glob of them, or a table of Spark's catalogue.

    Args:
        session: Where to.
        source: A path that the executors see, or the name of a table with `file_format="table"`.
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
        raise DataError(
            f"Spark cannot read {source} as {file_format}: {reason_of(error)}"
        ) from error


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
    """An absolute path of a folder that we write, and read without Spark.

    Raises:
        ConfigError: If it is an address such as `hdfs://` or `s3a://`.
    """
    if _SCHEME.match(str(folder)):
        raise ConfigError(
            f"{folder} is not a path: mount that store on all machines, and give the path there "
            "(only data may come from an address)"
        )
    return Path(folder).resolve()


def for_spark(folder: Path) -> str:
    """The folder's address for Spark, whose default file system may be another.

    Not `as_uri`: Spark takes its %20 for a part of the name.
    """
    return f"file://{folder}"


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn Spark's errors into ours.

    Raises:
        DataError: If Spark refuses the query: a column, a type, a path.
        ClusterError: If the job fails while it runs.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:
        raise DataError(f"Spark cannot do that: {reason_of(error)}") from error
    except (PySparkException, Py4JError, ConnectionError) as error:  # the last: Java is gone
        raise ClusterError(
            f"the Spark job failed: {reason_of(error)}; see the executors' logs"
        ) from error


def reason_of(error: BaseException) -> str:
    """The deepest cause of an error, in one line."""
    reason = ""
    with suppress(Exception):  # Java cannot be asked if it is gone
        for text in _causes(error):
            reason = _one_line(text) or reason
    return f"{reason or type(error).__name__:.{_MOST}}"


def _causes(error: BaseException) -> Iterator[str]:
    """The messages of an error and its Java causes, the deepest last."""
    java: Any = getattr(error, "java_exception", None)  # of Py4J
    if java is None:
        java = getattr(error, "_origin", None)  # of PySpark
    yield str(error)
    n_links = 0
    while java is not None and n_links < 50:  # causes may form a ring
        yield str(java.toString())
        java, n_links = java.getCause(), n_links + 1


def _one_line(text: str) -> str:
    """The error at the end of a Python traceback, or else the first line."""
    lines = []
    for line in text.splitlines():
        if line.startswith(("\tat ", "JVM stacktrace:", "Driver stacktrace:")):
            break
        if line.strip():
            lines.append(line)
    for start, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            raised = [line for line in lines[start + 1 :] if not line.startswith(" ")]
            return raised[0] if raised else lines[-1].strip()
    return lines[0].strip() if lines else ""
