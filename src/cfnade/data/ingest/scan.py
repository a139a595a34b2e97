"""The DuckDB scan of files and frames: one connection per job, and what it reads.

Every source of rows becomes a `Scan`. The sources here are CSV and Parquet files, folders and globs
of them; `cfnade.data.ingest.frames` has frames.
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfnade.checks import is_utf8
from cfnade.errors import ConfigError, DataError
from cfnade.folders import temporary_folder
from cfnade.threads import available_threads

if TYPE_CHECKING:
    import duckdb  # imported late elsewhere: recommending works without it

T = TypeVar("T")
PathLike: TypeAlias = str | os.PathLike[str]

POLL_SECONDS = 0.05  # between checks of a running query
ID_ROLES = ("user", "item")  # their values must be returned unchanged
INTEGER_TYPES = frozenset(
    f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
)  # of DuckDB, that numpy has too
FLOAT_TYPES = frozenset({"FLOAT", "DOUBLE"})

FORMATS = dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv")
FORMATS |= dict.fromkeys((".parquet", ".pq"), "parquet")
ACCEPTED = ", ".join(FORMATS)
OFFLINE: dict[str, Any] = {"autoinstall_known_extensions": False}
"""Settings of every DuckDB: nothing is fetched from the network."""

DELIMITERS = ",;\t|"
HEADER_LIMIT = 1 << 20  # characters; a file without line ends is not CSV
COLUMN_LIMIT = 10_000
LINE_LIMIT = 2_000_000  # of DuckDB, in bytes
_LOOKED_AT = 5 * LINE_LIMIT  # of smaller files DuckDB itself says that a line is too long


# The connection ---------------------------------------------------------------------------------


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
    import duckdb

    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder("cfnade-rows", temp_directory))
        except OSError as error:
            raise ConfigError(
                f"cannot create a temporary folder in {str(temp_directory)!r}: {error.strerror}; "
                "choose an existing folder with write access"
            ) from error
        connection = Connection(_open(str(folder), memory_limit))
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

    config: dict[str, Any] = {
        "threads": available_threads(),
        "temp_directory": folder,
        **OFFLINE,
    }
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


def fill_in(role: str) -> str:
    """For messages: what to do about rows without a value."""
    option = " with drop_missing_ids=True" if role in ID_ROLES else ""
    return f"fill it in or drop these rows{option}{or_ignore(role)}"


def or_ignore(role: str) -> str:
    """For messages: how to go on without a column that is not needed."""
    is_optional = role in ("time", "event")
    return f", or ignore the column with {role}_col 'none'" if is_optional else ""


def is_numeric(kind: str) -> bool:
    """Whether values of a type of DuckDB are numbers."""
    numbers = INTEGER_TYPES | FLOAT_TYPES | {"HUGEINT", "UHUGEINT"}
    return kind in numbers or kind.startswith("DECIMAL")


def quote_name(name: str) -> str:
    """A column name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A text value in SQL."""
    return "'" + text.replace("'", "''") + "'"


# What it reads ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """The wanted columns of all rows in SQL, each column named by its role."""

    query: str  # SQL of all rows
    parts: Mapping[str, str]  # the same by path or "the pandas frame", to locate a row
    from_text: bool = False  # whether all values were text, as in a CSV
    coded_ids: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """The sorted ids of each role whose values are positions among them."""

    def shown(self, role: str, value: Any) -> str:
        """A value for a message."""
        if value is None:
            return "none"
        if role in self.coded_ids:
            value = self.coded_ids[role][value]
        return repr(value.item() if isinstance(value, np.generic) else value)


@dataclass(frozen=True)
class RowSource:
    """Rows with named columns that DuckDB can scan, more than once."""

    columns: Sequence[str]
    scan: Callable[[Connection, Mapping[str, str]], Scan]
    """Makes the columns of these roles (column by role) readable on this connection."""


class _Layout(NamedTuple):
    """What files must have in common to be read by one call."""

    columns: tuple[tuple[str, str], ...]  # name and DuckDB type
    delimiter: str = ""
    compression: str = ""

    @property
    def types(self) -> dict[str, str]:
        return dict(self.columns)

    def relation(self, paths: Iterable[Path]) -> str:
        """SQL that reads these files as one table."""
        # DuckDB takes a path as a glob; a folder named `day=1` must not become a column.
        listed = ", ".join(quote_text(glob.escape(str(path))) for path in paths)
        if not self.delimiter:
            return f"read_parquet([{listed}], hive_partitioning=false)"
        # No detection, and every value stays text: DuckDB must not guess from a sample.
        columns = ", ".join(f"{quote_text(name)}: 'VARCHAR'" for name, _ in self.columns)
        return (
            f"read_csv([{listed}], auto_detect=false, header=true, quote='\"', escape='\"', "
            f"delim={quote_text(self.delimiter)}, compression='{self.compression}', "
            f"columns={{{columns}}}, hive_partitioning=false)"
        )


def find_files(connection: Connection, source: PathLike | Iterable[PathLike]) -> RowSource:
    """Find files and their columns, without reading rows.

    A source is a file, a folder (searched recursively, without names that start with a dot or
    an underscore), a glob, or several of these. All files are CSV or all are Parquet.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths = sorted({path for entry in sources for path in _expand(entry)})
    if not paths:
        raise DataError("the list of files is empty; name at least one CSV or Parquet file")
    by_format = {_format(path): path for path in reversed(paths)}
    if len(by_format) > 1:
        raise DataError(
            "expected files of one format, found both CSV and Parquet, such as "
            f"{str(by_format['csv'])!r} and {str(by_format['parquet'])!r}; "
            "name one kind, for example with a glob 'folder/*.parquet'"
        )
    look = _csv_layout if "csv" in by_format else _parquet_layout
    layouts = {path: look(connection, path) for path in paths}
    columns = list(dict.fromkeys(name for layout in layouts.values() for name in layout.types))
    return RowSource(columns, lambda _, roles: _scan_files(layouts, roles))


