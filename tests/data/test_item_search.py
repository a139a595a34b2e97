from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.data.item_search import ItemSearch

NAMES = ["Café au lait", "Iced coffee", "COFFEE", "Coffee beans", "Decaffeinated", "Tea", "Tea"]
IDS = ["p-1", "p-2", "p-3", "p-4", "p-5", "p-6", "Tea"]
WATCHERS = np.array([1, 9, 2, 5, 4, 3, 8])


@pytest.fixture(scope="module")
def search():
    return ItemSearch(NAMES, IDS, WATCHERS)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("", [1, 6, 3, 4, 5, 2, 0]),  # most watchers first
        ("coffee", [2, 3, 1]),  # the very name, then beginnings, then words
        ("caf", [0, 4]),  # accents and case do not matter
        ("CAFÉ", [0]),
        ("beans coffee", [3]),  # all words, in any order
        ("p-5", [4]),  # ids as well
        ("tea", [6, 5]),
        ("  ", [1, 6, 3, 4, 5, 2, 0]),
        ("cocoa", []),
        ("lait\tp-1", [0]),
        ("tea\niced", []),
    ],
)
def test_what_is_found_and_in_what_order(search, query, columns):
    assert search.find(query, 10) == (columns, len(columns))


def test_no_more_than_asked_for_but_all_are_counted(search):
    assert search.find("coffee", 1) == ([2], 3)
    assert search.find("", 2) == ([1, 6], 7)


def folded(text):
    apart = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(s for s in apart if not unicodedata.combining(s)).split())


@given(
    st.lists(st.text(alphabet="abé \tÅ", max_size=5), min_size=1, max_size=8),
    st.text(alphabet="abeå ", max_size=3),
)
def test_it_finds_the_names_that_hold_every_word(names, query):
    ids = [f"#{place}" for place in range(len(names))]
    columns, n_found = ItemSearch(names, ids, np.zeros(len(names))).find(query, 100)
    expected = {
        place
        for place, name in enumerate(names)
        if all(word in folded(name) for word in folded(query).split())
    }
    assert set(columns) == expected and n_found == len(expected) == len(columns)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("coffee", [2, 3]),  # what has all words, as `find` orders it
        ("cofee", [2, 1]),  # else what is spelled alike
        ("my favourite beans", [3]),  # else what has the longest word
        ("cocoa", []),
        (" ", []),
    ],
)
def test_what_may_be_meant(search, query, columns):
    assert search.near(query, 2) == columns
