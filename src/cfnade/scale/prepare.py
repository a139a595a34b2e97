"""Preparation on Spark: events or counts become Parquet shards for training.

The driver holds tables of items, but never of users or pairs.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cfnade.checks import check_at_least, check_choice, check_share
from cfnade.data.event_splits import SplitBy
from cfnade.data.events import Weights, weights_of_kinds
from cfnade.data.ingest.columns import Columns
from cfnade.data.splitting import MIN_ITEMS
from cfnade.errors import ConfigError
from cfnade.scale.cluster import own_folder
from cfnade.scale.folder_writer import FolderWriter, check_facts, facts_of, make_room
from cfnade.scale.pair_queries import hash_threshold, split_query, with_floors
from cfnade.scale.source import CheckedFrame, check_frame
from cfnade.scale.timed_events import NothingLaterError
from cfnade.scale.timed_prepare import prepare_timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of the preparation; the floors drop users and items with fewer."""

    min_user_items: int = 0
    min_item_users: int = 0

    split: SplitBy | None = None
    """What to hold out: the latest events of all (`time`) or of each user (`last`), or `random`
    items of each user, which ignores times; None by what times there are."""

    test_share: float = 0.0
    """Share of each user's items, or of the events, to hold out for a test."""

    validation_share: float = 0.1
    """The same for validation: of the items of validation users, or of the earlier events."""

    validation_users: int = 10_000
    """Approximate number of users who are judged."""

    seed: int = 0
    shards: int = 16
    """Number of files: at least one per training process."""

    event_weights: Weights | None = None
    """What an event of each kind adds to the count of its pair; None counts all alike."""

    def __post_init__(self) -> None:
        if self.split is not None:
            check_choice("split", self.split, get_args(SplitBy))
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
    config, out = config or PrepareConfig(), own_folder(out)
    make_room(out)
    named, weights = columns or Columns(), config.event_weights
    _check_columns(named, config)
    checked = check_frame(
        frame,
        named,
        from_text=from_text,
        with_times=config.split != "random",
        with_kinds=weights is not None,
    )
    pairs = with_floors(_weighed(checked, weights), config.min_user_items, config.min_item_users)
    if config.min_user_items or config.min_item_users:
        kept = pairs.select("user_id", "item_id")
        rows = checked.rows.join(kept, ["user_id", "item_id"], "left_semi")
        checked = replace(checked, rows=rows)
    try:
        if config.split is None and checked.clock is not None:
            try:
                return prepare_timed(checked, out, config)
            except NothingLaterError as error:
                logger.warning("random pairs are held out, not the latest events: %s", error)
        elif config.split not in (None, "random"):
            return prepare_timed(checked, out, config)
        return _prepare_random(pairs, checked.about_n_users, out, config)
    finally:
        pairs.unpersist()


def _prepare_random(
    pairs: DataFrame, about_n_users: int, out: Path, config: PrepareConfig
) -> dict[str, Any]:
    """Hold out random items of each user."""
    threshold = hash_threshold(config.validation_users / max(about_n_users, 1))
    query = split_query(
        "{pairs}",
        test_share=config.test_share,
        validation_share=config.validation_share,
        validation_threshold=threshold,
        seed=config.seed,
    )
    writer = FolderWriter(out, config.shards)
    split = writer.staged(pairs.sparkSession.sql(query, pairs=pairs))  # read several times below
    facts = check_facts(facts_of(split), config.event_weights)
    for part, share in (("validation", config.validation_share), ("test", config.test_share)):
        if share > 0 and facts[f"n_{part}_pairs"] == 0:
            text = "nothing is held out for %s: no chosen user has %d items or more"
            logger.warning(text, part, MIN_ITEMS)
    writer.users(split, writer.items(split))
    settings = {**asdict(config), "split": "random", "validation_threshold": threshold}
    return writer.finish({**facts, "settings": settings})


def _check_columns(named: Columns, config: PrepareConfig) -> None:
    """Refuse to name a column that is not used."""
    has_kinds = config.event_weights is not None
    for option, is_used, use, hint in (
        ("time_col", config.split != "random", "times", ""),
        ("event_col", has_kinds, "kinds of events", " or give event_weights"),
    ):
        if getattr(named, option) not in (None, "none") and not is_used:
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
