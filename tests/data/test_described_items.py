from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfnade.data.described_items import DescribedItems
from cfnade.data.item_features import Entries, ItemFeatures


def table(ids, column, values, names=None) -> DescribedItems:
    entries = {column: Entries(range(len(ids)), values, np.ones(len(ids)))}
    features = ItemFeatures.from_entries(len(ids), entries, {column: "values"})
    return DescribedItems(np.array(ids), features, names or {})


def test_two_tables_are_joined_by_item_and_the_names_of_the_first_stay():
    kinds = table(["a", "b"], "kind", ["film", "series"], {"a": "Alien"})
    tags = table(["b", "c", "a"], "tag", ["war", "sea", "sea"], {"a": "Other", "c": "Cube"})
    both = kinds.followed_by(tags)
    assert both.ids.tolist() == ["a", "b", "c"]
    assert [both.features.of(place) for place in range(3)] == [
        {"kind": ["film"], "tag": ["sea"]},
        {"kind": ["series"], "tag": ["war"]},
        {"tag": ["sea"]},
    ]
    assert both.names == {"a": "Alien", "c": "Cube"}
    assert both.with_names({}).names == {}


def test_ids_of_different_types_are_compared_as_text():
    both = table([1, 2], "kind", ["film", "film"]).followed_by(
        table(["2", "3"], "tag", ["sea", "sea"])
    )
    assert len(both.ids) == 3
    assert both.features.of(1) == {"kind": ["film"], "tag": ["sea"]}


def test_addresses_of_two_tables_are_joined_and_those_of_the_first_stay():
    first = replace(
        table(["a"], "kind", ["film"]), addresses={"link": {"a": "https://x.example/a"}}
    )
    more = {"link": {"a": "https://y.example/a", "b": "https://y.example/b"}}
    both = first.followed_by(replace(table(["a", "b"], "tag", ["x", "x"]), addresses=more))
    assert both.addresses["link"] == {"a": "https://x.example/a", "b": "https://y.example/b"}
