"""Spark sessions and sources: where the cluster is, and how a table is opened on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cfnade.errors import ConfigError, DataError, MissingExtraError

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
    except (PySparkException, OSError, RuntimeError) as error:
        raise ConfigError(
            f"Spark does not start ({str(error).splitlines()[0]:.200}); it needs Java 17 or later "
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
            separator = "\t" if ".tsv" in Path(source).name else ","
            reader = reader.options(header="true", sep=separator, escape='"')
        return reader.load(source)
    except PySparkException as error:
        raise DataError(
            f"Spark cannot read {source} as {file_format}: {str(error).splitlines()[0]:.200}"
        ) from error


def format_of(source: str) -> str:
    """The format of files by their names: CSV where they say so, else Parquet."""
    names = [Path(source).name]
    if Path(source).is_dir():
        names = [path.name for path in sorted(Path(source).iterdir())]
    for name in names:
        if ".csv" in name or ".tsv" in name:
            return "csv"
        if name.endswith((".json", ".jsonl")):
            return "json"
        if name.endswith(".orc"):
            return "orc"
    return "parquet"
