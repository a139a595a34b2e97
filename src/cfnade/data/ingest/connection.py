"""One DuckDB connection per job: limited memory, no files left behind, errors in one line."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from cfnade.errors import ConfigError, DataError
from cfnade.threads import available_threads

if TYPE_CHECKING:
    import duckdb  # imported late elsewhere: recommending works without it

T = TypeVar("T")

POLL_SECONDS = 0.05


class Connection:
    """A DuckDB connection whose queries stop at Ctrl-C.

    DuckDB checks for signals only between tasks, which may take minutes. So each query runs in
    a worker thread while the main thread waits, ready to interrupt it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._worker = ThreadPoolExecutor(max_workers=1)

    def execute(self, statement: str) -> Connection:
        """Run a statement; fetch its result afterwards."""
        self._wait(lambda: self._connection.execute(statement))
        return self

    def fetchall(self) -> list[Any]:
        """The result as tuples of Python values, for few rows."""
        return self._wait(self._connection.fetchall)

    def fetchnumpy(self) -> dict[str, NDArray[Any]]:
        """The result as one array per column, for many rows."""
        return self._wait(self._connection.fetchnumpy)

    def types(self, query: str) -> dict[str, str]:
        """DuckDB's type of each column of a query, without running it."""
        described = self.execute(f"DESCRIBE {query}").fetchall()
        return {name: str(kind) for name, kind, *_ in described}

    def register(self, name: str, frame: object) -> None:
        """Make a frame readable as a table of this name."""
        self._connection.register(name, frame)

    def close(self) -> None:
        """Stop the worker and close the connection."""
        import duckdb

        self._worker.shutdown()
        while True:
            try:
                return self._connection.close()
            except duckdb.Error as error:
                # Ctrl-C while the worker starts: the executor does not know its thread, which runs.
                if "In Use" not in str(error):
                    raise
                self._connection.interrupt()
                time.sleep(POLL_SECONDS)

    def _wait(self, query: Callable[[], T]) -> T:
        future = self._worker.submit(query)
        try:
            # Poll: some libraries, such as polars, keep a signal from ending a wait.
            while not future.done():
                wait([future], timeout=POLL_SECONDS)
        except BaseException:
            # Repeat: DuckDB ignores an interrupt that arrives before the query has started.
            while not future.done():
                self._connection.interrupt()
                wait([future], timeout=POLL_SECONDS)
            raise
        return future.result()


@contextmanager
def connect(
    memory_limit: str | None = None, temp_directory: str | Path | None = None
) -> Iterator[Connection]:
    """Open an empty database that spills to its own folder in `temp_directory`.

    Inside the block, DuckDB's errors become errors of this package.
    """
    try:
        spill = tempfile.TemporaryDirectory(prefix="cfnade-", dir=temp_directory)
    except OSError as error:
        raise ConfigError(
            f"cannot create a temporary folder in {str(temp_directory)!r}: {error.strerror}; "
            "choose an existing folder with write access"
        ) from error
    import duckdb

    with spill as folder:
        connection = Connection(_open(folder, memory_limit))
        try:
            yield connection
        except duckdb.OutOfMemoryException as error:
            raise ConfigError(
                f"out of memory: {one_line(error)}; raise memory_limit or choose a "
                "temp_directory with more space"
            ) from error
        except duckdb.Error as error:
            reason = one_line(error)
            if "state machine" in reason:  # DuckDB does not name the usual cause
                reason += "; does the file mix CRLF and LF line ends?"
            raise DataError(
                f"the data cannot be read: {reason}; correct the file or leave it out"
            ) from error
        finally:
            connection.close()


def _open(folder: str, memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    import duckdb

    config: dict[str, Any] = {"threads": available_threads(), "temp_directory": folder}
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    try:
        connection = duckdb.connect(config=config)
    except duckdb.Error as error:
        raise ConfigError(
            f"memory_limit {memory_limit!r} is not valid in DuckDB; write for example '4GB'"
        ) from error
    # Read Python objects as text: a type guessed from a sample fails at a later row.
    connection.execute("SET pandas_analyze_sample = 0")
    # Keep the join order: rows stream past small tables of ids. DuckDB underestimates the
    # rows of a CSV and would hold all of them in memory.
    connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    return connection


def one_line(error: duckdb.Error) -> str:
    """The part of DuckDB's message that says what is wrong and where, without its advice."""
    message = re.sub(r"^[\w ]+ Error: ", "", str(error))
    file = re.search(r"^ *file = (.+)$", message, re.MULTILINE)
    message = re.split(r"\n(?:Possible |\n*LINE \d| *file = )", message)[0]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # For a broken CSV: the place, the line (which may be long) and, last, the reason.
    kept = dict.fromkeys([*lines[:2], *lines[-1:]])
    parts = [line if len(line) <= 160 else f"{line[:160]}..." for line in kept]
    return "; ".join(parts) + (f" in {file[1]}" if file else "")


def quote_name(name: str) -> str:
    """A column name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A text value in SQL."""
    return "'" + text.replace("'", "''") + "'"
