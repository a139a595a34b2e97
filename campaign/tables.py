"""Tables with odd headers, types, encodings and compressed files, for the reader."""

from __future__ import annotations

import contextlib
import gzip
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from campaign.tally import NASTY, Tally, attempt, changed_bytes, in_batches, in_child
from cfnade.data.ingest import read_interactions, read_item_names, scan

MOST_SECONDS = 10.0
HEADERS = ("user,item,count", "user_id;item_id;plays", "user\titem", "uid|iid|n", '"user","item"')
VALUES = ("007", "-0", "1e3", "", " ", "é", '"q""q"', "2020-01-01", "true", "1.5", "NULL")
IDS, COUNTS = ("1", "2", "007", "é", "a b", "x'y", "-3"), ("1", "2", "1.5", "1e3", "0")
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32")
PARQUET = (
    "i % 5 AS user, i AS item, 1 + i % 3 AS count",
    "'u' || i % 5 AS user_id, 'é' || i AS item_id, i / 2 AS plays, 'Film ' || i AS title",
    "i % 5 AS user, i AS item, TIMESTAMP '2020-01-01' + INTERVAL (i) DAY AS timestamp",
    "i % 5 AS user, i AS item, 'view' AS event, 1577836800 + i AS time",
    "printf('%032x', i)::UUID AS user, DATE '2020-01-01' AS item, i::DECIMAL(38, 9) AS count",
    "CAST(i AS HUGEINT) AS user, CAST(i AS UBIGINT) AS item, CAST('NaN' AS FLOAT) AS count",
    "[i, i] AS user, {'a': i} AS item, CAST(i AS VARCHAR)::BLOB AS count",
    "i % 2 = 0 AS user, NULL AS item, 1.5 AS count",
)
_OPEN = scan._open
SUFFIXES = (".csv", ".csv", ".tsv", ".csv.gz", ".parquet", ".pq", ".txt", ".CSV")


def tables(numbers: range, seed: int, until: float) -> Tally:
    """Read odd tables of these numbers; each is read, or refused in one line."""
    with tempfile.TemporaryDirectory(prefix="cfnade-campaign-") as parent:
        database, parquet = _Database(), _parquet_files(Path(parent))

        def one(tally: Tally, rng: random.Random, what: str) -> None:
            suffix = rng.choice(SUFFIXES)
            path = Path(parent) / f"{rng.choice(('rows', 'a b', 'x[1]', chr(39), 'é'))}{suffix}"
            path.write_bytes(_content(rng, suffix, parquet))
            read = read_item_names if rng.random() < 0.15 else read_interactions
            with database.shared() if rng.random() < 0.95 else contextlib.nullcontext():
                attempt(tally, what, lambda: read(path), MOST_SECONDS)
            path.unlink()

        return in_batches(
            "tables", one, numbers=numbers, until=until, seed=seed, batch=500, seconds=600
        )


class _Database:
    """One database for many readers, made in the process that needs it.

    To open one takes three times as long as to read a small table. Each reader has a connection
    and a schema of its own; no other part of the reader is changed.
    """

    def __init__(self) -> None:
        self._made: duckdb.DuckDBPyConnection | None = None

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Readers inside the block connect to this database."""
        open_own, scan._open = scan._open, self._connect
        try:
            yield
        finally:
            scan._open = open_own

    def _connect(self, folder: str, memory_limit: str | None) -> duckdb.DuckDBPyConnection:
        if self._made is None:
            self._made = _OPEN(tempfile.gettempdir(), memory_limit)
        own = self._made.cursor()
        own.execute("DROP SCHEMA IF EXISTS rows CASCADE; CREATE SCHEMA rows; USE rows")
        return own


def _content(rng: random.Random, suffix: str, parquet: list[bytes]) -> bytes:
    header = rng.choice(HEADERS)
    mark = next(sign for sign in ";\t|," if sign in header)
    n_columns = header.count(mark) + 1
    lines = [header] if rng.random() < 0.95 else []
    for _ in range(rng.choice((0, 1, 3, 30, 3000 if rng.random() < 0.02 else 5))):
        n = n_columns if rng.random() < 0.97 else rng.randrange(6)
        usual = [rng.choice(IDS), rng.choice(IDS), rng.choice(COUNTS)]
        row = usual[:n] if n <= 3 else usual + usual
        if rng.random() < 0.05 and row:
            row[rng.randrange(len(row))] = rng.choice(VALUES)
        lines.append(mark.join(row))
    text = rng.choice(("\n", "\n", "\r\n", "\r")).join(lines) + rng.choice(("", "\n"))
    content = text.encode(rng.choice(ENCODINGS), errors="replace")
    if rng.random() < 0.7:
        content = changed_bytes(rng, content)
    if rng.random() < 0.01:
        content = rng.choice(NASTY) * 200_000
    if suffix.endswith(".gz"):
        content = gzip.compress(content, 1)
        if rng.random() < 0.3:
            content = changed_bytes(rng, content)
    elif suffix in (".parquet", ".pq"):
        if rng.random() < 0.1:
            return b"PAR1" + content + rng.randbytes(4) + b"PAR1"
        content = rng.choice(parquet)
        if rng.random() < 0.9:
            content = changed_bytes(rng, content)
    return content


def _parquet_files(folder: Path) -> list[bytes]:
    """Real files with columns of many types.

    A child writes them: readers are forked later, and a fork has none of DuckDB's threads.
    """
    paths = [folder / f"{number}.parquet" for number in range(len(PARQUET))]

    def write(tally: Tally) -> None:
        for path, columns in zip(paths, PARQUET, strict=True):
            rows = f"SELECT {columns} FROM range(40) AS r(i)"
            duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")

    written = in_child(write, seconds=60)
    assert not written.broken, written.broken
    contents = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    return contents
