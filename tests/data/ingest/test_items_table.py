"""Tables of what is known about items."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cfnade import DataError, read_items

WIDE = pd.DataFrame(
    {
        "item": ["a", "b", "c", "d"],
        "title": ["Toy Story", "Toy Soldiers", "Love Story", "Up"],
        "genre": ["Comedy|Family", "War", "Drama|War", None],
        "kind": ["film", "film", "series", "film"],
    }
)
LONG = pd.DataFrame({"item": ["a", "a", "b", "c"], "tag": ["sea", "war", "war", "sea"]})


def known(table) -> dict[str, dict[str, list[str]]]:
    """What a table says, by item."""
    return {
        item: {name: sorted(values) for name, values in table.features.of(place).items()}
        for place, item in enumerate(table.ids.tolist())
    }


def test_a_wide_table_has_a_row_for_each_item():
    table = read_items(WIDE)
    assert known(table)["c"] == {"title": ["story"], "genre": ["Drama", "War"], "kind": ["series"]}
    assert known(table)["d"] == {"kind": ["film"]}  # an empty genre, a title with a word of its own
    assert table.names == {"a": "Toy Story", "b": "Toy Soldiers", "c": "Love Story", "d": "Up"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_reads_like_a_frame(suffix, tmp_path):
    file = tmp_path / f"items.{suffix}"
    if suffix == "csv":
        WIDE.to_csv(file, index=False)
    else:
        WIDE.to_parquet(file, index=False)
    assert known(read_items(file)) == known(read_items(WIDE))


def test_a_column_of_lists_needs_no_separator(tmp_path):
    lists = [["a", "b"], [], ["b", None, "a"], None]
    frame = pd.DataFrame({"item": [1, 2, 3, 4], "genres": lists})
    frame.to_parquet(tmp_path / "items.parquet", index=False)
    both = {"genres": ["a", "b"]}
    for source in (frame, tmp_path / "items.parquet"):
        assert known(read_items(source)) == {1: both, 2: {}, 3: both, 4: {}}


def test_a_long_table_has_a_row_for_each_value():
    assert known(read_items(LONG)) == {
        "a": {"tag": ["sea", "war"]},
        "b": {"tag": ["war"]},
        "c": {"tag": ["sea"]},
    }


def test_a_long_table_may_have_counts_which_weigh_by_their_logarithm():
    table = read_items(LONG.assign(count=[1, 10, 2, 0]))
    assert table.features.values.tolist() == ["sea", "war"]
    np.testing.assert_allclose(table.features.matrix[[0]].toarray(), [[1.0, 1 + np.log(10)]])
    assert known(table)["c"] == {}


def test_a_long_table_may_name_its_values():
    table = read_items(LONG.assign(tag=[1, 2, 2, 1], name=["sea", "war", "war", "sea"]))
    assert known(table)["a"] == {"tag": ["sea", "war"]}


def test_weights_must_be_finite():
    with pytest.raises(DataError, match="'weight' must be finite"):
        read_items(LONG.assign(weight=[0.5, np.inf, 1.0, 1.0]))


def test_several_tables_are_one():
    both = read_items([WIDE, LONG])
    assert known(both)["a"]["tag"] == ["sea", "war"]
    assert known(both)["a"]["genre"] == ["Comedy", "Family"]
    more = pd.DataFrame({"item": ["z", "y"], "tag": ["sea", "sea"]})
    assert known(read_items([WIDE, more]))["z"] == {"tag": ["sea"]}


def test_equal_rows_count_once():
    assert known(read_items(pd.concat([WIDE, WIDE]))) == known(read_items(WIDE))


def test_doubled_items_get_one_clear_line():
    doubled = pd.concat([WIDE, WIDE.iloc[[1]].assign(kind="series")])
    with pytest.raises(DataError) as raised:
        read_items(doubled)
    assert str(raised.value) == (
        "1 item has several rows in the items table: those of 'b' differ in 'kind'; give one row "
        "for each item, or one table for each column of which an item has several values"
    )


def test_doubled_items_with_texts_are_no_long_table():
    text = "a long text about the sea and all the ships that sail on it"
    frame = pd.DataFrame({"item": [1, 1, 2], "text": [text, f"{text} today", text]})
    with pytest.raises(DataError, match="1 item has several rows"):
        read_items(frame)


def test_doubled_items_with_lists_are_no_long_table():
    genres = ["Drama|Indie", "Drama", "Comedy|Drama", "Indie"]
    frame = pd.DataFrame({"item": ["a", "b", "c", "a"], "genre": genres})
    with pytest.raises(DataError, match=r"1 item has several rows .* 'a' differ in 'genre'"):
        read_items(frame)


@pytest.mark.parametrize("name", ["price", "released"])
def test_doubled_items_with_two_numbers_or_dates_are_no_long_table(name):
    values = [1.5, 2.0, 3.0] if name == "price" else pd.to_datetime(["2024", "2025", "2026"])
    frame = pd.DataFrame({"item": ["a", "b", "a"], name: values})
    with pytest.raises(DataError, match=rf"1 item has several rows .* 'a' differ in '{name}'"):
        read_items(frame)


def test_how_a_table_of_two_columns_with_doubled_items_was_read_is_reported(caplog):
    caplog.set_level(logging.INFO)
    read_items(LONG)
    line = "items table: read as one row per item and tag: 3 items, 4 rows (1 with several), "
    assert caplog.record_tuples == [
        ("cfnade.data.ingest.items_table", logging.WARNING, f"{line}2 values")
    ]
    caplog.clear()
    read_items(pd.concat([LONG, LONG.assign(tag="all")]))
    (record,) = caplog.records
    assert record.levelno == logging.INFO and "3 items, 7 rows (3 with several)" in caplog.text


def test_a_row_without_an_item_is_left_out():
    frame = pd.DataFrame({"item": ["a", None, "b"], "kind": ["film", "film", "film"]})
    assert sorted(known(read_items(frame))) == ["a", "b"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (WIDE[["item"]], "no column beside 'item'"),
        (WIDE[["kind", "genre"]], "item"),
        (WIDE.iloc[:0], "no rows with an item"),
        (pd.DataFrame({"item": [1, 2], "price": [0.5, 0.7]}), "price: numbers that are not whole"),
        (pd.DataFrame({"item": [1, 1, 2], "tag": ["", None, " "]}), "can be used: tag: empty"),
        ([], "list of items tables is empty"),
    ],
)
def test_a_table_without_use_ends_in_one_line(frame, message):
    with pytest.raises(DataError, match=message) as raised:
        read_items(frame)
    assert "\n" not in str(raised.value)


def test_a_table_without_a_column_of_items_says_what_to_do():
    frame = pd.DataFrame({"thing": ["a", "b"], "genre": ["War", "War"]})
    with pytest.raises(DataError, match="its columns are 'thing', 'genre'; rename the one with"):
        read_items(frame)
    assert read_items(frame, item_col="thing").ids.tolist() == ["a", "b"]


def test_rows_without_an_item_are_left_out_and_reported(caplog):
    with caplog.at_level(logging.WARNING):
        table = read_items(pd.DataFrame({"item": ["a", None, "b"], "kind": ["x", "x", "x"]}))
    assert (table.ids.tolist(), caplog.messages) == (
        ["a", "b"],
        ["left out: 1 row of the items table without an item"],
    )


def test_columns_that_are_not_used_are_reported(caplog):
    with caplog.at_level(logging.WARNING):
        read_items(WIDE.assign(price=[0.5, 0.7, 0.9, 1.1]))
    assert "unused columns of the items table: price: numbers that are not whole" in caplog.text


def test_a_later_table_of_few_items_is_read_like_the_first():
    first = read_items(WIDE)
    more = pd.DataFrame({"item": ["e"], "genre": ["War|Western"], "kind": ["short"]})
    assert known(read_items(more, known=first.features))["e"] == {
        "genre": ["War", "Western"],
        "kind": ["short"],
    }


def test_the_item_column_can_be_named_and_a_table_is_itself():
    table = read_items(WIDE.rename(columns={"item": "thing"}), item_col="thing")
    assert known(table) == known(read_items(WIDE))
    assert read_items(table) is table


def test_ids_of_different_types_in_two_tables_are_compared_as_text():
    numbers = pd.DataFrame({"item": [1, 2], "kind": ["film", "film"]})
    texts = pd.DataFrame({"item": ["2", "3"], "tag": ["sea", "sea"]})
    both = read_items([numbers, texts])
    assert len(both.ids) == 3


def test_safe_addresses_are_no_features_and_others_are_left_out(caplog):
    caplog.set_level(logging.INFO)
    frame = pd.DataFrame(
        {
            "item": [1, 2, 3],
            "genre": ["war", "sea", "sea"],
            "url": ["https://a.example/1", "https://a.example/2", "javascript:alert(1)"],
            "poster": ["https://b.example/1.png", None, ""],
        }
    )
    table = read_items(frame)
    assert table.features.columns == ("genre",)
    assert table.addresses == {
        "link": {1: "https://a.example/1", 2: "https://a.example/2"},
        "image": {1: "https://b.example/1.png"},
    }
    assert "url: 2 links" in caplog.text and "poster: 1 image" in caplog.text
    alone = read_items(frame[["item", "url"]])
    assert alone.features.n_features == 0 and alone.addresses["link"] == table.addresses["link"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([[0.25, 1.5], [0.5, 2.0]] * 5, "Array(Float32, 2)"), ([[0.25], [0.5, 2.0]] * 5, "List")],
)
def test_lists_of_fractions_such_as_embeddings_are_not_used_and_reported(values, kind, caplog):
    table = pl.DataFrame({"item": range(10), "genre": ["a", "b"] * 5, "vector": values})
    if kind != "List":
        table = table.with_columns(pl.col("vector").cast(pl.Array(pl.Float32, 2)))
    for frame in (table, table.to_pandas()):
        caplog.clear()
        assert read_items(frame).features.columns == ("genre",)
        assert "vector: lists of numbers that are not whole" in caplog.text


def test_structures_of_polars_are_values():
    table = pl.DataFrame({"item": range(4), "size": [{"width": n % 2} for n in range(4)]})
    assert read_items(table).features.columns == ("size",)
