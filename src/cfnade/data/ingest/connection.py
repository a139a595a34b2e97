"""One DuckDB connection per job: within its memory, tidy afterwards, its errors in one line."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from cfnade.errors import ConfigError, DataError
from cfnade.threads import available_threads

if TYPE_CHECKING:
    import duckdb  # where it is needed it is imported late: recommending does without it

T = TypeVar("T")

POLL_SECONDS = 0.05


class Connection:
    """A DuckDB connection whose queries all stop at Ctrl-C.

    DuckDB looks for signals only between its tasks, which may take minutes each. So a query
    runs in a thread of its own while this one waits, ready to interrupt it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._worker = ThreadPoolExecutor(max_workers=1)

    def execute(self, statement: str) -> Connection:
        """Run a statement; its result is then there to be fetched."""
        self._wait(lambda: self._connection.execute(statement))
        return self

    def fetchall(self) -> list[Any]:
        """The result as tuples of Python values: for few rows."""
        return self._wait(self._connection.fetchall)

    def fetchnumpy(self) -> dict[str, NDArray[Any]]:
        """The result as one array per column: for many rows."""
        return self._wait(self._connection.fetchnumpy)

    def types(self, query: str) -> dict[str, str]:
        """DuckDB's type of each column of a query, without computing it."""
        described = self.execute(f"DESCRIBE {query}").fetchall()
        return {name: str(kind) for name, kind, *_ in described}

    def register(self, name: str, frame: object) -> None:
        """Make a frame readable as a table of this name."""
        self._connection.register(name, frame)

    def close(self) -> None:
        """Stop what is running and close the connection."""
        self._worker.shutdown()
        self._connection.close()

    def _wait(self, query: Callable[[], T]) -> T:
        future = self._worker.submit(query)
        try:
            # In turns, since a signal need not end a wait: polars for one sees to that.
            while not future.done():
                wait([future], timeout=POLL_SECONDS)
        except BaseException:
            # In turns as well: DuckDB forgets an interrupt that comes before a query has begun.
            while not future.done():
                self._connection.interrupt()
                wait([future], timeout=POLL_SECONDS)
            raise
        return future.result()


@contextmanager
def connect(
    memory_limit: str | None = None, temp_directory: str | Path | None = None
) -> Iterator[Connection]:
    """Open an empty database that spills to a folder of its own, removed at the end.

    Args:
        memory_limit: As DuckDB writes it, such as "4GB"; None for most of the machine's memory.
        temp_directory: Where the folder is made; None for the system's place.

    Yields:
        The connection. Within the block, DuckDB's errors turn into those of this package.

    Raises:
        ConfigError: If a setting has no meaning or the memory does not suffice.
        DataError: If DuckDB cannot read the data.
    """
    try:
        spill = tempfile.TemporaryDirectory(prefix="cfnade-", dir=temp_directory)
    except OSError as error:
        raise ConfigError(
            f"no temporary folder can be made in {str(temp_directory)!r}: {error.strerror}; "
            "name a folder that exists and can be written to"
        ) from error
    import duckdb

    with spill as folder:
        connection = Connection(_open(folder, memory_limit))
        try:
            yield connection
        except duckdb.OutOfMemoryException as error:
            raise ConfigError(
                f"the memory does not suffice: {one_line(error)}; raise memory_limit or name a "
                "temp_directory with more space"
            ) from error
        except duckdb.Error as error:
            told = one_line(error)
            if "state machine" in told:  # says nothing of what is nearly always the reason
                told += "; are lines ended in two ways, CRLF and LF?"
            raise DataError(
                f"the data cannot be read: {told}; correct the file or leave it out"
            ) from error
        finally:
            connection.close()


def _open(folder: str, memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": available_threads(),
        "temp_directory": folder,
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    import duckdb

    try:
        connection = duckdb.connect(config=config)
    except duckdb.Error as error:
        raise ConfigError(
            f"memory_limit {memory_limit!r} has no meaning to DuckDB; write for example '4GB'"
        ) from error
    # Python objects are read as text: a type guessed from a sample breaks at a later row.
    connection.execute("SET pandas_analyze_sample = 0")
    # Joins run as written, the rows streaming past small tables of ids: DuckDB guesses that a CSV
    # has few rows and would else hold the whole of it in memory.
    connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    return connection


def one_line(error: duckdb.Error) -> str:
    """The parts of DuckDB's message that say what is wrong and where, without its advice."""
    message = re.sub(r"^[\w ]+ Error: ", "", str(error))
    file = re.search(r"^ *file = (.+)$", message, re.MULTILINE)
    told = re.split(r"\n(?:Possible |\n*LINE \d| *file = )", message)[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    # A broken CSV: the place, the line itself (which may be long) and at the end the reason.
    kept = dict.fromkeys([*lines[:2], *lines[-1:]])
    parts = [line if len(line) <= 160 else f"{line[:160]}..." for line in kept]
    return "; ".join(parts) + (f" in {file[1]}" if file else "")


def quote_name(name: str) -> str:
    """A column name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A text value as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
