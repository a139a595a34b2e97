"""A prepared folder: data written by Spark, for training and scoring.

- `prepared.json`: sizes, settings, a checksum; written last, so that it marks a complete folder;
- `items/`: `item` (the original id) and `code`, its column;
- `distributions/`: `code`, `n` (a count) and `n_watchers_up_to`: `RelativeRating` as a table;
- `users/`: one Parquet file per shard, one row per user: `user` (the original id), the lists
  `items` (codes), `counts` and `ratings` of the training part, and `validation_items`,
  `validation_counts`, `test_items` and `test_counts` of the held-out parts.

If events have times, held-out pairs may be in the training part as well (repeats), and there are:

- `trends/`: `code`, `n_watchers`, `n_back` (those who came back) and, for each half-life, `recent`
  watchers;
- `decayed/`: `half_life` (its place), `code`, `step` (a count on the scale of recent counts) and
  `n_watchers`: count distributions with recent events weighing more;
- `judged/`: some users with held-out pairs, and all their events: `user`, and the lists `times`,
  `codes`, `kinds`, `counts` and `is_later` (held out);
- `before/`: a prepared folder without the events held out for validation. The outer one has them
  in its training part.
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

from cfnade.beyond.recency import on_scale
from cfnade.data.catalogue import Catalogue
from cfnade.data.events import Clock, EventLog
from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix, as_objects
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import without_overlap
from cfnade.errors import DataError, MissingExtraError
from cfnade.scale.cluster import own_folder

FORMAT = 1
SUMMARY, ITEMS, DISTRIBUTIONS, USERS = "prepared.json", "items", "distributions", "users"
BEFORE, TRENDS, DECAYED, JUDGED = "before", "trends", "decayed", "judged"
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
    def clock(self) -> Clock | None:
        """What the times of the events are; None if they are not used."""
        return self.summary.get("clock")

    @property
    def half_lives(self) -> tuple[float, ...]:
        """Half-lives that the folder has tables for, longest first."""
        return tuple(self.summary.get("half_lives", ()))

    @cached_property
    def before(self) -> Prepared | None:
        """The data without the events held out for validation by time; None if there are none."""
        folder = self.folder / BEFORE
        return Prepared.open(folder) if folder.is_dir() else None

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

    def decayed(self, half_life: float) -> RelativeRating:
        """Each item's distribution of counts that decay with one of the half-lives."""
        place = self.half_lives.index(half_life)
        columns = ["code", "step", "n_watchers"]
        table = _read_table(self.folder / DECAYED, columns, [("half_life", "=", place)])
        code, step, n = (table.column(name).to_numpy() for name in columns)
        return RelativeRating.from_entries(self.n_items, code, on_scale(step), n)

    @cached_property
    def trends(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Each item's watchers, those who came back, and recent ones by half-life.

        Returns:
            (n_items,) twice, (n_items, n_half_lives).
        """
        table = _read_table(self.folder / TRENDS, ["code", "n_watchers", "n_back", "recent"])
        code = table.column("code").to_numpy()
        watchers, back = (np.zeros(self.n_items, dtype=np.int64) for _ in range(2))
        watchers[code] = table.column("n_watchers").to_numpy()
        back[code] = table.column("n_back").to_numpy()
        recent = np.zeros((self.n_items, len(self.half_lives)))
        recent[code] = (
            table.column("recent").combine_chunks().flatten().to_numpy().reshape(code.size, -1)
        )
        return watchers, back, recent

    def judged(self, most: int | None = None) -> tuple[Interactions, NDArray[np.bool_]]:
        """Events of some users with held-out pairs, and which of them are held out, (n_entries,).

        Args:
            most: Users at most, a random choice.
        """
        table = _read_table(self.folder / JUDGED, None).slice(0, most)
        lists = {name: table.column(name).combine_chunks() for name in table.column_names[1:]}
        user = np.repeat(np.arange(table.num_rows), lists["codes"].value_lengths().to_numpy())
        flat = {
            name: values.flatten().to_numpy(zero_copy_only=False) for name, values in lists.items()
        }
        kinds = tuple(sorted(self.event_weights or ()))
        kind = np.searchsorted(kinds, flat["kinds"].astype(str)).astype(np.int16) if kinds else None
        log = EventLog(
            user.astype(np.int32),
            flat["codes"],
            flat["counts"],
            flat["times"],
            self.clock,
            kind,
            kinds,
        )
        users = as_objects(table.column("user").to_pylist())
        data = Interactions.from_log(log, users, self.catalogue.ids)
        if self.event_weights is not None:
            data = data.weighed(self.event_weights)
        return data, flat["is_later"].astype(np.bool_)

    def rows(self) -> Iterator[tuple[CountMatrix]]:
        """Counts of the training part, one row group at a time, (n_here, n_items) each."""
        for path in self.shards:
            file = parquet().ParquetFile(path)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=list(_LISTS))
                yield (as_count_matrix(lists_to_rows(table, *_LISTS, self.n_items)),)

    def held_out(
        self, part: str, shards: Iterable[Path] | None = None
    ) -> Iterator[tuple[CountMatrix, CountMatrix]]:
        """Histories and held-out new counts of the users with any, one row group at a time.

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
                history = as_count_matrix(sum(histories[1:], histories[0]))
                new = without_overlap(history, as_count_matrix(held_out))
                judged = np.flatnonzero(np.diff(new.indptr))
                if judged.size:
                    yield history[judged], new[judged]


def parquet() -> Any:
    """Import `pyarrow.parquet`, or raise `MissingExtraError`."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "spark", "reading a prepared folder") from error
    return pyarrow.parquet


def _read_table(folder: Path, columns: list[str] | None, filters: Any = None) -> Any:
    try:
        return parquet().read_table(folder, columns=columns, filters=filters)
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