def _scan_files(layouts: Mapping[Path, _Layout], roles: Mapping[str, str]) -> Scan:
    """Make the columns of these roles readable; refuses files that differ in them."""
    for role, column in roles.items():
        _check_alike(layouts, role, column)
    selected = ", ".join(
        f"{quote_name(column)} AS {quote_name(role)}" for role, column in roles.items()
    )
    alike: dict[_Layout, list[Path]] = {}
    for path, layout in layouts.items():
        alike.setdefault(layout, []).append(path)
    select = f"SELECT {selected} FROM "
    query = " UNION ALL ".join(select + same.relation(paths) for same, paths in alike.items())
    parts = {str(path): select + layout.relation([path]) for path, layout in layouts.items()}
    return Scan(query, parts, from_text=any(layout.delimiter for layout in alike))


def _check_alike(layouts: Mapping[Path, _Layout], role: str, column: str) -> None:
    """Refuse ids or times that are numbers in one file and text in another: they would change."""
    first: tuple[Path, str] | None = None
    for path, layout in layouts.items():
        kind = layout.types.get(column)
        if kind is None:
            raise DataError(
                f"{str(path)!r} has no column {column!r}, unlike other files; its columns "
                f"are {', '.join(map(repr, list(layout.types)[:20]))}; correct it or leave it out"
                f"{or_ignore(role)}"
            )
        first = first or (path, kind)
        must_agree = role in (*ID_ROLES, "time")
        if must_agree and kind != first[1] and not {kind, first[1]} <= INTEGER_TYPES:
            what = f"{role} ids" if role in ID_ROLES else f"{role}s"
            raise DataError(
                f"column {column!r} is {first[1]} in {str(first[0])!r} but {kind} in "
                f"{str(path)!r}; write the {what} with one type in all files"
            )


