"""Rows on Spark become pairs, by the rules of `cfnade.data.ingest`; and SQL on these pairs.

DuckDB and Spark both run the queries, with the same result. They work on a table of pairs with
the columns `user_id`, `item_id` and `n`, the count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cfnade.checks import check_at_least
from cfnade.data.ingest.columns import Columns, choose_columns
from cfnade.data.ingest.read import EXACT_LIMIT, PLAIN_INTEGER
from cfnade.data.splitting import MIN_ITEMS
from cfnade.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KNOWN, VALIDATION, TEST, NEVER = 0, 1, 2, -1
"""Parts of a split; NEVER is the part of pairs with a count of 0."""

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_NUMBERS = _INTEGERS | {"float", "double"}
_IS_BAD = "number IS NULL OR isnan(number) OR number < 0 OR number = double('infinity')"


@dataclass(frozen=True)
class CheckedFrame:
    """Rows that can all be counted."""

    rows: DataFrame
    """`user_id`, `item_id` and, if rows carry counts, `number`."""

    total: str
    """SQL of the sum over a group of rows, the same in any order."""

    about_n_users: int
    """An estimate: an exact number would need another pass."""

    def pairs(self, n_partitions: int | None = None) -> DataFrame:
        """`user_id`, `item_id` and `n`, the total of each pair, partitioned by user.

        Splitting and grouping by user then need no further exchange between machines. Spark
        chooses the number of partitions by default.
        """
        from pyspark.sql import functions as F

        parts: tuple[Any, ...] = ("user_id",) if n_partitions is None else (n_partitions, "user_id")
        total = F.expr(f"CAST({self.total} AS DOUBLE)").alias("n")
        return self.rows.repartition(*parts).groupBy("user_id", "item_id").agg(total)


def check_frame(
    frame: DataFrame, columns: Columns | None = None, *, from_text: bool = False
) -> CheckedFrame:
    """Check in one pass that every row has a user, an item and a count.

    With `from_text`, as for a CSV, ids become integers if every id of the column is a plain one.
    Times and kinds of events are not used on Spark; their columns are reported as unused.

    Raises:
        DataError: If there are no rows, a column is missing, or a row cannot be used.
        ConfigError: If a column of times or kinds of events is named.
    """
    from pyspark.sql import functions as F

    named = columns or Columns()
    for option in ("time_col", "event_col"):
        if getattr(named, option) not in (None, "none"):
            raise ConfigError(
                f"Spark adds up all events of a pair, whatever their times and kinds; leave out "
                f"{option}={getattr(named, option)!r}"
            )
    roles = choose_columns(frame.columns, replace(named, time_col="none", event_col="none"))
    kinds = dict(frame.dtypes)
    chosen = {}
    for role in ("user", "item"):
        name = roles[role]
        if kinds[name] not in _INTEGERS | {"string"}:
            raise DataError(
                f"column {name!r} of type {kinds[name]} cannot serve as {role} ids on Spark; write "
                "them as whole numbers or text"
            )
        chosen[f"{role}_id"] = F.col(f"`{name}`")
    if "count" in roles:
        kind, given = kinds[roles["count"]], F.col(f"`{roles['count']}`")
        if not (kind in _NUMBERS or kind.startswith("decimal")):
            # Through text, so that a date is not taken for a number.
            given = given.cast("string")
        chosen |= {"given": given, "number": given.try_cast("double")}
    rows = frame.select(*(column.alias(name) for name, column in chosen.items()))
    facts = rows.selectExpr(*_figures(with_counts="count" in roles)).first()
    assert facts is not None
    if facts["n_rows"] == 0:
        raise DataError("there are no rows; expected at least one")
    _refuse_bad_rows(rows, facts.asDict(), roles)
    for role in ("user", "item"):
        if kinds[roles[role]] != "string" or (from_text and facts[f"plain_{role}_id"]):
            rows = rows.withColumn(f"{role}_id", F.col(f"{role}_id").cast("bigint"))
    total = "count(*)"
    if "count" in roles:
        total = "sum(number)"
        if not (facts["all_whole"] and facts["sum"] < EXACT_LIMIT):
            # In ascending order, so that the order of the rows makes no difference.
            total = "aggregate(sort_array(collect_list(number)), 0D, (a, b) -> a + b)"
        rows = rows.drop("given")
    return CheckedFrame(rows, total, int(facts["n_users"]))


def _figures(*, with_counts: bool) -> list[str]:
    """SQL of all figures of the one pass."""
    figures = ["count(*) AS n_rows", "approx_count_distinct(user_id) AS n_users"]
    for name in ("user_id", "item_id"):
        is_plain = f"CAST({name} AS STRING) RLIKE '^({PLAIN_INTEGER})$'"
        is_plain += f" AND try_cast({name} AS BIGINT) IS NOT NULL"
        figures += [
            f"count_if({name} IS NULL) AS no_{name}",
            f"bool_and({is_plain}) AS plain_{name}",
        ]
    if with_counts:
        figures.append(f"count_if({_IS_BAD}) AS bad_counts")
        figures += ["bool_and(number = floor(number)) AS all_whole", "sum(number) AS sum"]
    return figures


def _refuse_bad_rows(rows: DataFrame, facts: dict[str, int], roles: dict[str, str]) -> None:
    """Raise with the number of bad rows and one of them."""
    for role in ("user", "item"):
        if facts[f"no_{role}_id"]:
            raise DataError(
                f"{facts[f'no_{role}_id']:,} of {facts['n_rows']:,} rows have no {role} in column "
                f"{roles[role]!r}; fill it in or drop these rows"
            )
    if facts.get("bad_counts"):
        one = rows.where(_IS_BAD).first()
        assert one is not None
        raise DataError(
            f"{facts['bad_counts']:,} of {facts['n_rows']:,} counts in column {roles['count']!r} "
            f"cannot be used; one is {one['given']!r} (user {one['user_id']!r}, item "
            f"{one['item_id']!r}); make it a finite number of at least 0 or drop these rows"
        )


def with_floors(pairs: DataFrame, min_user_items: int, min_item_users: int) -> DataFrame:
    """Drop users with few items and items with few users, as `Interactions.with_floors` does.

    Raises:
        ConfigError: If a floor is negative.
        DataError: If nothing is left.
    """
    from pyspark import StorageLevel

    check_at_least(0, min_user_items=min_user_items, min_item_users=min_item_users)
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


# Queries ----------------------------------------------------------------------------------------


def split_query(
    pairs: str, *, test_share: float, validation_share: float, validation_threshold: str, seed: int
) -> str:
    """SQL that adds a column `part` to the pairs, by the rule of `cfnade.data.splitting`.

    Held-out items and validation users follow from MD5 of the seed and the ids, whatever the
    order of rows and the engine. Validation users have a hash below `validation_threshold`, and
    `validation_share` is of their items that are not in the test part.
    """
    user_hash = f"md5(concat('{seed:d}|', CAST(user_id AS STRING)))"
    pair_hash = f"md5(concat('{seed:d}|', CAST(user_id AS STRING), '|', CAST(item_id AS STRING)))"
    is_chosen = f"{user_hash} < '{validation_threshold}'"
    is_split = "true" if test_share > 0 else is_chosen  # the others need no order
    n_test, n_validation = _n_held("n_items", test_share), _n_held("n_left", validation_share)
    return (
        f"SELECT user_id, item_id, n, CASE WHEN n = 0 THEN {NEVER} "
        f"WHEN place <= n_items - n_left THEN {TEST} "
        f"WHEN is_chosen AND place <= n_items - n_left + {n_validation} THEN {VALIDATION} "
        f"ELSE {KNOWN} END AS part "
        f"FROM (SELECT *, n_items - {n_test} AS n_left "
        f"FROM (SELECT *, {is_chosen} AS is_chosen, "
        "count(*) OVER (PARTITION BY user_id, n > 0) AS n_items, "
        "row_number() OVER (PARTITION BY user_id, n > 0 "
        f"ORDER BY CASE WHEN {is_split} THEN {pair_hash} END, item_id) AS place "
        f"FROM {pairs}) AS placed) AS counted"
    )


def hash_threshold(share: float) -> str:
    """A hash in hex such that this share of all hashes is smaller."""
    return "g" if share >= 1.0 else f"{int(max(share, 0.0) * 16**12):012x}"


def _n_held(n_items: str, share: float) -> str:
    """SQL of the number of a user's items to hold out, as in `hold_out`: half rounds to even.

    The share is a double, as it is there: as a decimal, 0.145 of 100 would be a half.
    """
    if share == 0.0:
        return "0"
    exact = f"(CAST('{share!r}' AS DOUBLE) * {n_items})"
    below, rest = f"floor({exact})", f"{exact} - floor({exact})"
    is_up = f"{rest} > 0.5 OR ({rest} = 0.5 AND {below} % 2 = 1)"
    rounded = f"CAST({below} AS BIGINT) + CASE WHEN {is_up} THEN 1 ELSE 0 END"
    return (
        f"CASE WHEN {n_items} >= {MIN_ITEMS} "
        f"THEN least({n_items} - 1, greatest(1, {rounded})) ELSE 0 END"
    )


def distributions_query(pairs: str) -> str:
    """SQL of each item's count distribution: `item_id`, `n`, `n_watchers_up_to` and `rating`.

    `rating` is `cume_dist() OVER (PARTITION BY item_id ORDER BY n)` of the pairs, to the bit.
    Equal counts become one row before anything is sorted, so an item that everybody has is not
    slow.
    """
    return (
        "SELECT item_id, n, n_watchers_up_to, "
        "CAST(n_watchers_up_to AS DOUBLE) / CAST(n_watchers AS DOUBLE) AS rating FROM ("
        "SELECT item_id, n, "
        "CAST(sum(n_with_it) OVER (PARTITION BY item_id ORDER BY n) AS BIGINT) "
        "AS n_watchers_up_to, "
        "CAST(sum(n_with_it) OVER (PARTITION BY item_id) AS BIGINT) AS n_watchers "
        f"FROM (SELECT item_id, n, count(*) AS n_with_it FROM {pairs} GROUP BY item_id, n) "
        "AS distinct_counts) AS summed"
    )
