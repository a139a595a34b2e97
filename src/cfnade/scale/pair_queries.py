"""What is done to pairs: floors, the split, and each item's count distribution.

A table of pairs has the columns `user_id`, `item_id` and `n`, the count. DuckDB and Spark both run
the queries, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfnade.checks import check_at_least
from cfnade.data.splitting import MIN_ITEMS
from cfnade.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KNOWN, VALIDATION, TEST, NEVER = 0, 1, 2, -1
"""Parts of a split; NEVER is the part of pairs with a count of 0."""


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


def split_query(
    pairs: str, *, test_share: float, validation_share: float, validation_threshold: str, seed: int
) -> str:
    """SQL that adds a column `part` to the pairs, by the rule of `cfnade.data.splitting`.

    Held-out items and validation users follow from MD5 of the seed and the ids, whatever the
    order of rows and the engine. Validation users have a hash below `validation_threshold`, and
    `validation_share` is of their items that are not in the test part.
    """
    pair_hash = f"md5(concat('{seed:d}|', CAST(user_id AS STRING), '|', CAST(item_id AS STRING)))"
    is_chosen = is_chosen_user(seed, validation_threshold)
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


def is_chosen_user(seed: int, threshold: str) -> str:
    """SQL of whether a user has a hash below a threshold; see `hash_threshold`."""
    return f"md5(concat('{seed:d}|', CAST(user_id AS STRING))) < '{threshold}'"


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
