"""A prepared folder: what Spark wrote of the data, and what training and scoring read of it.

- `prepared.json`: sizes, settings, a checksum; written last, so that it tells a whole folder;
- `items/`: `item` (the id as it came) and `code`, its column;
- `distributions/`: `code`, `n` (a count) and `n_watchers_up_to`: `RelativeRating` as a table;
- `users/`: one Parquet file a shard, one row a user: `user` (the id as it came), the lists `items`
  (codes), `counts` and `ratings` of the training part, and `validation_items`,
  `validation_counts`, `test_items` and `test_counts` of what is held out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.catalogue import Catalogue
from cfnade.data.ingest.connection import Connection, connect, quote_text
from cfnade.data.interactions import CountMatrix, as_count_matrix, as_objects
from cfnade.data.ratings import RelativeRating
from cfnade.errors import DataError, MissingExtraError
from cfnade.scale.folders import own_folder

FORMAT = 1
SUMMARY, ITEMS, DISTRIBUTIONS, USERS = "prepared.json", "items", "distributions", "users"
_LISTS = ("items", "counts")
PARTS = ("validation", "test")
"""What may be held out."""


@dataclass(frozen=True)
class Prepared:
    """A folder that `prepare` wrote."""

    folder: Path
    summary: dict[str, Any]
    """What `prepared.json` holds."""

    @classmethod
    def open(cls, folder: str | Path) -> Prepared:
        """Open a folder.

        Raises:
            DataError: If it is none, not whole, or of another format.
            ConfigError: If it is no path.
        """
        folder = own_folder(folder)
        try:
            summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(
                f"{folder} is not a prepared folder, or not a whole one (no {SUMMARY}); "
                "make it with: cfnade scale prepare"
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / SUMMARY} cannot be read: {error}") from error
        if not isinstance(summary, dict) or summary.get("format") != FORMAT:
            raise DataError(f"{folder / SUMMARY} is not of format {FORMAT}; prepare the data again")
        return cls(folder, summary)

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return int(self.summary["n_items"])

    @property
    def shards(self) -> list[Path]:
        """The files of users, in their order.

        Raises:
            DataError: If there is none.
        """
        found = sorted((self.folder / USERS).glob("*.parquet"))
        if not found:
            raise DataError(f"there are no shards in {self.folder / USERS}; prepare the data again")
        return found

    @cached_property
    def catalogue(self) -> Catalogue:
        """The item ids in the order of the columns."""
        table = _read_table(self.folder / ITEMS, ["code", "item"]).sort_by("code")
        ids = table.column("item")
        numbers = ids.type.equals("int64") or ids.type.equals("int32")
        return Catalogue(ids.to_numpy() if numbers else as_objects(ids.to_pylist()))

    @cached_property
    def relative_rating(self) -> RelativeRating:
        """Each item's count distribution in the training part."""
        columns = ["code", "n", "n_watchers_up_to"]
        table = _read_table(self.folder / DISTRIBUTIONS, columns)
        code, n, up_to = (table.column(name).to_numpy() for name in columns)
        order = np.lexsort((n, code))
        starts = np.searchsorted(code[order], np.arange(self.n_items + 1)).astype(np.int64)
        return RelativeRating.from_distributions(
            starts, n[order].astype(np.float64), up_to[order].astype(np.int64)
        )

    def held_out(self, part: str) -> tuple[CountMatrix, CountMatrix]:
        """Histories of the users of whom something is held out, and that.

        All of it is held in memory: for `validation`, which is of so many users at most.

        Args:
            part: `validation` or `test`.

        Returns:
            Counts of the training part and held-out counts, (n_judged, n_items) each, users in
            the order of their ids.
        """
        files = ", ".join(quote_text(str(shard)) for shard in self.shards)
        with connect() as connection:
            connection.execute(
                'CREATE TABLE judged AS SELECT row_number() OVER (ORDER BY "user") - 1 AS u, * '
                f'FROM (SELECT "user", items, counts, {part}_items AS held_items, '
                f"{part}_counts AS held_counts FROM read_parquet([{files}]) "
                f"WHERE len({part}_items) > 0)"
            )
            ((n_users,),) = connection.execute("SELECT count(*) FROM judged").fetchall()
            shape = (int(n_users), self.n_items)
            return (
                _unnested(connection, "items", "counts", shape),
                _unnested(connection, "held_items", "held_counts", shape),
            )

    def test_histories(self, shards: Iterable[Path]) -> Iterator[tuple[CountMatrix, CountMatrix]]:
        """Histories of users of whom something is held out for the test, and that, in pieces.

        Args:
            shards: Some of the files of users. One row group of them is in memory at a time.

        Yields:
            Counts of all that is not of the test part, and of that; (n_judged, n_items) each.
        """
        parts = [f"{part}{name}" for part in ("", "validation_", "test_") for name in _LISTS]
        for path in shards:
            file = parquet().ParquetFile(path)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=parts)
                train, validation, test = (
                    lists_to_rows(table, items, counts, self.n_items)
                    for items, counts in zip(parts[::2], parts[1::2], strict=True)
                )
                judged = np.flatnonzero(np.diff(test.indptr))
                if judged.size:
                    known = (train + validation)[judged]
                    yield as_count_matrix(known), as_count_matrix(test[judged])


def _unnested(
    connection: Connection, items: str, counts: str, shape: tuple[int, int]
) -> CountMatrix:
    """Two columns of lists as a matrix."""
    found = connection.execute(
        f"SELECT u, unnest({items}) AS i, unnest({counts}) AS n FROM judged"
    ).fetchnumpy()
    return as_count_matrix(csr_array((found["n"], (found["u"], found["i"])), shape=shape))


def parquet() -> Any:
    """`pyarrow.parquet`.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "spark", "reading a prepared folder") from error
    return pyarrow.parquet


def _read_table(folder: Path, columns: list[str]) -> Any:
    try:
        return parquet().read_table(folder, columns=columns)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} cannot be read: {error}; prepare the data again") from error


def lists_to_rows(table: Any, items: str, values: str, n_items: int) -> csr_array:
    """Two list columns of an Arrow table, of one length in each row, as a sparse matrix.

    Args:
        table: With a row for each user.
        items: Column of the lists of columns.
        values: Column of the lists of values.
        n_items: Number of columns.

    Returns:
        (n_rows, n_items).
    """
    of_items, of_values = (table.column(name).combine_chunks() for name in (items, values))
    lengths: NDArray[np.int64] = of_items.value_lengths().to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    columns = of_items.flatten().to_numpy(zero_copy_only=False)
    data = of_values.flatten().to_numpy(zero_copy_only=False)
    return csr_array((data, columns, ends), shape=(len(lengths), n_items))
