"""Preparation of events with times: the latest are held out, for validation and for a test.

Two prepared folders are written. The one in `before` lacks the events held out for validation: a
network trained there shows what recency is worth. The other one has all events before the test.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.data.events import Clock, shown_time
from cfnade.errors import DataError
from cfnade.scale.folder_writer import FolderWriter, check_facts, facts_of, written
from cfnade.scale.pair_queries import (
    KNOWN,
    NEVER,
    TEST,
    VALIDATION,
    hash_threshold,
    is_chosen_user,
)
from cfnade.scale.prepared import BEFORE, DECAYED, ITEMS, JUDGED, TRENDS
from cfnade.scale.source import CheckedFrame
from cfnade.scale.timed_events import TimedEvents, clock_of, decayed_distributions, trends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cfnade.scale.prepare import PrepareConfig

logger = logging.getLogger(__name__)


def prepare_timed(checked: CheckedFrame, out: Path, config: PrepareConfig) -> dict[str, Any]:
    """Write a prepared folder; returns the content of its `prepared.json`.

    Raises:
        DataError: If there are no times to split by, or no count is above 0.
        NothingLaterError: If nothing can be held out by time.
    """
    by, clock = _split_by(checked, config)
    known = TimedEvents.of(checked, clock)
    if config.test_share:
        known = known.split(by, config.test_share)
    before = known.earlier()
    if config.validation_share:
        before = before.split(by, config.validation_share)
    half_lives = before.half_lives() if config.validation_share else ()
    codes = FolderWriter(out, config.shards).items(checked.rows)
    more = {"clock": clock, "half_lives": list(half_lives)}
    settings = {**asdict(config), "split": by}
    if config.validation_share:
        folder = out / BEFORE
        shutil.copytree(out / ITEMS, folder / ITEMS)
        facts = _write(before, folder, config, codes, half_lives, VALIDATION)
        facts = FolderWriter(folder, config.shards).finish({**facts, **more, "settings": settings})
        more |= {name: value for name, value in facts.items() if name.startswith("validation_")}
        more["n_validation_pairs"] = facts["n_validation_pairs"]
    facts = _write(known, out, config, codes, half_lives, TEST)
    facts = {**check_facts(facts, config.event_weights), **more, "settings": settings}
    return FolderWriter(out, config.shards).finish(facts)


def _split_by(checked: CheckedFrame, config: PrepareConfig) -> tuple[str, Clock]:
    """How to hold out, as asked for or by the times that there are; and the clock of these."""
    clock = clock_of(checked)
    if clock is None:
        raise DataError("the data have no times to split by; name a column of times as time_col")
    if config.split == "time" and clock == "order":
        raise DataError(
            "the times are an order of each user's events, which cannot be compared across users; "
            "use split 'last', or name a column of times as time_col"
        )
    return config.split or ("last" if clock == "order" else "time"), clock


def _write(
    events: TimedEvents,
    folder: Path,
    config: PrepareConfig,
    codes: DataFrame,
    half_lives: Sequence[float],
    part: int,
) -> dict[str, Any]:
    """Write all of a folder but its summary; returns the facts for it."""
    writer, weights = FolderWriter(folder, config.shards), config.event_weights
    name = "validation" if part == VALIDATION else "test"
    pairs = writer.staged(events.pairs(weights, half_lives))
    known_items = (
        pairs.where("n > 0").select("item_id").distinct().selectExpr("*", "true AS has_item")
    )
    later = pairs.where("n_later > 0").join(known_items.hint("broadcast"), "item_id", "left")
    born = later.selectExpr(
        "count_if(NOT has_user OR has_item IS NULL) AS pairs",
        "count(DISTINCT CASE WHEN NOT has_user THEN user_id END) AS users",
        "count(DISTINCT CASE WHEN has_item IS NULL THEN item_id END) AS items",
        "count(DISTINCT CASE WHEN has_user AND has_item THEN user_id END) AS judged",
    ).first()
    assert born is not None
    later = later.where("has_user AND has_item")
    share = config.validation_users / max(born["judged"], 1)
    is_judged = is_chosen_user(config.seed, hash_threshold(share))
    judged = later.where(is_judged)
    held_out = judged if part == VALIDATION else later  # the test part stays in the histories
    split = (
        pairs.where("n > 0 OR n_later = 0")
        .selectExpr(
            "user_id", "item_id", "n", f"CASE WHEN n > 0 THEN {KNOWN} ELSE {NEVER} END AS part"
        )
        .unionAll(held_out.selectExpr("user_id", "item_id", "n_later AS n", f"{part} AS part"))
    )
    facts = facts_of(split)
    writer.users(split, codes)
    if half_lives:
        of_items = trends(pairs, events.clock, half_lives).join(codes, "item_id").drop("item_id")
        written(of_items, folder / TRENDS)
        counts = decayed_distributions(pairs).join(codes, "item_id").drop("item_id")
        written(counts, folder / DECAYED)
    is_held = config.validation_share if part == VALIDATION else config.test_share
    if not is_held:
        return facts
    if not born["judged"]:
        logger.warning("nothing is held out for %s: nobody has earlier and later events", name)
    users = judged.select("user_id").distinct()
    written(_judged_events(events, users, codes), folder / JUDGED)
    at = None if events.at is None else shown_time(events.at, events.clock)
    more = {f"{name}_born_{each}": born[each] for each in ("users", "items", "pairs")}
    return {**facts, f"{name}_from": at, **more}


def _judged_events(events: TimedEvents, users: DataFrame, codes: DataFrame) -> DataFrame:
    """The events of some users, as `cfnade.scale.prepared` describes them.

    In the order of a hash of the ids, so that the first ones are a random choice.
    """
    from pyspark.sql import functions as F

    has_kinds = "event" in events.rows.columns
    rows = (
        events.rows if has_kinds else events.rows.selectExpr("*", "CAST(NULL AS STRING) AS event")
    )
    rows = rows.join(users.hint("broadcast"), "user_id", "left_semi")
    grouped = rows.groupBy("user_id", "item_id", "at", "is_later", "event")
    entries = grouped.agg(F.sum("number").alias("count")).join(codes, "item_id")
    listed = F.sort_array(F.collect_list(F.struct("at", "code", "event", "count", "is_later")))
    return (
        entries.groupBy(F.col("user_id").alias("user"))
        .agg(listed.alias("listed"))
        .selectExpr(
            "user",
            "listed.at AS times",
            "listed.code AS codes",
            "listed.event AS kinds",
            "listed.count AS counts",
            "listed.is_later AS is_later",
        )
        .repartition(1)
        .sortWithinPartitions(F.md5(F.col("user").cast("string")), "user")
    )
