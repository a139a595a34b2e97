"""Options that several commands share, and how their values are parsed."""

from __future__ import annotations

import pytest

from cfnade.cli.main import run
from cfnade.cli.options import parse_history, parse_settings, parse_weights
from cfnade.data.catalogue import Catalogue
from cfnade.data.interactions import as_objects
from cfnade.data.item_lookup import ItemLookup
from tests.cli.helpers import check_refused, last_error


@pytest.mark.parametrize("name", ["readout__direct", "recipe__item_mean"])
def test_a_switch_is_true_or_false_and_no_other_text(events, capsys, name):
    assert run(["evaluate", str(events), "--set", f"{name}=no"]) == 2
    inner = name.split("__")[1]
    assert f"{inner} must be true or false, got 'no'" in last_error(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "DATA", "--out", "OUT", "--set", "alpha"], "--set takes NAME=VALUE"),
        (["recommend", "MODEL", "i0=many"], "ITEM=COUNT or ITEM=EVENT:COUNT@WHEN, got 'i0=many'"),
        (["recommend", "MODEL", "i0", "--dislike", "i2=x"], "ITEM or ITEM=WEIGHT, got 'i2=x'"),
        (["recommend", "MODEL", "--data", "DATA", "--user", "77"], "user '77' is not in the table"),
    ],
)
def test_values_of_another_form_end_in_one_line_and_exit_code_2(
    arguments, message, model, events, tmp_path, capsys
):
    places = {"MODEL": model, "DATA": events, "OUT": tmp_path / "out"}
    check_refused(capsys, arguments, message, **places)


def test_settings_are_numbers_switches_nothing_or_text():
    pairs = ["alpha=3", "weight-decay = 0.5", "direct=False", "patience=None", "activation=tanh"]
    assert parse_settings(pairs) == {
        "alpha": 3, "weight_decay": 0.5, "direct": False, "patience": None, "activation": "tanh",
    }  # fmt: skip


def lookup(*ids):
    return ItemLookup(Catalogue(as_objects(ids)))


def test_an_id_may_hold_an_equals_sign_and_repeated_items_add_up():
    entries = ["a=2", "a=2=5", "7", "7=0.5"]
    assert parse_weights(entries, lookup("a=2", 7), 1.0, "") == {"a=2": 6.0, 7: 1.5}


def test_a_history_has_items_counts_and_times():
    items = lookup("a", 7, "b=1@x", "c@home")
    entries = ["a", "a=2@2024-05-31", "7=3", "b=1@x", "c@home=4@9"]
    assert parse_history(entries, items) == {
        "a": [(1.0, None), (2.0, "2024-05-31")],
        7: [(3.0, None)],
        "b=1@x": [(1.0, None)],
        "c@home": [(4.0, "9")],
    }
