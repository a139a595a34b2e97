"""A table read once gives what the model's own methods give."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade import DataError, ImplicitCFNADE
from cfnade.answer.user_table import UserTable
from cfnade.data.interactions import Interactions
from tests.planted import window_shopping


@pytest.fixture(scope="module")
def model() -> ImplicitCFNADE:
    shop = window_shopping().weighed({"buy": 3.0, "cart": 2.0, "view": 1.0, "skip": -1.0}, "buy")
    return ImplicitCFNADE(n_hidden=8, max_epochs=2, random_state=0).fit(shop)


def test_histories_weigh_events_and_owned_pairs_have_the_one_to_predict(model):
    shop = window_shopping()
    table = UserTable.of(model.answers_, shop)
    weights = {"buy": 3.0, "cart": 2.0, "view": 1.0, "skip": -1.0}
    sums = sum(w * shop.log.of_kind(k).counts(shop.counts.shape) for k, w in weights.items())
    histories = table.histories.toarray()
    np.testing.assert_allclose(np.maximum(histories, 0), np.maximum(sums.toarray(), 0))
    np.testing.assert_array_equal(histories < 0, sums.toarray() < 0)
    bought = shop.log.of_kind("buy").counts(shop.counts.shape).toarray() > 0
    if table.owned is not None:
        np.testing.assert_array_equal(table.owned.toarray() > 0, bought)
    assert table.user_ids is table.data.user_ids
    np.testing.assert_array_equal(model.histories(shop).toarray(), histories)


def test_a_table_without_kinds_is_reported_once(model, caplog):
    plain = Interactions.from_matrix(window_shopping().counts)
    table = UserTable.of(model.answers_, plain)
    assert table.histories.nnz == plain.n_pairs
    assert table.owned is None or table.owned.nnz == plain.n_pairs
    assert caplog.text.count("have no kinds of events") == 1


def test_unknown_items_raise_or_are_reported(model, caplog):
    shop = window_shopping()
    ids = shop.item_ids.astype(object).copy()
    ids[0] = "new"
    strange = Interactions.from_log(shop.log, shop.user_ids, ids)
    with pytest.raises(DataError, match="'new' is not in this model"):
        UserTable.of(model.answers_, strange).histories  # noqa: B018
    assert UserTable.of(model.answers_, strange, "warn").histories.shape == shop.counts.shape
    assert "'new' is not in this model" in caplog.text
