"""Spark sessions and sources: where the cluster is, and how a table is opened on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cfnade.errors import ConfigError, DataError, MissingExtraError
from cfnade.scale.failures import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("csv", "json", "orc", "parquet")
"""Of files; a catalogue's tables need none."""


def spark_session(
    master: str | None = None, settings: dict[str, str] | None = None
) -> SparkSession:
    """A Spark session: the one that is there, or a new one.

    Args:
        master: Such as `spark://host:7077`, or `local[4]`. None takes what `spark-submit` or
            Spark's own configuration says, and else this machine.
        settings: Further ones of Spark, by name.

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
    """Open a source on Spark: files, a folder or glob of them, or a table of its catalogue.

    Args:
        session: Where to.
        source: A path that the executors see, or the name of a table with `file_format="table"`.
        file_format: One of `FORMATS`, or any other that this Spark knows; None tells it by the
            name.

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
            is_tabbed = any(".tsv" in name for name in _names(source))
            separator = "\t" if is_tabbed else ","
            reader = reader.options(header="true", sep=separator, escape='"')
        return reader.load(source)
    except PySparkException as error:
        raise DataError(
            f"Spark cannot read {source} as {file_format}: {reason_of(error)}"
        ) from error


def format_of(source: str) -> str:
    """The format of files by their names: CSV where they say so, else Parquet."""
    for name in _names(source):
        if ".csv" in name or ".tsv" in name:
            return "csv"
        if name.endswith((".json", ".jsonl")):
            return "json"
        if name.endswith(".orc"):
            return "orc"
    return "parquet"


def _names(source: str) -> list[str]:
    """Of a folder, its files that hold data; else its own."""
    place = Path(source)
    if not place.is_dir():
        return [place.name]
    return [path.name for path in sorted(place.iterdir()) if not path.name.startswith((".", "_"))]
