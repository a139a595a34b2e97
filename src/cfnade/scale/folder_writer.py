"""Writes a prepared folder from pairs on Spark; what is in it, `cfnade.scale.prepared` says."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.data.events import Weights
from cfnade.errors import DataError
from cfnade.scale.cluster import for_spark
from cfnade.scale.pair_queries import KNOWN, NEVER, TEST, VALIDATION, distributions_query
from cfnade.scale.prepared import (
    BEFORE,
    DECAYED,
    DISTRIBUTIONS,
    FORMAT,
    ITEMS,
    JUDGED,
    SUMMARY,
    TRENDS,
    USERS,
    parquet,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger(__name__)

BROADCAST_UP_TO = 500_000
"""Broadcast count distributions of at most this many rows, about 100 bytes each."""

ROW_GROUP_BYTES = 4 << 20
"""Training holds one row group of each shard in memory."""

_STAGE = ".pairs"
_FOLDERS = (ITEMS, DISTRIBUTIONS, USERS, TRENDS, DECAYED, JUDGED, BEFORE, _STAGE)


@dataclass(frozen=True)
class FolderWriter:
    """Writes the parts of one prepared folder."""

    folder: Path
    shards: int

    def staged(self, frame: DataFrame) -> DataFrame:
        """The frame, computed once and written aside until `finish`."""
        return written(frame, self.folder / _STAGE)

    def items(self, frame: DataFrame) -> DataFrame:
        """Number the items of a frame in sorted order; returns `item_id` and `code`."""
        code = "CAST(row_number() OVER (ORDER BY item_id) - 1 AS INT) AS code"
        numbered = frame.select("item_id").distinct().selectExpr("item_id AS item", code)
        return codes_of(written(numbered.coalesce(1), self.folder / ITEMS))

    def users(self, split: DataFrame, codes: DataFrame) -> None:
        """Write count distributions and users of pairs with a `part`."""
        known = split.where(f"part = {KNOWN}")
        watched = split.sparkSession.sql(distributions_query("{known}"), known=known)
        watched = watched.join(codes, "item_id").drop("item_id")
        distributions = written(watched, self.folder / DISTRIBUTIONS)
        coded = split.join(codes, "item_id").drop("item_id")
        _write_users(_with_ratings(coded, distributions), self.folder / USERS, self.shards)

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write `prepared.json`, which marks a complete folder; returns its content."""
        shutil.rmtree(self.folder / _STAGE, ignore_errors=True)
        sizes = {"n_users": USERS, "n_items": ITEMS}
        summary = {
            "format": FORMAT,
            **{name: _n_rows(self.folder / part) for name, part in sizes.items()},
            **facts,
        }
        text = json.dumps(summary, indent=2) + "\n"
        (self.folder / SUMMARY).write_text(text, encoding="utf-8")
        return summary


def make_room(out: Path) -> None:
    """Empty the folder if an earlier preparation wrote it; refuse any other."""
    if out.exists() and not (out.is_dir() and _is_ours(out)):
        raise DataError(f"{out} exists and is not a prepared folder; choose another place")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def _is_ours(folder: Path) -> bool:
    for path in folder.iterdir():
        if path.name == BEFORE and path.is_dir():
            if not _is_ours(path):
                return False
        elif path.is_dir():
            by_spark = (".parquet", ".crc", "_SUCCESS", "_temporary")
            names = [each.name for each in path.iterdir()]
            if path.name not in _FOLDERS or not all(name.endswith(by_spark) for name in names):
                return False
        elif path.name != SUMMARY:
            return False
    return True


def check_facts(facts: Mapping[str, Any], weights: Weights | None) -> dict[str, Any]:
    """The facts that are reported; warns of pairs that the weights of events drop.

    Raises:
        DataError: If no pair has a count above 0.
    """
    reported = dict(facts)
    n_dropped = reported.pop("n_dropped_pairs")
    if reported["n_pairs"] == 0:
        if weights is not None:
            raise DataError("no pair has a count above 0 with these event weights")
        raise DataError("there is no interaction: no count is above zero; check the count column")
    if weights is not None:
        reported["n_dropped_pairs"] = n_dropped
        if n_dropped:
            logger.warning("%d pairs are dropped: their weighted sum is not above 0", n_dropped)
    return reported


def codes_of(items: DataFrame) -> DataFrame:
    """`item_id` and `code` of all items, small enough to send to every executor."""
    return items.withColumnRenamed("item", "item_id").hint("broadcast")


def written(frame: DataFrame, folder: Path) -> DataFrame:
    """Write a frame, and read it again."""
    frame.write.parquet(for_spark(folder), compression="zstd")
    return frame.sparkSession.read.parquet(for_spark(folder))


def facts_of(split: DataFrame) -> dict[str, Any]:
    """Sizes of the parts, and a checksum independent of the order of rows."""
    row = split.selectExpr(
        f"count_if(part != {NEVER}) AS n_pairs",
        f"count_if(part = {VALIDATION}) AS n_validation_pairs",
        f"count_if(part = {TEST}) AS n_test_pairs",
        f"count_if(part = {NEVER}) AS n_dropped_pairs",
        "bit_xor(xxhash64(user_id, item_id, n, part)) AS checksum",
    ).first()
    assert row is not None
    facts = row.asDict()
    return {**facts, "checksum": f"{(facts['checksum'] or 0) & (2**64 - 1):016x}"}


def _with_ratings(coded: DataFrame, distributions: DataFrame) -> DataFrame:
    """Add relative ratings to the pairs; those of held-out pairs may be null.

    Neither join sends all watchers of an item to one task.
    """
    table = distributions.select("code", "n", "rating")
    if distributions.count() <= BROADCAST_UP_TO:  # read from the footers of the files
        table = table.hint("broadcast")
    return coded.where(f"part != {NEVER}").join(table, ["code", "n"], "left")


def _write_users(pairs: DataFrame, folder: Path, shards: int) -> None:
    """Write one row per user, in `shards` files, ordered by a hash of the ids."""
    from pyspark.sql import functions as F

    def listed(part: int, name: str) -> Column:
        pair = F.when(F.col("part") == part, F.struct("code", "n", "rating"))
        return F.sort_array(F.collect_list(pair)).alias(name)

    users = (
        pairs.repartition(shards, "user_id")
        .groupBy(F.col("user_id").alias("user"))
        .agg(listed(KNOWN, "known"), listed(VALIDATION, "validation"), listed(TEST, "test"))
        .where(F.size("known") > 0)
        .selectExpr(
            "user",
            "known.code AS items",
            "known.n AS counts",
            "known.rating AS ratings",
            "validation.code AS validation_items",
            "validation.n AS validation_counts",
            "test.code AS test_items",
            "test.n AS test_counts",
        )
    )
    in_order = users.sortWithinPartitions(F.md5(F.col("user").cast("string")), "user")
    writer = in_order.write.option("parquet.block.size", ROW_GROUP_BYTES)
    writer.parquet(for_spark(folder), compression="zstd")


def _n_rows(folder: Path) -> int:
    """From the footers of the files."""
    return sum(parquet().read_metadata(path).num_rows for path in folder.glob("*.parquet"))
