"""Options become dials, and a wrong one is named with the form that is expected."""

from __future__ import annotations

import pytest

from cfnade import ConfigError, Dials
from cfnade.cli.dial_options import DialOptions
from cfnade.data.catalogue import Catalogue
from cfnade.data.interactions import as_objects
from cfnade.data.item_lookup import ItemLookup

ITEMS = ItemLookup(Catalogue(as_objects([7, "a=b", "c"])))


def test_options_become_dials():
    found = DialOptions(
        popularity=-0.5,
        diversity=0.3,
        pin=["c", "7=1", "a=b"],
        boost=["7=2", "a=b=-1.5"],
        boost_category=["genre=Drama=0.5", "genre=Sci=Fi=1", "brand=X=2"],
        at_most=["genre=2"],
    ).read(ITEMS)
    assert found == Dials(
        popularity=-0.5,
        diversity=0.3,
        pin={7: 1, "c": 2, "a=b": 3},
        boost={7: 2.0, "a=b": -1.5},
        boost_category={"genre": {"Drama": 0.5, "Sci=Fi": 1.0}, "brand": {"X": 2.0}},
        at_most={"genre": 2},
    )
    assert DialOptions().read(ITEMS) == Dials()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pin": ["c=first"]}, "--pin takes ITEM or ITEM=PLACE, got 'c=first'"),
        ({"pin": ["c", "c=3"]}, "--pin names an item twice; name each once"),
        ({"boost": ["c"]}, "--boost takes ITEM=NUMBER, got 'c'"),
        ({"boost": ["c=x"]}, "--boost takes ITEM=NUMBER, got 'c=x'"),
        ({"boost_category": ["a=1"]}, "--boost-category takes COLUMN=VALUE=NUMBER, got 'a=1'"),
        ({"boost_category": ["a=b=c"]}, "--boost-category takes COLUMN=VALUE=NUMBER, got 'a=b=c'"),
        ({"at_most": ["genre"]}, "--at-most takes NAME=VALUE, got 'genre'; for example --at-most"),
        ({"at_most": ["genre=two"]}, "--at-most takes COLUMN=NUMBER, got 'genre=two'"),
        ({"diversity": 1.5}, "diversity must be at least 0 and below 1, got 1.5"),
    ],
)
def test_a_wrong_option_is_named(wrong, message):
    with pytest.raises(ConfigError) as error:
        DialOptions(**wrong).read(ITEMS)
    assert str(error.value).startswith(message)
