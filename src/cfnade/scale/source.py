"""Rows on Spark become pairs, by the rules of `cfnade.data.ingest`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cfnade.beyond.recency import MOST_HALF_LIVES, OLD_SHARE
from cfnade.data.events import Clock, Weights
from cfnade.data.ingest.columns import Columns, choose_columns, is_order
from cfnade.data.ingest.read import (
    EXACT_LIMIT,
    MOST_KINDS,
    PLAIN_INTEGER,
    report_dropped,
    usable_kinds,
)
from cfnade.data.ingest.scan import fill_in, or_ignore
from cfnade.data.ingest.times import TimeForm, Times
from cfnade.errors import DataError
from cfnade.scale.spark_times import spark_time_form

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_NUMBERS = _INTEGERS | {"float", "double"}
_IS_BAD = "number IS NULL OR isnan(number) OR number < 0 OR number = double('infinity')"


@dataclass(frozen=True)
class CheckedFrame:
    """Rows that can all be counted."""

    rows: DataFrame
    """`user_id`, `item_id` and `number`, the count; `at`, a time, and `event`, a kind, if known."""

    is_exact: bool
    """Whether counts are whole and small, so that their sums are the same in any order."""

    about_n_users: int
    """An estimate: an exact number would need another pass."""

    clock: Clock | None = None
    """What the times are; None if they are unknown or not used."""

    time_column: str = ""
    """Where the times come from."""

    kinds: tuple[str, ...] = ()
    """The kinds of events in alphabetical order; none if they are unknown or not used."""

    def pairs(
        self,
        n_partitions: int | None = None,
        *,
        weights: Weights | None = None,
        half_life: float = 0.0,
        target: str | None = None,
    ) -> DataFrame:
        """`user_id`, `item_id`, `n` and `is_owned` of each pair, partitioned by user.

        Splitting and grouping by user then need no further exchange between machines. Spark
        chooses the number of partitions by default. Sums may be below 0 if a weight is; with a
        half-life, n is then the sum without one.

        Args:
            n_partitions: Of users.
            weights: Of each kind of event; None counts all alike.
            half_life: In which events lose weight, as in `recent_counts`, whose rounding is left to
                the caller; 0 weighs all the same.
            target: Kind of event; `is_owned` says whether the pair has one. None: whether the sum
                without a half-life is above 0.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        parts: tuple[Any, ...] = ("user_id",) if n_partitions is None else (n_partitions, "user_id")
        rows, number = self.rows.repartition(*parts), F.col("number")
        n = total = self.total(weights)
        if half_life:
            happened = F.when(number > 0, F.col("at"))
            latest = F.max(happened).over(Window.partitionBy("user_id"))
            rows = rows.withColumn("age", latest - F.col("at"))
            n = F.sum(F.when(number > 0, decayed(weights, half_life)).otherwise(0.0))
            n = F.when(n > 0, n).otherwise(F.least(total, F.lit(0.0)))
        is_target = (F.col("event") == target) & (number > 0)
        is_owned = total > 0 if target is None else F.bool_or(is_target)
        found = rows.groupBy("user_id", "item_id")
        return found.agg(n.alias("n"), is_owned.alias("is_owned"))

    def total(self, weights: Weights | None, where: Column | None = None) -> Column:
        """Sum of a group's weighted events, perhaps of those alone that fulfil a condition."""
        from pyspark.sql import functions as F

        number = F.col("number") if where is None else F.when(where, F.col("number"))
        if weights is None:
            return self._sum(number)
        # As in `EventLog.counts`: counted first, then weighed.
        of_kinds = [
            F.lit(float(weight)) * self._sum(F.when(F.col("event") == kind, number))
            for kind, weight in weights.items()
        ]
        return sum(of_kinds[1:], of_kinds[0])

    def _sum(self, values: Column) -> Column:
        from pyspark.sql import functions as F

        if self.is_exact:
            return F.coalesce(F.sum(values), F.lit(0.0))
        # In ascending order, so that the order of the rows makes no difference.
        ordered = F.sort_array(F.collect_list(values))
        return F.aggregate(ordered, F.lit(0.0), lambda total, value: total + value)


