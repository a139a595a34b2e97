"""Training users streamed from the shards of a prepared folder, shared by several processes.

Each process has some of the shards. A batch takes its share of every shard, so its users depend on
the seed, not on the number of processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from cfnade.data.ratings import confidence
from cfnade.errors import ConfigError, DataError
from cfnade.model.config import TrainingConfig
from cfnade.scale.prepared import Prepared, lists_to_rows, parquet


class ShardedRows:
    """The users of one of several processes, as `TrainingRows`.

    An epoch reads the row groups of each shard in random order, one at a time, and shuffles each.

    Raises:
        ConfigError: If there are more processes than shards.
        DataError: If the folder is incomplete.
    """

    def __init__(
        self, prepared: Prepared, alpha: float, *, process: int = 0, n_processes: int = 1
    ) -> None:
        self.prepared, self.alpha = prepared, alpha
        shards = prepared.shards
        if n_processes > len(shards):
            raise ConfigError(
                f"{n_processes} processes need at least as many shards, got {len(shards)}; "
                f"prepare with --shards {n_processes} or more"
            )
        self.n_watchers: NDArray[np.integer] = prepared.relative_rating.n_watchers
        self.sizes = np.array([parquet().read_metadata(path).num_rows for path in shards])
        self.n_users = int(self.sizes.sum())  # of all processes
        if self.n_users != prepared.summary["n_users"]:
            raise DataError(
                f"the shards of {prepared.folder} hold {self.n_users:,} users, expected "
                f"{prepared.summary['n_users']:,}; prepare the data again"
            )
        self.first, self.end = (len(shards) * k // n_processes for k in (process, process + 1))
        self.own_paths = shards[self.first : self.end]

    def total_confidence(self) -> NDArray[np.floating]:
        """Sum of the confidences of each item's likes, (n_items,)."""
        distributions = self.prepared.relative_rating
        item, count, n_with_it = distributions.entries()
        confidences = n_with_it * confidence(distributions.of_pairs(item, count), self.alpha)
        return np.asarray(np.bincount(item, confidences, self.prepared.n_items), np.float64)

    def batches(
        self, training: TrainingConfig, epoch: int, rng: np.random.Generator
    ) -> Iterator[tuple[csr_array, int]]:
        """Every user once, in batches with the same share of each shard; see `TrainingRows`."""
        n_steps = training.updates_per_epoch(self.n_users)
        if self.sizes.min() < n_steps:
            raise ConfigError(
                f"batches of {training.batch_size} are too small to have a user of each of the "
                f"{len(self.sizes)} shards; raise batch_size or prepare fewer --shards"
            )
        lanes = [
            _Lane(path, self, np.random.default_rng([training.seed, epoch, number]))
            for number, path in enumerate(self.own_paths, start=self.first)
        ]
        return self._steps(lanes, n_steps)

    def _steps(self, lanes: list[_Lane], n_steps: int) -> Iterator[tuple[csr_array, int]]:
        for step in range(n_steps):
            # (n_shards,): every shard ends with the last batch
            n_taken = self.sizes * (step + 1) // n_steps - self.sizes * step // n_steps
            own = zip(lanes, n_taken[self.first : self.end], strict=True)
            likes = vstack([lane.take(int(n)) for lane, n in own], format="csr")
            yield csr_array(likes), int(n_taken.sum())

    def identity(self) -> list[Any]:
        """Sizes and checksum of the data and its shards, whatever the number of processes."""
        shards = hashlib.sha256(self.sizes.astype("<i8").tobytes()).hexdigest()[:16]
        return [self.n_users, self.prepared.n_items, self.prepared.summary["checksum"], shards]


class _Lane:
    """One shard's users in an epoch's random order."""

    def __init__(self, path: Path, rows: ShardedRows, rng: np.random.Generator) -> None:
        self._rows, self._rng = rows, rng
        self._file = parquet().ParquetFile(path)
        self._groups = iter(rng.permutation(self._file.num_row_groups).tolist())
        self._likes = self._next_group()
        self._place = 0

    def take(self, n_users: int) -> csr_array:
        """The next users."""
        pieces = []
        while n_users > 0:
            if self._place == self._likes.shape[0]:
                self._likes, self._place = self._next_group(), 0
            piece = self._likes[self._place : self._place + n_users]
            pieces.append(piece)
            self._place += piece.shape[0]
            n_users -= piece.shape[0]
        return pieces[0] if len(pieces) == 1 else vstack(pieces, format="csr")

    def _next_group(self) -> csr_array:
        table = self._file.read_row_group(next(self._groups), columns=["items", "ratings"])
        likes = lists_to_rows(table, "items", "ratings", self._rows.prepared.n_items)
        likes.data = confidence(likes.data, self._rows.alpha)
        return likes[self._rng.permutation(likes.shape[0])]
