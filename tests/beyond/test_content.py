"""Weights of features, and the items that are alike by them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond import content
from cfnade.beyond.content import nearest, weighted_rows
from cfnade.data.item_features import Entries, ItemFeatures


def random_features(rng, n_items=40) -> ItemFeatures:
    """Three genres and ten tags; the last item has neither."""
    entries = {
        "genre": [(item, f"g{rng.integers(3)}") for item in range(n_items - 1)],
        "tag": [(item, f"t{tag}") for item in range(n_items - 1) for tag in rng.choice(10, 3)],
    }
    columns = {
        name: Entries([item for item, _ in some], [value for _, value in some], np.ones(len(some)))
        for name, some in entries.items()
    }
    return ItemFeatures.from_entries(n_items, columns, dict.fromkeys(columns, "values"))


def weighed_one_by_one(features: ItemFeatures, columns: dict[str, float]) -> np.ndarray:
    """The same as `weighted_rows`, feature by feature."""
    X = features.matrix.toarray().astype(float)
    n_items = len(X)
    rows = np.zeros_like(X)
    for item in range(n_items):
        for place, name in enumerate(features.columns):
            own = [f for f in np.flatnonzero(X[item]) if features.column[f] == place]
            rarity = {f: np.log(n_items / np.count_nonzero(X[:, f])) for f in own}
            own = [f for f in own if 1 < np.count_nonzero(X[:, f]) < n_items]
            for f in own:
                rows[item, f] = X[item, f] * rarity[f] * columns.get(name, 1.0) / len(own) ** 0.5
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize("columns", [{}, {"tag": 0.3}])
def test_features_weigh_by_rarity_and_column(rng, columns):
    features = random_features(rng)
    found = weighted_rows(features, columns)
    np.testing.assert_allclose(found.toarray(), weighed_one_by_one(features, columns), atol=1e-6)
    assert found[[39]].nnz == 0


def test_a_column_without_weight_is_left_out(rng):
    features = random_features(rng)
    assert (features.column[weighted_rows(features, {"genre": 0.0}).indices] == 1).all()


def test_a_feature_of_one_item_or_of_all_says_nothing():
    columns = {"tag": Entries([0, 1, 2, 0, 1], ["all", "all", "all", "one", "two"], np.ones(5))}
    features = ItemFeatures.from_entries(3, columns, {"tag": "values"})
    assert weighted_rows(features, {}).nnz == 0


@pytest.mark.parametrize("n", [3, 100])
def test_the_nearest_items_have_the_largest_cosines(rng, n):
    rows = weighted_rows(random_features(rng), {})
    is_known = np.arange(40) % 4 != 0
    asked = np.array([0, 5, 17, 39])
    found = nearest(rows, asked, is_known, n).toarray()
    cosines = (rows @ rows.T).toarray()
    for row, item in enumerate(asked):
        allowed = np.where(is_known & (np.arange(40) != item), cosines[item], 0.0)
        expected = np.sort(allowed)[::-1][:n]
        np.testing.assert_allclose(np.sort(found[row])[::-1][:n], expected, atol=1e-6)
        assert found[row, item] == 0 and (found[row, ~is_known] == 0).all()
        is_found = found[row] > 0
        np.testing.assert_allclose(found[row, is_found], cosines[item, is_found], atol=1e-6)


def test_nobody_asked_nothing_found():
    rows = csr_array(np.eye(3, dtype=np.float32))
    assert nearest(rows, np.empty(0, np.int64), np.ones(3, bool), 5).shape == (0, 3)


def test_the_most_common_features_are_left_out_if_they_cost_too_much(rng, monkeypatch):
    rows = weighted_rows(random_features(rng), {})
    everything = nearest(rows, np.arange(40), np.ones(40, bool), 40)
    monkeypatch.setattr(content, "_MOST_PRODUCTS", 500)
    some = nearest(rows, np.arange(40), np.ones(40, bool), 40)
    assert 0 < some.nnz < everything.nnz
    assert (some.toarray() <= everything.toarray() + 1e-6).all()
