"""The queries of preparation: one text that DuckDB and Spark both run, with the same outcome.

All of them work on a table of pairs with the columns `user_id`, `item_id` and `n`, the count.
"""

from __future__ import annotations

from cfnade.data.splitting import MIN_ITEMS

KNOWN, VALIDATION, TEST, NEVER = 0, 1, 2, -1
"""Parts of a split, and the part of a pair with a count of 0: no interaction."""


def pairs_query(rows: str, total: str = "count(*)") -> str:
    """Add up the rows of each pair.

    Args:
        rows: Table of `user_id`, `item_id` and, if rows carry counts, `number`.
        total: What a group of rows adds up to.
    """
    return (
        f"SELECT user_id, item_id, CAST({total} AS DOUBLE) AS n FROM {rows} "
        "GROUP BY user_id, item_id"
    )


def split_query(
    pairs: str,
    *,
    test_share: float,
    validation_share: float,
    validation_threshold: str,
    seed: int,
) -> str:
    """Tell the part of each pair: a column `part`.

    The rule is that of `cfnade.data.splitting`: of users with enough items a share of them is held
    out, one at least and never all. Which ones, and for validation which users, follows from MD5
    of the seed and the ids, so it depends on nothing else: not on the order of rows, nor on the
    engine.

    Args:
        pairs: Table of pairs.
        test_share: Of each user's items.
        validation_share: Of the remaining items of the users chosen for validation.
        validation_threshold: Those whose hash comes before it, in hex; see `hash_threshold`.
        seed: Another one gives another split.
    """
    user_hash = f"md5(concat('{seed:d}|', CAST(user_id AS STRING)))"
    pair_hash = f"md5(concat('{seed:d}|', CAST(user_id AS STRING), '|', CAST(item_id AS STRING)))"
    is_chosen = f"{user_hash} < '{validation_threshold}'"
    is_split = "true" if test_share > 0 else is_chosen  # the others need no order
    n_test, n_validation = (_n_held("n_items", test_share), _n_held("n_left", validation_share))
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
    """The hash before which so large a share of all hashes comes, as hex."""
    return "g" if share >= 1.0 else f"{int(max(share, 0.0) * 16**12):012x}"


def _n_held(n_items: str, share: float) -> str:
    """How many of a user's items are held out, as `hold_out` has it: halves go to the even number.

    The share is a double, as it is there: as a decimal, 0.145 of 100 would be a half.
    """
    if share == 0.0:
        return "0"
    exact = f"(CAST('{share!r}' AS DOUBLE) * {n_items})"
    is_up = (
        f"{exact} - floor({exact}) > 0.5 "
        f"OR ({exact} - floor({exact}) = 0.5 AND floor({exact}) % 2 = 1)"
    )
    rounded = f"CAST(floor({exact}) AS BIGINT) + CASE WHEN {is_up} THEN 1 ELSE 0 END"
    return (
        f"CASE WHEN {n_items} >= {MIN_ITEMS} "
        f"THEN least({n_items} - 1, greatest(1, {rounded})) ELSE 0 END"
    )


def relative_rating_query(pairs: str) -> str:
    """The relative rating of each pair, as SQL has it: a column `rating`.

    The plain form. It sorts all watchers of an item in one place, which a show that everybody has
    watched makes slow; `distributions_query` comes to the same, and does not.
    """
    return (
        "SELECT user_id, item_id, n, "
        f"cume_dist() OVER (PARTITION BY item_id ORDER BY n) AS rating FROM {pairs}"
    )


def distributions_query(pairs: str) -> str:
    """Each item's count distribution: `item_id`, `n`, `n_watchers_up_to` and `rating`.

    Equal counts of an item are one row before anything is sorted, so its size follows the
    distinct counts and not the watchers. Joined to the pairs by item and count it gives
    `cume_dist() OVER (PARTITION BY item_id ORDER BY n)`, to the bit.
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
