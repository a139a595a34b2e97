"""An items table in a comparison: planted genres help CF-NADE where items have few watchers."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from cfnade.compare.comparison import compare
from cfnade.compare.described import with_items
from cfnade.compare.kept import KeptModels
from cfnade.compare.registry import cfnade, contender
from cfnade.compare.sweep import sweep
from cfnade.data.interactions import Interactions
from cfnade.errors import DataError
from tests.networks import SMALL

N_ITEMS = 120
CATALOGUE = pd.DataFrame(
    {
        "item": [f"i{k}" for k in range(N_ITEMS)] + ["nobody"],
        "genre": [f"g{k % 6}" for k in range(N_ITEMS)] + ["g0"],
    }
)


@pytest.fixture(scope="module")
def data() -> Interactions:
    """Sixty people of six tastes, with few events for each item."""
    rng = np.random.default_rng(0)
    own = np.arange(60)[:, None] % 6 == np.arange(N_ITEMS)[None, :] % 6
    watched = rng.random((60, N_ITEMS)) < np.where(own, 0.3, 0.01)
    ids = np.array([f"i{k}" for k in range(N_ITEMS)], dtype=object)
    return Interactions(csr_array(watched.astype(float)), np.arange(60), ids)


def models() -> dict:
    return {"popularity": contender("popularity"), "cfnade": cfnade(grid={}, start=SMALL)}


def test_an_items_table_reaches_cfnade_and_no_other_model(data):
    plain = {each.model: each for each in compare(data, models()).results}
    told = {each.model: each for each in compare(data, models(), items=CATALOGUE).results}
    assert told["popularity"].metrics == plain["popularity"].metrics
    assert told["cfnade"].metrics["mpr"] < plain["cfnade"].metrics["mpr"] - 2
    assert told["cfnade"].validation_mpr < plain["cfnade"].validation_mpr - 2
    assert set(told["cfnade"].settings["feature_strengths"]) >= {"l2", "half", "level"}
    assert "feature_strengths" not in plain["cfnade"].settings


def test_items_that_only_the_table_has_are_not_ranked(data):
    table = with_items(models(), data, CATALOGUE)["cfnade"].fixed["items"]
    assert table.ids.tolist() == data.item_ids.tolist()
    assert table.features.n_items == N_ITEMS


def test_a_sweep_takes_the_table_too(data):
    found = sweep(data, [3.0], models={"cfnade": cfnade(grid={"alpha": (3.0,)}, start=SMALL)})
    named = {"cfnade": cfnade(grid={"alpha": (3.0,)}, start=SMALL)}
    told = sweep(data, [3.0], models=named, items=CATALOGUE)
    assert told.points[0].mpr < found.points[0].mpr - 2


def test_results_without_the_table_or_with_another_are_not_taken_for_these(data, tmp_path):
    other = CATALOGUE.assign(genre=CATALOGUE["genre"].to_numpy()[::-1])
    kept = KeptModels(tmp_path, data, None, {})
    tables = (None, CATALOGUE, other)
    described = [with_items(models(), data, table)["cfnade"] for table in tables]
    assert len({kept._file_of("cfnade", each) for each in described}) == 3
    again = with_items(models(), data, CATALOGUE)["cfnade"]
    assert kept._file_of("cfnade", again) == kept._file_of("cfnade", described[1])


def test_what_is_missing_in_the_table_is_said_once(data, caplog):
    with caplog.at_level(logging.WARNING):
        compare(data, models(), items=CATALOGUE[:100])
    assert [r.getMessage() for r in caplog.records] == ["nothing is known about 20 items"]


def test_a_table_of_other_items_is_refused_and_one_of_names_changes_nothing(data):
    with pytest.raises(DataError, match="has none of the items"):
        compare(data, models(), items=CATALOGUE.assign(item="x" + CATALOGUE["item"]))
    names = pd.DataFrame({"item": data.item_ids, "title": [f"A {k}" for k in range(N_ITEMS)]})
    given = models()
    assert with_items(given, data, None) is given
    assert "items" not in with_items(given, data, names[["item", "title"]])["popularity"].fixed
