"""Items are found by id and by name; what is not found is suggested."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade import DataError
from cfnade.data.catalogue import Catalogue
from cfnade.data.item_lookup import ItemLookup

IDS = np.array([154, 65, 7, 8, 9, 1984, 12])
NAMES = ["Radiohead", "Sigur Rós", "Tea", "TEA", "1984", "Orwell", "Guns N' Roses"]
WATCHERS = np.array([9, 5, 1, 4, 3, 2, 6])


@pytest.fixture
def lookup():
    return ItemLookup(Catalogue(IDS, np.array(NAMES, dtype=object)), WATCHERS)


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("154", 154),
        ("Radiohead", 154),
        ("radiohead", 154),
        ("sigur ros", 65),
        ("  Guns  N' Roses ", 12),
        ("1984", 1984),  # an id, although it is the name of another
    ],
)
def test_an_item_is_found_by_id_or_by_name(lookup, text, item):
    assert lookup.item(text) == item
    assert text in lookup


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("radiohed", "did you mean Radiohead (154)?"),
        ("sigur", "did you mean Sigur Rós (65)?"),
        ("Guns and Roses", "did you mean Guns N' Roses (12)?"),
        ("the best of radiohead", "did you mean Radiohead (154)?"),
        ("155", "did you mean 154?"),
        ("Portishead Trio", "leave out unknown items, or train the model again"),
        ("", "leave out unknown items, or train the model again"),
    ],
)
def test_an_unknown_item_is_refused_with_a_suggestion(lookup, text, hint):
    if text == "155":
        lookup = ItemLookup(Catalogue(np.array([154, 65])))
    n_items = 2 if text == "155" else 7
    with pytest.raises(DataError) as error:
        lookup.item(text)
    assert str(error.value) == f"item {text!r} is not in this model ({n_items} items); {hint}"
    assert text not in lookup


def test_at_most_three_are_suggested():
    lookup = ItemLookup(Catalogue(np.array(["show-11", "show-12", "show-13", "show-14"])))
    with pytest.raises(DataError, match=r"did you mean show-11, show-12 or show-13\?"):
        lookup.item("show-1")


def test_a_name_of_several_items_lists_them_the_most_popular_first(lookup):
    with pytest.raises(DataError) as error:
        lookup.item("tea")
    assert str(error.value) == "2 items are called 'tea': TEA (8), Tea (7); write the id of one"
    many = ItemLookup(Catalogue(np.arange(9), np.array(["Live"] * 9, dtype=object)))
    with pytest.raises(DataError, match=r"Live \(4\) and 4 more; write the id of one"):
        many.item("live")


def test_what_to_write_for_an_item_finds_that_item(lookup):
    written = [lookup.written(item) for item in IDS.tolist()]
    assert written == ["Radiohead", "Sigur Rós", "7", "8", "9", "Orwell", "Guns N' Roses"]
    assert [lookup.item(text) for text in written] == IDS.tolist()
