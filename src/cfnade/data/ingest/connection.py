"""One DuckDB connection per job: within its memory, tidy afterwards, its errors in one line."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb

from cfnade.errors import ConfigError, DataError
from cfnade.threads import available_threads


@contextmanager
def connect(
    memory_limit: str | None = None, temp_directory: str | Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an empty database that spills to a folder of its own, removed at the end.

    Args:
        memory_limit: As DuckDB writes it, such as "4GB"; None for most of the machine's memory.
        temp_directory: Where the folder is made; None for the system's place.

    Yields:
        The connection. Within the block, DuckDB's errors turn into those of this package and
        an interrupted query into `KeyboardInterrupt`.

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
    with spill as folder, closing(_open(folder, memory_limit)) as connection:
        try:
            yield connection
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.OutOfMemoryException as error:
            raise ConfigError(
                f"the memory does not suffice: {one_line(error)}; raise memory_limit or name a "
                "temp_directory with more space"
            ) from error
        except duckdb.Error as error:
            raise DataError(
                f"the data cannot be read: {one_line(error)}; correct the file or leave it out"
            ) from error
        except RuntimeError as error:
            if str(error) != "Query interrupted":  # how DuckDB's Python client says Ctrl-C
                raise
            raise KeyboardInterrupt from None


def _open(folder: str, memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": available_threads(),
        "temp_directory": folder,
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
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