def decayed(weights: Weights | None, half_life: float) -> Column:
    """The weighted events of a row at its `age`, as `cfnade.beyond.recency.decayed`."""
    from pyspark.sql import functions as F

    number = F.col("number") * _by_kind(weights) if weights else F.col("number")
    kept = F.lit(OLD_SHARE) + F.lit(1.0 - OLD_SHARE) * share_left(F.col("age"), half_life)
    return number * kept


def share_left(age: Column, half_life: float) -> Column:
    """What is left at this age, as `cfnade.beyond.recency.share_left`."""
    from pyspark.sql import functions as F

    return F.pow(F.lit(2.0), -F.least(age / half_life, F.lit(MOST_HALF_LIVES)))


def _by_kind(weights: Weights) -> Column:
    """The weight of a row."""
    from pyspark.sql import functions as F

    (first, weight), *rest = weights.items()
    found = F.when(F.col("event") == first, float(weight))
    for kind, weight in rest:
        found = found.when(F.col("event") == kind, float(weight))
    return found


def check_frame(
    frame: DataFrame,
    columns: Columns | None = None,
    *,
    from_text: bool = False,
    with_times: bool = False,
    with_kinds: bool = False,
) -> CheckedFrame:
    """Check in one pass that every row has a user, an item, a count, and a time and kind if used.

    Another pass finds the kinds of events, and one counts the rows to drop if some may be.

    Args:
        frame: Rows.
        columns: Which columns hold what; those not named are recognised. And whether rows without
            a user or an item are dropped.
        from_text: Whether all values are text, as in a CSV: ids become integers if every id of
            the column is a plain one.
        with_times: Whether times are used, if there is a column of them; else it is reported as
            unused.
        with_kinds: The same for kinds of events.

    Raises:
        DataError: If there are no rows, a column is missing, or a row cannot be used.
    """
    from pyspark.sql import functions as F

    named = columns or Columns()
    named = replace(
        named,
        time_col=named.time_col if with_times else "none",
        event_col=named.event_col if with_kinds else "none",
    )
    roles = choose_columns(frame.columns, named)
    kinds = dict(frame.dtypes)
    chosen = {}
    for role in ("user", "item"):
        name = roles[role]
        if kinds[name] not in _INTEGERS | {"string"}:
            raise DataError(
                f"column {name!r} of type {kinds[name]} cannot serve as {role} ids on Spark; write "
                "them as whole numbers or text"
            )
        chosen[f"{role}_id"] = _column(name)
    chosen["number"] = F.lit(1.0)
    if "count" in roles:
        kind, given = kinds[roles["count"]], _column(roles["count"])
        if not (kind in _NUMBERS or kind.startswith("decimal")):
            # Through text, so that a date is not taken for a number.
            given = given.cast("string")
        chosen |= {"given": given, "number": given.try_cast("double")}
    if "event" in roles:
        event = F.trim(_column(roles["event"]).cast("string"))
        chosen["event"] = F.when(event != "", event)
    if "time" in roles:
        chosen["time"] = _column(roles["time"])
    rows = frame.select(*(column.alias(name) for name, column in chosen.items()))
    if named.drop_missing_ids:
        kept = rows.dropna(subset=["user_id", "item_id"])
        report_dropped(rows.count(), kept.count())
        rows = kept
    form = None
    if "time" in roles:
        form = spark_time_form(rows, kinds[roles["time"]], roles["time"])
        for step in form.steps:
            rows = rows.selectExpr("*", *step)
    row = rows.selectExpr(*_figures(roles, form)).first()
    assert row is not None
    facts = row.asDict()
    if facts["n_rows"] == 0:
        raise DataError("there are no rows; expected at least one")
    _refuse_bad_rows(rows, facts, roles)
    used = ["user_id", "item_id", "number", *(["event"] if "event" in roles else [])]
    times = None
    if form is not None:
        times = _judged(rows, form, facts, roles["time"])
        used.append(f"{times.value} AS at")
    rows = rows.selectExpr(*used)
    for role in ("user", "item"):
        if kinds[roles[role]] != "string" or (from_text and facts[f"plain_{role}_id"]):
            rows = rows.withColumn(f"{role}_id", F.col(f"{role}_id").cast("bigint"))
    is_exact = "count" not in roles or (facts["all_whole"] and facts["sum"] < EXACT_LIMIT)
    checked = CheckedFrame(rows, is_exact, int(facts["n_users"]))
    if times is not None:
        checked = replace(checked, clock=times.clock, time_column=roles["time"])
    if "event" not in roles:
        return checked
    found = rows.select("event").distinct().limit(MOST_KINDS + 1).collect()
    of_events = sorted(row["event"] for row in found)
    return replace(checked, kinds=usable_kinds(of_events, roles["event"], named))


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"`{name}`")


