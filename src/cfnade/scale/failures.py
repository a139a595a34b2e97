"""What went wrong on a cluster, in one line: the cause that lies deepest, not what followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cfnade.errors import ClusterError, DataError

_MOST = 300  # characters


@contextmanager
def failures_told() -> Iterator[None]:
    """Turn what Spark raises into errors of ours.

    Raises:
        DataError: If Spark could not make sense of what was asked: a column, a type, a path.
        ClusterError: If the job failed while it ran.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:
        raise DataError(f"Spark cannot do that: {reason_of(error)}") from error
    except (PySparkException, Py4JError, ConnectionError) as error:  # the last: Java is gone
        raise ClusterError(
            f"Spark could not do it: {reason_of(error)}; the executors' logs tell more"
        ) from error


def reason_of(error: BaseException) -> str:
    """One line that tells why: of Java's causes the last, of a task's traceback its last line."""
    reason = ""
    with suppress(Exception):  # to ask Java what it was, fails if Java itself is gone
        for text in _texts(error):
            reason = _one_line(text) or reason
    return f"{reason or type(error).__name__:.{_MOST}}"


def _texts(error: BaseException) -> Iterator[str]:
    """What an error and its causes say, the deepest last."""
    java: Any = getattr(error, "java_exception", None)  # of Py4J
    if java is None:
        java = getattr(error, "_origin", None)  # of PySpark, which has made it its own
    yield str(error)
    n_links = 0
    while java is not None and n_links < 50:  # Java's causes may form a ring
        yield str(java.toString())
        java, n_links = java.getCause(), n_links + 1


def _one_line(text: str) -> str:
    """What matters of a message: the error that a Python traceback ends in, else the first line."""
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
