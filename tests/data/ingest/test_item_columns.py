"""What a column of an items table is taken for."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.data.ingest.item_columns import (
    FoundColumn,
    address_kind,
    as_value,
    is_name,
    read_column,
    read_values,
    words_of,
)
from cfnade.data.item_features import Entries

TWENTY = range(20)


def column(cells, name="kind", kind="VARCHAR", **options):
    """A column with one cell for each of the items 0, 1, 2, ..."""
    return read_column(name, kind, range(len(cells)), list(cells), **options)


def by_item(found: FoundColumn | Entries) -> dict[int, set[str]]:
    """Values of each item."""
    entries = found.entries if isinstance(found, FoundColumn) else found
    values: dict[int, set[str]] = {}
    for item, value in zip(entries.items, entries.values, strict=True):
        values.setdefault(int(item), set()).add(value)
    return values


def test_values_that_items_share_are_categories():
    found = column(["film", "series", "film", " film ", "series"])
    assert by_item(found) == {
        0: {"film"},
        1: {"series"},
        2: {"film"},
        3: {"film"},
        4: {"series"},
    }
    assert (found.what, found.form) == ("2 categories", "values")


def test_an_item_without_a_value_has_no_entry():
    found = column(["film", "", "film", "NaN", "None", "film"])
    assert sorted(by_item(found)) == [0, 2, 5]


@pytest.mark.parametrize("separator", ["|", ";", ", "])
def test_a_cell_may_hold_a_list(separator):
    cells = [separator.join(pair) for pair in (["Drama", "Crime"], ["Drama", "War"], ["War"])] * 4
    found = column(cells, name="genres")
    assert by_item(found)[0] == {"Drama", "Crime"} and by_item(found)[2] == {"War"}
    assert found.what == "list of 3 categories"


def test_a_list_may_be_written_as_python_and_json_do():
    found = column(["['a b', 'c']", '["c"]', "[]", "['a b']"] * 5, name="tags")
    assert by_item(found)[0] == {"a b", "c"} and by_item(found)[1] == {"c"}
    assert 2 not in by_item(found)


def test_a_column_named_as_a_category_is_one_however_few_share_its_values():
    assert by_item(column(["Drama|War", "Crime"], name="Genres")) == {
        0: {"Drama", "War"},
        1: {"Crime"},
    }
    assert by_item(column(["film", "series"], name="category"))[1] == {"series"}
    assert column(["film", "series"], name="shape").entries is None


def test_blanks_separate_the_values_of_a_column_named_as_a_list():
    cells = [f"{a} {b}" for a in ("Action", "Comedy", "Drama") for b in ("War", "Crime", "Sport")]
    found = column(cells, name="genres")
    assert by_item(found)[0] == {"Action", "War"}


def test_long_cells_become_words_and_rare_words_are_left_out():
    cells = [f"a story of the sea and of ship number{k}" for k in TWENTY]
    found = column(cells, name="description")
    assert by_item(found)[0] == {"story", "of", "the", "sea", "and", "ship"}
    weight = dict(zip(found.entries.values, found.entries.weights, strict=True))
    assert weight["sea"] == 1.0 and weight["of"] == pytest.approx(1 + np.log(2))
    assert found.form == "words"


def test_names_become_words():
    found = column(["Toy Story", "Toy Soldiers", "Love Story"], name="title")
    assert by_item(found) == {0: {"toy", "story"}, 1: {"toy"}, 2: {"story"}}
    assert is_name("Title") and not is_name("genre")


@pytest.mark.parametrize(
    ("cells", "kind", "what"),
    [
        (["", " ", "nan"], "VARCHAR", "empty"),
        (["2020-01-01"] * 3, "DATE", "dates"),
        (["0.5", "1.25", "0.5"], "DOUBLE", "numbers that are not whole"),
        ([str(k) for k in TWENTY], "BIGINT", "a number of its own for most items"),
        ([f"x{k}" for k in TWENTY], "VARCHAR", "a value of its own for most items"),
        ([f"w{k} v{k}" for k in TWENTY], "VARCHAR", "text in which no word occurs twice"),
    ],
)
def test_what_says_nothing_about_items_is_not_used_and_says_why(cells, kind, what):
    found = column(cells, kind=kind)
    assert found.entries is None and found.what == what


def test_whole_numbers_that_items_share_are_categories_without_a_point():
    found = column(["1994.0", "1995.0", "1994.0", "1995.0"], kind="DOUBLE")
    assert by_item(found)[0] == {"1994"}


def test_a_column_that_was_read_before_is_read_alike():
    """Few rows would not show what the column holds."""
    assert by_item(column(["Drama|War"], form="list |")) == {0: {"Drama", "War"}}
    assert by_item(column(["Drama|War"], form="values")) == {0: {"Drama|War"}}
    assert by_item(column(["Drama war"], form="words")) == {0: {"drama", "war"}}


def test_values_of_a_long_table_need_a_text_and_a_weight():
    found = read_values(np.arange(4), ["a", "", "b", "c "], np.array([1.0, 1.0, 0.0, 0.5]))
    assert by_item(found) == {0: {"a"}, 3: {"c"}}
    assert found.weights.tolist() == [1.0, 0.5]


def test_words_have_no_case_and_pairs_of_signs_stand_for_unspaced_ones():
    found = words_of("The Sea, the don't-care A 9 42")
    assert found == ["the", "sea", "the", "don't", "care", "42"]
    assert words_of("東京物語") == ["東京", "京物", "物語"]


def test_a_value_has_a_bounded_length():
    assert as_value("x" * 500) == "x" * 200
    assert as_value("-3.00") == "-3" and as_value("3.05") == "3.05"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("url", "link"),
        ("Product URL", "link"),
        ("link", "link"),
        ("page", "link"),
        ("image", "image"),
        ("poster_url", "image"),
        ("bookCover", "image"),
        ("imageLink", "image"),
        ("genre", None),
        ("name", None),
    ],
)
def test_columns_of_addresses_are_known_by_their_names(column, kind):
    assert address_kind(column, ["https://a.example/1", "", "https://a.example/2"]) == kind


def test_a_column_of_anything_else_holds_no_addresses():
    assert address_kind("image", ["blurred", "sharp", "https://a.example/2"]) is None
    assert address_kind("url", ["", ""]) is None
    assert address_kind("url", ["javascript:alert(1)", "https://a.example/2"]) == "link"
