"""Where rows come from: files and frames both become a `Scan` that DuckDB reads.

This module holds that interface, and CSV and Parquet files, folders and globs of them.
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.data.ingest.connection import Connection, quote_name, quote_text
from cfnade.errors import DataError

PathLike: TypeAlias = str | os.PathLike[str]

ID_ROLES = ("user", "item")  # their values must be returned unchanged
INTEGER_TYPES = frozenset(
    f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
)  # of DuckDB, that numpy has too

FORMATS = dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv")
FORMATS |= dict.fromkeys((".parquet", ".pq"), "parquet")
ACCEPTED = ", ".join(FORMATS)
DELIMITERS = ",;\t|"
HEADER_LIMIT = 1 << 20  # characters; a file without line ends is not CSV


class SourcePart(NamedTuple):
    """Rows of one file or frame, in their order."""

    label: str  # for messages: a path, or "the pandas frame"
    query: str  # SQL of its rows, one column per role


@dataclass(frozen=True)
class Scan:
    """The wanted columns of all rows in SQL, each column named by its role."""

    query: str  # SQL of all rows
    parts: Sequence[SourcePart]  # the same rows in parts, to locate one of them
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


class RowSource(Protocol):
    """Rows with named columns that DuckDB can scan, more than once."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of all columns."""

    def scan(self, connection: Connection, roles: Mapping[str, str]) -> Scan:
        """Make the columns of these roles (column by role) readable on this connection."""


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


@dataclass(frozen=True)
class Files:
    """Rows of one or more files of the same format."""

    layouts: Mapping[Path, _Layout]  # sorted by path

    @classmethod
    def find(cls, connection: Connection, source: PathLike | Iterable[PathLike]) -> Files:
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
        return cls({path: look(connection, path) for path in paths})

    @cached_property
    def columns(self) -> Sequence[str]:
        """The names of the columns of all files."""
        return list(dict.fromkeys(name for file in self.layouts.values() for name in file.types))

    def scan(self, connection: Connection, roles: Mapping[str, str]) -> Scan:
        """Make the columns of these roles readable; refuses files that differ in them."""
        self._check_alike(roles)
        selected = ", ".join(
            f"{quote_name(column)} AS {quote_name(role)}" for role, column in roles.items()
        )
        alike: dict[_Layout, list[Path]] = {}
        for path, layout in self.layouts.items():
            alike.setdefault(layout, []).append(path)
        select = f"SELECT {selected} FROM "
        query = " UNION ALL ".join(select + same.relation(paths) for same, paths in alike.items())
        parts = [
            SourcePart(str(path), select + layout.relation([path]))
            for path, layout in self.layouts.items()
        ]
        return Scan(query, parts, from_text=any(layout.delimiter for layout in alike))

    def _check_alike(self, roles: Mapping[str, str]) -> None:
        """Refuse ids that are numbers in one file and text in another: they would change."""
        for role, column in roles.items():
            first: tuple[Path, str] | None = None
            for path, layout in self.layouts.items():
                kind = layout.types.get(column)
                if kind is None:
                    raise DataError(
                        f"{str(path)!r} has no column {column!r}, unlike other files; its columns "
                        f"are {', '.join(map(repr, layout.types))}; correct it or leave it out"
                    )
                first = first or (path, kind)
                if role in ID_ROLES and kind != first[1] and not {kind, first[1]} <= INTEGER_TYPES:
                    raise DataError(
                        f"column {column!r} is {first[1]} in {str(first[0])!r} but {kind} in "
                        f"{str(path)!r}; write the {role} ids with one type in all files"
                    )


def _expand(source: PathLike) -> list[Path]:
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            f"expected paths of CSV or Parquet files, got {type(source).__name__}; "
            "name files, a folder or a glob"
        )
    path = Path(source).expanduser()
    if path.is_dir():
        files = [file for file in path.rglob("*") if _format(file) and file.is_file()]
        found = [
            file
            for file in files
            if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        ]
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
    return found


def _format(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return FORMATS.get("".join(suffixes[-1:])) or FORMATS.get("".join(suffixes[-2:]))


def _parquet_layout(connection: Connection, path: Path) -> _Layout:
    relation = _Layout(()).relation([path])
    return _Layout(tuple(connection.types(f"SELECT * FROM {relation}").items()))


def _csv_layout(_: Connection, path: Path) -> _Layout:
    """Read the header; the most frequent delimiter in it is taken."""
    compressed = path.suffix.lower() == ".gz"
    open_file = gzip.open if compressed else open
    try:
        with open_file(path, "rt", encoding="utf-8-sig", newline="") as stream:
            line = stream.readline(HEADER_LIMIT)
            delimiter = max(DELIMITERS, key=line.count)
            header = next(csv.reader(chain([line], stream), delimiter=delimiter), [])
    except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{str(path)!r} cannot be read as CSV in UTF-8: {reason}; check the file"
        ) from error
    if not any(name.strip() for name in header):
        raise DataError(
            f"{str(path)!r} has no header; expected a first line with the names of the columns"
        )
    columns = tuple((name, "VARCHAR") for name in _unique(header))
    return _Layout(columns, delimiter, "gzip" if compressed else "none")


def _unique(header: Iterable[str]) -> list[str]:
    """Column names for SQL: not empty, and distinct even without case."""
    taken: dict[str, str] = {}
    for position, name in enumerate(header):
        name = stem = name.strip() or f"column{position}"
        copies = 0
        while name.casefold() in taken:
            copies += 1
            name = f"{stem}_{copies}"
        taken[name.casefold()] = name
    return list(taken.values())