def _figures(roles: Mapping[str, str], form: TimeForm | None) -> list[str]:
    """SQL of all figures of the one pass."""
    figures = ["count(*) AS n_rows", "approx_count_distinct(user_id) AS n_users"]
    for name in ("user_id", "item_id"):
        is_plain = f"CAST({name} AS STRING) RLIKE '^({PLAIN_INTEGER})$'"
        is_plain += f" AND try_cast({name} AS BIGINT) IS NOT NULL"
        figures += [
            f"count_if({name} IS NULL) AS no_{name}",
            f"bool_and({is_plain}) AS plain_{name}",
        ]
    if "count" in roles:
        figures.append(f"count_if({_IS_BAD}) AS bad_counts")
        figures += ["bool_and(number % 1 = 0) AS all_whole", "sum(number) AS sum"]
    if "event" in roles:
        figures.append("count_if(event IS NULL) AS no_event")
    if form is not None:
        figures += [f"{figure} AS time_{k}" for k, figure in enumerate(form.figures)]
    return figures


def _refuse_bad_rows(rows: DataFrame, facts: Mapping[str, Any], roles: Mapping[str, str]) -> None:
    """Raise with the number of bad rows and one of them."""
    for role, figure in (("user", "no_user_id"), ("item", "no_item_id"), ("event", "no_event")):
        if facts.get(figure):
            raise DataError(
                f"{facts[figure]:,} of {facts['n_rows']:,} rows have no {role} in column "
                f"{roles[role]!r}; {fill_in(role)}"
            )
    if facts.get("bad_counts"):
        one = rows.where(_IS_BAD).first()
        assert one is not None
        raise DataError(
            f"{facts['bad_counts']:,} of {facts['n_rows']:,} counts in column {roles['count']!r} "
            f"cannot be used; one is {one['given']!r} (user {one['user_id']!r}, item "
            f"{one['item_id']!r}); make it a finite number of at least 0 or drop these rows"
        )


def _judged(rows: DataFrame, form: TimeForm, facts: Mapping[str, Any], column: str) -> Times:
    """What the times are; raises with one of them if they cannot be used."""
    figures = [facts[f"time_{k}"] for k in range(len(form.figures))]
    times = form.judge(figures, is_order=is_order(column))
    if isinstance(times, Times):
        return times
    one = rows.where(times.is_bad).selectExpr("string(time) AS time", "user_id", "item_id").first()
    assert one is not None
    raise DataError(
        f"times in column {column!r} cannot be used: {times.reason}; one is {one['time']!r} (user "
        f"{one['user_id']!r}, item {one['item_id']!r}); write all times alike, best as "
        f"2024-05-31T18:30:00Z{or_ignore('time')}"
    )
