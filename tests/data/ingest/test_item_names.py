"""Names of items are read from tables whose columns may be called anything."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from cfnade import DataError, read_interactions
from cfnade.data.ingest import find_name_column, read_item_names
from tests.data.ingest.helpers import write, write_parquet


def test_item_names_are_read_by_id(tmp_path):
    path = write_parquet(
        tmp_path / "items.parquet", item=[2, 1, 1], name=["Tea", "Milk", "Cow"], source_id=[9, 8, 7]
    )
    assert read_item_names(path) == {1: "Cow", 2: "Tea"}
    movies = write(tmp_path / "movies.csv", "movieId,title,genres\n7,Heat,x\n8,,x\n,Ghost,x\n")
    assert read_item_names(movies) == {7: "Heat"}
    frame = pd.DataFrame({"id": ["a", "b"], "label": ["A", "B"], "x": [1, 2]})
    assert read_item_names(frame) == {"a": "A", "b": "B"}
    assert read_item_names(frame, item_col="label", name_col="x") == {"A": "1", "B": "2"}


def test_item_names_need_their_columns(tmp_path):
    path = write(tmp_path / "a.csv", "item,genre,year\n1,x,1\n")
    with pytest.raises(DataError, match="no name column; the columns are 'item', 'genre', 'year'"):
        read_item_names(path)
    with pytest.raises(DataError, match="no name column 'item'"):
        read_item_names(path, name_col="item")


def test_names_find_their_items(tmp_path):
    log = write(tmp_path / "log.csv", "user,item,title\n1,7,Heat\n1,8,\n")
    found = read_interactions(log).with_item_names(read_item_names(log))
    assert [found.item_label(column) for column in range(2)] == ["Heat", "8"]


def test_of_two_columns_the_other_holds_the_names(tmp_path):
    path = write(tmp_path / "a.csv", "sku_code,label_text\nx1,Tea\n")
    assert read_item_names(path, item_col="sku_code") == {"x1": "Tea"}
    assert read_item_names(path, data_item_col="sku_code") == {"x1": "Tea"}
    known = write(tmp_path / "b.csv", "item,label_text\nx1,Tea\n")
    assert read_item_names(known, data_item_col="sku_code") == {"x1": "Tea"}
    with pytest.raises(DataError, match="no item column; the columns are 'sku_code', 'label_text'"):
        read_item_names(path)


def test_a_column_called_like_the_items_holds_their_names(tmp_path):
    path = write(tmp_path / "a.csv", "product_id,colour,product_name\n1,red,Tea\n")
    assert read_item_names(path) == {1: "Tea"}


LOG = pd.DataFrame(
    {
        "user": [1, 1, 2, 2, 3, 3],
        "artist_id": [7, 8, 7, 9, 8, 9],
        "artist_name": ["Blur", "Pulp", "Blur", "Suede", "Pulp", "Suede"],
    }
)


def test_the_column_of_names_in_the_data_is_found():
    assert find_name_column(LOG) == "artist_name"
    odd = LOG.rename(columns={"artist_id": "what", "artist_name": "title"})
    assert find_name_column(odd, item_col="what") == "title"
    assert find_name_column(odd) is None
    assert find_name_column(LOG[["user", "artist_id"]]) is None
    assert find_name_column(read_interactions(LOG)) is None
    assert find_name_column(csr_array(np.eye(3))) is None


def test_names_of_users_and_of_kinds_are_no_names_of_items():
    people = [f"person {number}" for number in range(12)]
    of_users = pd.DataFrame({"item": [7, 8] * 6, "name": people})
    assert find_name_column(of_users) is None
    of_kinds = pd.DataFrame({"item": range(12), "title": ["film", "series"] * 6})
    assert find_name_column(of_kinds) is None


def test_interactions_may_be_read_with_names_whose_column_is_not_called_unused(caplog):
    found = read_interactions(LOG.assign(price=1), name_col="Artist_Name")
    assert found.item_names.tolist() == ["Blur", "Pulp", "Suede"]
    assert len(caplog.messages) == 1 and "unused columns: 'price' (" in caplog.text
    with pytest.raises(DataError, match=r"there is no name column 'x'; .* as name_col"):
        read_interactions(LOG, name_col="x")


def test_a_column_of_names_has_no_other_role_unless_it_is_named_for_one():
    goods = pd.DataFrame({"user": [1, 2], "article": ["Tea", "Milk"], "sku": [8, 9]})
    found = read_interactions(goods, name_col="article")
    assert found.item_ids.tolist() == [8, 9] and found.item_names.tolist() == ["Tea", "Milk"]
    films = goods.rename(columns={"article": "type"})
    assert read_interactions(films).log.kinds == ("Milk", "Tea")
    found = read_interactions(films, name_col="type")
    assert found.log is None and found.item_names.tolist() == ["Tea", "Milk"]
    found = read_interactions(films, name_col="type", event_col="type")
    assert found.log.kinds == ("Milk", "Tea") and found.item_names.tolist() == ["Tea", "Milk"]
