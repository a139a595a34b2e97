"""Preparation on Spark: events or counts become Parquet shards for training.

The driver holds tables of items, but never of users or pairs.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.checks import check_at_least, check_share
from cfnade.data.events import Weights, weights_of_kinds
from cfnade.data.ingest.columns import Columns
from cfnade.data.splitting import MIN_ITEMS
from cfnade.errors import ConfigError, DataError
from cfnade.scale.cluster import for_spark, own_folder
from cfnade.scale.pair_queries import (
    KNOWN,
    NEVER,
    TEST,
    VALIDATION,
    distributions_query,
    hash_threshold,
    split_query,
    with_floors,
)
from cfnade.scale.prepared import DISTRIBUTIONS, FORMAT, ITEMS, SUMMARY, USERS, parquet
from cfnade.scale.source import CheckedFrame, check_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BROADCAST_UP_TO = 500_000
"""Broadcast count distributions of at most this many rows, about 100 bytes each."""

ROW_GROUP_BYTES = 4 << 20
"""Training holds one row group of each shard in memory."""

_STAGE = ".pairs"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of the preparation; the floors drop users and items with fewer."""

    min_user_items: int = 0
    min_item_users: int = 0

    test_share: float = 0.0
    """Share of each user's items to hold out for a test."""

    validation_share: float = 0.1
    """Share of the items of validation users to hold out for early stopping."""

    validation_users: int = 10_000
    """Approximate number of validation users."""

    seed: int = 0
    shards: int = 16
    """Number of files: at least one per training process."""

    event_weights: Weights | None = None
    """What an event of each kind adds to the count of its pair; None counts all alike."""

    def __post_init__(self) -> None:
        check_share(test_share=self.test_share, validation_share=self.validation_share)
        check_at_least(1, shards=self.shards, validation_users=self.validation_users)


def prepare(
    frame: DataFrame,
    out: str | Path,
    config: PrepareConfig | None = None,
    columns: Columns | None = None,
    *,
    from_text: bool = False,
) -> dict[str, Any]:
    """Prepare data on Spark.

    Times are not used: the training on shards has no recency.

    Args:
        frame: From any source of Spark: one row per event, or rows with counts.
        out: Folder that the driver and all executors see; replaces a prepared one.
        config: Settings.
        columns: Which columns hold what; those not named are recognised.
        from_text: Whether all values are text, as in a CSV.

    Returns:
        The content of `prepared.json`: sizes, checksum, settings. With event weights,
        `n_dropped_pairs` have a sum that is not above 0.

    Raises:
        DataError: If the data cannot be used, or the folder holds something else.
        ConfigError: If a setting is invalid.
    """
    config, out, session = config or PrepareConfig(), own_folder(out), frame.sparkSession
    _make_room(out)
    named, weights = columns or Columns(), config.event_weights
    _check_columns(named, weights)
    checked = check_frame(frame, named, from_text=from_text, with_kinds=weights is not None)
    counted = _weighed(checked, weights)
    pairs = with_floors(counted, config.min_user_items, config.min_item_users)
    threshold = hash_threshold(config.validation_users / max(checked.about_n_users, 1))
    query = split_query(
        "{pairs}",
        test_share=config.test_share,
        validation_share=config.validation_share,
        validation_threshold=threshold,
        seed=config.seed,
    )
    parts = session.sql(query, pairs=pairs)
    split = _written(parts, out / _STAGE)  # read several times below
    pairs.unpersist()
    facts = _facts(split)
    n_dropped = facts.pop("n_dropped_pairs")
    if weights is not None:
        facts["n_dropped_pairs"] = n_dropped
        if facts["n_pairs"] == 0:
            raise DataError("no pair has a count above 0 with these event weights")
        if n_dropped:
            logger.warning("%d pairs are dropped: their weighted sum is not above 0", n_dropped)
    if facts["n_pairs"] == 0:
        raise DataError("there is no interaction: no count is above zero; check the count column")
    for part, share in (("validation", config.validation_share), ("test", config.test_share)):
        if share > 0 and facts[f"n_{part}_pairs"] == 0:
            text = "nothing is held out for %s: no chosen user has %d items or more"
            logger.warning(text, part, MIN_ITEMS)

    code = "CAST(row_number() OVER (ORDER BY item_id) - 1 AS INT) AS code"
    numbered = split.select("item_id").distinct().selectExpr("item_id AS item", code)
    items = _written(numbered.coalesce(1), out / ITEMS)
    codes = items.withColumnRenamed("item", "item_id").hint("broadcast")
    known = split.where(f"part = {KNOWN}")
    watched = session.sql(distributions_query("{known}"), known=known)
    watched = watched.join(codes, "item_id").drop("item_id")
    distributions = _written(watched, out / DISTRIBUTIONS)
    coded = split.join(codes, "item_id").drop("item_id")
    _write_users(_with_ratings(coded, distributions), out / USERS, config.shards)
    shutil.rmtree(out / _STAGE)

    summary = {
        "format": FORMAT,
        "n_users": _n_rows(out / USERS),
        "n_items": _n_rows(out / ITEMS),
        **facts,
        "settings": {**asdict(config), "validation_threshold": threshold},
    }
    (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _check_columns(named: Columns, weights: Weights | None) -> None:
    """Refuse to name a column that is not used."""
    for option, use in (("time_col", "times"), ("event_col", "kinds of events")):
        is_used = option == "event_col" and weights is not None
        if getattr(named, option) not in (None, "none") and not is_used:
            hint = " or give event_weights" if option == "event_col" else ""
            raise ConfigError(
                f"preparation adds up all events of a pair, without their {use}; leave out "
                f"{option}={getattr(named, option)!r}{hint}"
            )


def _weighed(checked: CheckedFrame, weights: Weights | None) -> DataFrame:
    """`user_id`, `item_id` and `n` of each pair, 0 if the weighted sum is below."""
    from pyspark.sql import functions as F

    if weights is None:
        return checked.pairs().drop("is_owned")
    if not checked.kinds:
        raise ConfigError(
            "event weights need a column with the kind of each event; name it as event_col"
        )
    pairs = checked.pairs(weights=weights_of_kinds(weights, checked.kinds))
    return pairs.drop("is_owned").withColumn("n", F.greatest("n", F.lit(0.0)))


def _make_room(out: Path) -> None:
    """Empty the folder if an earlier preparation wrote it; refuse any other."""
    ours = {SUMMARY, ITEMS, DISTRIBUTIONS, USERS, _STAGE}
    written = (".parquet", ".crc", "_SUCCESS", "_temporary")  # by Spark
    found = list(out.iterdir()) if out.is_dir() else []
    inside = [path.name for part in found if part.is_dir() for path in part.iterdir()]
    is_ours = {path.name for path in found} <= ours and all(n.endswith(written) for n in inside)
    if not is_ours or (out.exists() and not out.is_dir()):
        raise DataError(f"{out} exists and is not a prepared folder; choose another place")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def _written(frame: DataFrame, folder: Path) -> DataFrame:
    """Write a frame, and read it again."""
    frame.write.parquet(for_spark(folder), compression="zstd")
    return frame.sparkSession.read.parquet(for_spark(folder))


def _facts(split: DataFrame) -> dict[str, Any]:
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
