"""Events with times on Spark: which are held out, and what recency must know of the others.

The rules are those of `cfnade.data.event_splits` and `cfnade.beyond`. What comes to the driver is a
few thousand numbers, whatever the number of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cfnade.beyond.recency import LEAST, PER_DOUBLING, TOLERANCE, half_lives_of
from cfnade.data.events import Clock, Weights
from cfnade.data.ingest.columns import is_time
from cfnade.errors import DataError
from cfnade.scale.source import CheckedFrame, decayed, share_left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

N_RANGES = 1 << 14
"""Ranges of time to count events in at once, to find a point in time."""


class NothingLaterError(DataError):
    """All events, or all of each user, are at the same time."""


@dataclass(frozen=True)
class TimedEvents:
    """Events above 0 with times, and which of them are held out.

    Their rows have the columns of `CheckedFrame.rows`, and `is_later`.
    """

    checked: CheckedFrame
    clock: Clock
    at: float | None = None
    """The point in time from which on events are held out; None without one."""

    @classmethod
    def of(cls, checked: CheckedFrame, clock: Clock) -> TimedEvents:
        """All events above 0, none of them held out."""
        rows = checked.rows.where("number > 0").selectExpr("*", "false AS is_later")
        return cls(replace(checked, rows=rows), clock)

    @property
    def rows(self) -> DataFrame:
        """The events."""
        return self.checked.rows

    def earlier(self) -> TimedEvents:
        """Those that are not held out."""
        rows = self.rows.where("NOT is_later")
        return replace(self, checked=replace(self.checked, rows=rows), at=None)

    def split(self, by: str, share: float) -> TimedEvents:
        """Hold out the last events, as `split_by_time` or, by `last`, `split_last`.

        Raises:
            NothingLaterError: If all events, or all of each user, are at the same time.
        """
        if by == "time":
            at = time_of_last(self.rows, share)
            rows = self.rows.drop("is_later").selectExpr("*", f"at >= {at!r}D AS is_later")
        else:
            at, rows = None, _last_of_users(self.rows.drop("is_later"), share)
        return replace(self, checked=replace(self.checked, rows=rows), at=at)

    def half_lives(self) -> tuple[float, ...]:
        """Half-lives to try on the events that are not held out, as `half_lives` does."""
        spans = self.rows.where("NOT is_later").selectExpr("max(at) - min(at) AS span").first()
        assert spans is not None
        return tuple(half_lives_of(self.clock, float(spans["span"] or 0.0)))

    def pairs(self, weights: Weights | None, half_lives: Sequence[float]) -> DataFrame:
        """One row for each pair, partitioned by user.

        - `user_id` and `item_id`;
        - `n` and `n_later`, the weighted sums of the events that are kept and held out, at least 0;
        - `first` and `last`, when its first and last kept event was, and `latest`, that of the
          user; null without any;
        - `steps`, for each half-life, where `n` with recent events weighing more is on the scale
          of `rounded`; null if it is not above 0;
        - `has_user`, whether any pair of the user has an `n` above 0.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        of_user, is_known = Window.partitionBy("user_id"), ~F.col("is_later")
        known_at = F.when(is_known, F.col("at"))
        rows = self.rows.repartition("user_id").withColumn("latest", F.max(known_at).over(of_user))
        rows = rows.withColumn("age", F.col("latest") - F.col("at"))
        steps = []
        for half_life in half_lives:
            recent = F.sum(F.when(is_known, decayed(weights, half_life)))
            doublings = F.log2(F.greatest(recent, F.lit(LEAST)))
            step = F.floor(F.lit(float(PER_DOUBLING)) * doublings + F.lit(TOLERANCE))
            steps.append(F.when(recent > 0, step.cast("int")))
        none = F.array().cast("array<int>")
        pairs = rows.groupBy("user_id", "item_id").agg(
            F.greatest(self.checked.total(weights, is_known), F.lit(0.0)).alias("n"),
            F.greatest(self.checked.total(weights, ~is_known), F.lit(0.0)).alias("n_later"),
            F.min(known_at).alias("first"),
            F.max(known_at).alias("last"),
            F.max("latest").alias("latest"),
            (F.array(*steps) if steps else none).alias("steps"),
        )
        return pairs.withColumn("has_user", F.max(F.col("n") > 0).over(of_user))


