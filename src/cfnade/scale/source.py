"""The first step on Spark: a frame of events or counts becomes checked rows, then pairs.

What `cfnade.data.ingest` does with DuckDB on one machine, with the same rules.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cfnade.data.ingest.columns import choose_columns
from cfnade.data.ingest.read import EXACT_LIMIT, PLAIN_INTEGER
from cfnade.errors import ConfigError, DataError
from cfnade.scale.sql import pairs_query

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_NUMBERS = _INTEGERS | {"float", "double"}


@dataclass(frozen=True)
class Columns:
    """Which columns hold what, as for `read_interactions`."""

    user_col: str | None = None
    item_col: str | None = None
    count_col: str | None = None
    events: bool | None = None


@dataclass(frozen=True)
class CheckedFrame:
    """Rows that can all be counted."""

    rows: DataFrame
    """`user_id`, `item_id` and, if rows carry counts, `number`."""

    total: str
    """SQL of what a group of rows adds up to, the same in whatever order they come."""

    n_rows: int
    about_n_users: int
    """Estimated on the way; exact counting would need another pass."""

    def pairs(self, n_partitions: int | None = None) -> DataFrame:
        """`user_id`, `item_id` and `n`: each pair's total.

        Rows are brought together by user first: splitting and grouping by user then need no
        further exchange between machines.

        Args:
            n_partitions: In how many parts; None leaves it to Spark.
        """
        parts: tuple[Any, ...] = ("user_id",) if n_partitions is None else (n_partitions, "user_id")
        return run_query(self.rows.repartition(*parts), lambda t: pairs_query(t, self.total))


def check_frame(
    frame: DataFrame, columns: Columns | None = None, *, from_text: bool = False
) -> CheckedFrame:
    """Make sure that every row has a user, an item and a count, in one pass over the rows.

    Args:
        frame: One row an event, or one or more a pair with a count.
        columns: Which columns hold what; those not named are recognised.
        from_text: Whether all values were written as text, as in a CSV: ids are then integers if
            each of the column is a plain one.

    Raises:
        DataError: If there are no rows, a column is missing, or a row cannot be used.
    """
    from pyspark.sql import functions as F

    columns = columns or Columns()
    roles = choose_columns(frame.columns, **vars(columns))
    kinds = dict(frame.dtypes)
    for role in ("user", "item"):
        if kinds[roles[role]] not in _INTEGERS | {"string"}:
            raise DataError(
                f"column {roles[role]!r} of type {kinds[roles[role]]} cannot serve as {role} ids "
                "on Spark; write them as whole numbers or text"
            )
    chosen = {f"{role}_id": F.col(f"`{roles[role]}`") for role in ("user", "item")}
    if "count" in roles:
        chosen["given"] = F.col(f"`{roles['count']}`")
        chosen["number"] = _as_number(chosen["given"], kinds[roles["count"]])
    rows = frame.select(*(column.alias(name) for name, column in chosen.items()))
    facts = rows.agg(*_facts(rows)).first()
    assert facts is not None
    if facts["n_rows"] == 0:
        raise DataError("there are no rows; expected at least one")
    _refuse_bad_rows(rows, facts.asDict(), roles)
    for role in ("user", "item"):
        is_written_plain = from_text and facts[f"plain_{role}_id"]
        if kinds[roles[role]] != "string" or is_written_plain:
            rows = rows.withColumn(f"{role}_id", F.col(f"{role}_id").cast("bigint"))
    total = "count(*)"
    if "count" in roles:
        is_exact = facts["all_whole"] and facts["sum"] < EXACT_LIMIT
        # Doubles are added up in ascending order, so that their order makes no difference.
        total = (
            "sum(number)"
            if is_exact
            else "aggregate(sort_array(collect_list(number)), 0D, (a, b) -> a + b)"
        )
        rows = rows.drop("given")
    return CheckedFrame(rows, total, int(facts["n_rows"]), int(facts["n_users"]))


def _as_number(given: Column, kind: str) -> Column:
    """What a count says; null if it is no number. Through text, a date is not taken for one."""
    is_number = kind in _NUMBERS or kind.startswith("decimal")
    return given.cast("double") if is_number else given.cast("string").try_cast("double")


def _facts(rows: DataFrame) -> list[Column]:
    """All that one pass has to find out."""
    from pyspark.sql import functions as F

    facts = [F.count(F.lit(1)).alias("n_rows"), F.approx_count_distinct("user_id").alias("n_users")]
    for name in ("user_id", "item_id"):
        as_text = F.col(name).cast("string")
        is_plain = as_text.rlike(f"^({PLAIN_INTEGER})$") & as_text.try_cast("bigint").isNotNull()
        facts += [
            F.count_if(F.col(name).isNull()).alias(f"no_{name}"),
            F.bool_and(is_plain).alias(f"plain_{name}"),
        ]
    if "number" in rows.columns:
        number = F.col("number")
        facts += [
            F.count_if(_is_bad(number)).alias("bad_counts"),
            F.bool_and(number == F.floor(number)).alias("all_whole"),
            F.sum("number").alias("sum"),
        ]
    return facts


def _is_bad(number: Column) -> Column:
    from pyspark.sql import functions as F

    is_infinite = number == F.lit(float("inf"))
    return number.isNull() | F.isnan(number) | (number < 0) | is_infinite


def _refuse_bad_rows(rows: DataFrame, facts: dict[str, int], roles: dict[str, str]) -> None:
    """Tell how many rows cannot be used, and one of them."""
    from pyspark.sql import functions as F

    for role in ("user", "item"):
        if facts[f"no_{role}_id"]:
            raise DataError(
                f"{facts[f'no_{role}_id']:,} of {facts['n_rows']:,} rows have no {role} in column "
                f"{roles[role]!r}; fill it in or drop these rows"
            )
    if facts.get("bad_counts"):
        one = rows.where(_is_bad(F.col("number"))).first()
        assert one is not None
        raise DataError(
            f"{facts['bad_counts']:,} of {facts['n_rows']:,} counts in column {roles['count']!r} "
            f"cannot be used; one is {one['given']!r} (user {one['user_id']!r}, item "
            f"{one['item_id']!r}); make it a finite number of at least 0 or drop these rows"
        )


def with_floors(pairs: DataFrame, min_user_items: int, min_item_users: int) -> DataFrame:
    """Leave out users with few items and items with few users, until nothing changes (k-core).

    Args:
        pairs: `user_id`, `item_id`, `n`.
        min_user_items: Distinct items that a user must have; 0 keeps all.
        min_item_users: Distinct users that an item must have; 0 keeps all.

    Raises:
        ConfigError: If a floor is negative.
        DataError: If nothing is left.
    """
    from pyspark import StorageLevel

    if min(min_user_items, min_item_users) < 0:
        raise ConfigError(
            f"floors must be at least 0, got min_user_items={min_user_items} and "
            f"min_item_users={min_item_users}"
        )
    if max(min_user_items, min_item_users) == 0:
        return pairs
    kept = pairs.persist(StorageLevel.DISK_ONLY)
    n_kept = kept.count()
    while True:
        fewer = _at_least(kept, "user_id", min_user_items)
        fewer = _at_least(fewer, "item_id", min_item_users).persist(StorageLevel.DISK_ONLY)
        n_fewer = fewer.count()
        kept.unpersist()
        if n_fewer == 0:
            raise DataError(
                f"nothing is left with at least {min_user_items} items a user and "
                f"{min_item_users} users an item; lower the floors"
            )
        if n_fewer == n_kept:
            return fewer
        kept, n_kept = fewer, n_fewer


def _at_least(pairs: DataFrame, name: str, floor: int) -> DataFrame:
    if floor == 0:
        return pairs
    sizes = pairs.where("n > 0").groupBy(name).count()
    return pairs.join(sizes.where(sizes["count"] >= floor).select(name), name, "left_semi")


def run_query(frame: DataFrame, query: Callable[[str], str]) -> DataFrame:
    """Run SQL that is written for a table of some name on a frame."""
    table = f"cfnade_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(table)
    try:
        return frame.sparkSession.sql(query(table))
    finally:
        frame.sparkSession.catalog.dropTempView(table)
