"""A prepared folder: data written by Spark, for training and scoring.

- `prepared.json`: sizes, settings, a checksum; written last, so that it marks a complete folder;
- `items/`: `item` (the original id) and `code`, its column;
- `distributions/`: `code`, `n` (a count) and `n_watchers_up_to`: `RelativeRating` as a table;
- `users/`: one Parquet file per shard, one row per user: `user` (the original id), the lists
  `items` (codes), `counts` and `ratings` of the training part, and `validation_items`,
  `validation_counts`, `test_items` and `test_counts` of the held-out parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from cfnade.data.catalogue import Catalogue
from cfnade.data.interactions import CountMatrix, as_count_matrix, as_objects
from cfnade.data.ratings import RelativeRating
from cfnade.errors import DataError, MissingExtraError
from cfnade.scale.cluster import own_folder

FORMAT = 1
SUMMARY, ITEMS, DISTRIBUTIONS, USERS = "prepared.json", "items", "distributions", "users"
_LISTS = ("items", "counts")


@dataclass(frozen=True)
class Prepared:
    """A folder that `prepare` wrote."""

    folder: Path
    summary: dict[str, Any]
    """The content of `prepared.json`."""

    @classmethod
    def open(cls, folder: str | Path) -> Prepared:
        """Open a folder; raises `DataError` if it is incomplete or has another format."""
        folder = own_folder(folder)
        try:
            summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(
                f"{folder} is not a prepared folder, or an incomplete one (no {SUMMARY}); "
                "create it with: cfnade scale prepare"
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
    def event_weights(self) -> dict[str, float] | None:
        """Weight of each kind of event in the counts; None if all count alike."""
        weights = self.summary.get("settings", {}).get("event_weights")
        return None if weights is None else dict(weights)

    @property
    def shards(self) -> list[Path]:
        """The files of users in order; raises `DataError` if there is none."""
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

    def held_out(
        self, part: str, shards: Iterable[Path] | None = None
    ) -> Iterator[tuple[CountMatrix, CountMatrix]]:
        """Histories and held-out counts of the users with any, one row group at a time.

        Args:
            part: `validation` or `test`; with `test`, the validation part belongs to the histories.
            shards: Some of `shards`; None for all.

        Yields:
            Two matrices, (n_judged, n_items) each.
        """
        known = ("", "validation_") if part == "test" else ("",)
        names = [f"{prefix}{name}" for prefix in (*known, f"{part}_") for name in _LISTS]
        for path in self.shards if shards is None else shards:
            file = parquet().ParquetFile(path)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=names)
                *histories, held_out = (
                    lists_to_rows(table, items, counts, self.n_items)
                    for items, counts in zip(names[::2], names[1::2], strict=True)
                )
                judged = np.flatnonzero(np.diff(held_out.indptr))
                if judged.size:
                    history = sum(histories[1:], histories[0])[judged]
                    yield as_count_matrix(history), as_count_matrix(held_out[judged])


def parquet() -> Any:
    """Import `pyarrow.parquet`, or raise `MissingExtraError`."""
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


def lists_to_rows(table: Any, items: str, values: str | None, n_items: int) -> csr_array:
    """Two list columns of an Arrow table, `items` and `values`, as a matrix, (n_rows, n_items).

    Without `values` they are all 1.
    """
    of_items = table.column(items).combine_chunks()
    columns, lengths = (
        array.to_numpy(zero_copy_only=False)
        for array in (of_items.flatten(), of_items.value_lengths())
    )
    data = np.ones(columns.size)
    if values is not None:
        data = table.column(values).combine_chunks().flatten().to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return csr_array((data, columns, ends), shape=(table.num_rows, n_items))