def trends(pairs: DataFrame, clock: Clock, half_lives: Sequence[float]) -> DataFrame:
    """What `log_watchers` and `repeat_logit` are made of, for each item with kept events.

    `item_id`, `n_watchers`, `n_back` (those who came back at another time), and for each
    half-life `recent`, the watchers that are.

    Args:
        pairs: Of `TimedEvents.pairs`.
        clock: Of the times.
        half_lives: To count recent watchers with.
    """
    from pyspark.sql import functions as F

    known, end = pairs.where("last IS NOT NULL"), F.col("latest")
    if clock != "order":
        last = known.agg(F.max("last")).first()
        end = F.lit(None if last is None else last[0]).cast("double")
    recent = [F.sum(share_left(end - F.col("last"), half_life)) for half_life in half_lives]
    none = F.array().cast("array<double>")
    return known.groupBy("item_id").agg(
        F.count(F.lit(1)).alias("n_watchers"),
        F.count_if(F.col("first") < F.col("last")).alias("n_back"),
        (F.array(*recent) if recent else none).alias("recent"),
    )


def decayed_distributions(pairs: DataFrame) -> DataFrame:
    """How many watchers of an item have each decayed count.

    `half_life` (its place), `item_id`, `step` and `n_watchers`; at most a few hundred rows for
    each item and half-life.
    """
    entries = pairs.selectExpr("item_id", "posexplode(steps) AS (half_life, step)")
    return (
        entries.where("step IS NOT NULL")
        .groupBy("half_life", "item_id", "step")
        .count()
        .withColumnRenamed("count", "n_watchers")
    )


def is_gapless(rows: DataFrame) -> bool:
    """As `EventLog.is_gapless`: the times of every user are 0, 1, 2, ... or 1, 2, 3, ..."""
    users = rows.groupBy("user_id").agg(
        *(_expr(text) for text in ("min(at) AS low", "max(at) AS high")),
        _expr("count(DISTINCT at) = max(at) - min(at) + 1 AND bool_and(at % 1 = 0) AS has_all"),
    )
    figures = users.selectExpr("min(low) AS low", "max(low) AS high", "bool_and(has_all) AS all")
    found = figures.first()
    return found is not None and bool(found["all"]) and found["low"] == found["high"] in (0.0, 1.0)


def clock_of(checked: CheckedFrame) -> Clock | None:
    """The clock of the times, as one machine finds it: numbers without a gap are an order."""
    is_number = checked.clock == "number" and not is_time(checked.time_column)
    if is_number and is_gapless(checked.rows.where("number > 0")):
        return "order"
    return checked.clock


def time_of_last(rows: DataFrame, share: float) -> float:
    """The time from which on about this share of the events are, never the first of all.

    It counts the events in ranges of time, and looks again at the range that has the point.

    Raises:
        NothingLaterError: If all events are at the same time.
    """
    low, high, total = _first(rows, "min(at)", "max(at)", "sum(number)")
    if low is None or low == high:
        raise NothingLaterError(
            "all events are at the same time, so none is later; use split 'random'"
        )
    first, wanted, after = low, share * total, 0.0
    beyond: tuple[float, float] | None = None  # the next time, and the events from there on
    while low < high:
        place = f"least(floor((at - {low!r}D) / {(high - low) / N_RANGES!r}D), {N_RANGES - 1})"
        ranges = rows.where(f"at BETWEEN {low!r}D AND {high!r}D").groupBy(_expr(place))
        columns = ("sum(number) AS n", "min(at) AS low", "max(at) AS high")
        found = ranges.agg(*map(_expr, columns)).orderBy("low", ascending=False).collect()
        for each in found:
            low, high = each["low"], each["high"]
            if after + each["n"] >= wanted:
                break
            after += each["n"]
            beyond = low, after
    from_here = after + each["n"]
    if beyond is None or (low > first and from_here - wanted <= wanted - beyond[1]):
        return float(low)
    return float(beyond[0])


def _last_of_users(rows: DataFrame, share: float) -> DataFrame:
    """Add `is_later`: whether an event is among the last of its user."""
    marked = rows.selectExpr(
        "*",
        "min(at) OVER (PARTITION BY user_id) AS first",
        "max(at) OVER (PARTITION BY user_id) AS last",
        "sum(number) OVER (PARTITION BY user_id) AS total",
        "sum(number) OVER (PARTITION BY user_id ORDER BY at) AS up_to",
        "sum(number) OVER (PARTITION BY user_id, at) AS together",
    )
    is_within = f"(total - up_to) + together / 2 < {share!r}D * total"
    later = marked.selectExpr("*", f"at > first AND (at = last OR {is_within}) AS is_later")
    split = later.drop("first", "last", "total", "up_to", "together")
    if not _first(split, "bool_or(is_later)")[0]:
        raise NothingLaterError("every user has events at one time only, so there are no last ones")
    return split


def _first(rows: DataFrame, *figures: str) -> list[Any]:
    row = rows.selectExpr(*figures).first()
    assert row is not None
    return list(row)


def _expr(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(text)