def _expand(source: PathLike) -> list[Path]:
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            f"expected paths of CSV or Parquet files, got {type(source).__name__}; "
            "name files, a folder or a glob"
        )
    path = Path(source).expanduser()
    if path.is_dir():
        shown = (file for file in path.rglob("*") if not _is_hidden(file.relative_to(path)))
        found = [file for file in shown if _format(file) and file.is_file()]
        if not found:
            raise DataError(f"folder {str(path)!r} has no data files; expected {ACCEPTED}")
    elif path.exists():
        found = [path]
    elif glob.has_magic(str(path)):
        matches = glob.glob(str(path), recursive=True)  # noqa: PTH207 - takes absolute patterns
        found = [file for file in map(Path, matches) if file.is_file()]
        if not found:
            raise DataError(f"no file matches {str(path)!r}; check the folder and the pattern")
    else:
        raise DataError(f"there is no file or folder {str(path)!r}; check the path")
    for file in found:
        if not _format(file):
            raise DataError(f"{str(file)!r} has an unknown format; expected one of {ACCEPTED}")
        if not file.is_file():  # a pipe may never end
            raise DataError(f"{str(file)!r} is not a regular file; write the rows to one")
        if "\0" in str(file) or not is_utf8(str(file)):
            raise DataError(f"the name {str(file)!r} is not UTF-8, which DuckDB needs; rename it")
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _format(path: Path) -> str | None:
    name = path.name.lower()
    return next((kind for suffix, kind in FORMATS.items() if name.endswith(suffix)), None)


def _parquet_layout(connection: Connection, path: Path) -> _Layout:
    relation = _Layout(()).relation([path])
    return _Layout(tuple(connection.types(f"SELECT * FROM {relation}").items()))


def _csv_layout(_: Connection, path: Path) -> _Layout:
    """Read the header; the most frequent delimiter in it is taken."""
    compressed = path.suffix.lower() == ".gz"
    open_file = gzip.open if compressed else open
    try:
        with open_file(path, "rt", encoding="utf-8-sig", newline="") as stream:
            lines = _header_lines(stream)
            line = next(lines, "")
            delimiter = max(DELIMITERS, key=line.count)
            header = next(csv.reader(chain([line], lines), delimiter=delimiter), [])
            first = stream.readline(LINE_LIMIT + 1)
    except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{str(path)!r} cannot be read as CSV in UTF-8: {reason}; check the file"
        ) from error
    if len(line) == HEADER_LIMIT or len(header) > COLUMN_LIMIT:
        raise DataError(
            f"the header of {str(path)!r} has more than {HEADER_LIMIT:,} characters or "
            f"{COLUMN_LIMIT:,} columns; is it CSV? Keep the columns that are needed"
        )
    if not any(name.strip() for name in header):
        raise DataError(
            f"{str(path)!r} has no header; expected a first line with the names of the columns"
        )
    for which, length in (("first", len(first)), ("last", 0 if compressed else _last_line(path))):
        if length > LINE_LIMIT:
            raise DataError(
                f"the {which} line of data in {str(path)!r} has more than {LINE_LIMIT:,} "
                "characters; is it CSV? Correct the line or leave it out"
            )
    columns = tuple((name, "VARCHAR") for name in _unique(header))
    return _Layout(columns, delimiter, "gzip" if compressed else "none")


def _header_lines(stream: IO[str]) -> Iterator[str]:
    """Lines of a header, whose quoted names may have line breaks, up to the limit in all."""
    left = HEADER_LIMIT
    while line := stream.readline(left):
        yield line
        left -= len(line)


def _last_line(path: Path) -> int:
    """Bytes of the last line, if it is too long: DuckDB leaves one beyond its buffer out."""
    if path.stat().st_size < _LOOKED_AT:
        return 0
    with path.open("rb") as file:
        file.seek(-LINE_LIMIT - 3, os.SEEK_END)
        end = file.read().rstrip(b"\r\n")
    return len(end) - 1 - max(end.rfind(b"\n"), end.rfind(b"\r"))


def _unique(header: Iterable[str]) -> list[str]:
    """Column names for SQL: not empty, and distinct even without case."""
    taken: dict[str, str] = {}
    copies: Counter[str] = Counter()
    for position, name in enumerate(header):
        name = stem = name.strip() or f"column{position}"
        while name.casefold() in taken:
            copies[stem] += 1
            name = f"{stem}_{copies[stem]}"
        taken[name.casefold()] = name
    return list(taken.values())
