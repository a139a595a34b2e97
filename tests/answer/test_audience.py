"""The users for an item are those that a plain sort of all scores finds."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from cfnade import ConfigError, DataError, hold_out
from cfnade import scorer as ranking
from cfnade.answer.audience import Audience, find_audiences, write_audiences
from tests.networks import random_counts, random_model

COUNTS = random_counts(60)


@pytest.fixture(scope="module", params=[0, 3], ids=["network alone", "with the direct path"])
def model(request):
    model = random_model(n_neighbours=request.param)
    return model.calibrate(*hold_out(random_counts(), share=0.3, rng=0))


@pytest.mark.parametrize("block_bytes", [ranking.BLOCK_BYTES, 4 * (18 + 2) * 7])
@pytest.mark.parametrize("include_owners", [False, True])
def test_users_are_those_with_the_highest_scores(model, monkeypatch, block_bytes, include_owners):
    monkeypatch.setattr(ranking, "BLOCK_BYTES", block_bytes)
    scores = model.scores(COUNTS).astype(np.float64)
    probabilities = np.array([model.probability(COUNTS[[user]]) for user in range(60)])
    if not include_owners:
        scores[COUNTS.nonzero()] = -np.inf
    asked = [4, 11]
    found = find_audiences(model.answers_, COUNTS, asked, 8, include_owners=include_owners)
    for column, (users, own, chances) in zip(asked, found, strict=True):
        expected = np.argsort(-scores[:, column], kind="stable")[:8]
        assert users.tolist() == expected.tolist()
        np.testing.assert_allclose(own, scores[expected, column], atol=1e-5)
        np.testing.assert_allclose(chances, probabilities[expected, column], rtol=1e-4)
        assert np.isnan(chances).any() == (include_owners and column in COUNTS[users].indices)


@pytest.mark.parametrize("include_owners", [False, True])
def test_users_who_dislike_the_item_are_never_among_them(model, include_owners):
    signed = COUNTS.copy()
    signed.data[::3] = -1.0
    scores = model.scores(signed)
    probabilities = np.array([model.probability(signed[[user]]) for user in range(60)])
    scores[(signed < 0 if include_owners else signed).nonzero()] = -np.inf
    (found,) = find_audiences(model.answers_, signed, [4], 60, include_owners=include_owners)
    expected = np.argsort(-scores[:, 4], kind="stable")[: np.isfinite(scores[:, 4]).sum()]
    assert found.users.tolist() == expected.tolist()
    np.testing.assert_allclose(found.scores, scores[expected, 4], atol=1e-5)
    np.testing.assert_allclose(found.probabilities, probabilities[expected, 4], rtol=1e-4)


def test_equal_scores_keep_the_order_of_the_users(monkeypatch):
    monkeypatch.setattr(ranking, "BLOCK_BYTES", 4 * (18 + 1) * 3)
    same = csr_array(np.tile(COUNTS[[0]].toarray(), (10, 1)))
    (found,) = find_audiences(random_model().answers_, same, [19], 4, include_owners=True)
    assert found.users.tolist() == [0, 1, 2, 3]
    assert np.isnan(found.probabilities).all()  # the model has no calibrator


def test_users_who_have_the_item_are_left_out_and_few_make_a_short_list(model):
    (column,) = model.catalogue_.columns(["i4"])
    found = model.recommend_users("i4", COUNTS, N=100)
    assert isinstance(found, Audience)
    owners = np.flatnonzero(COUNTS.toarray()[:, column])
    assert sorted(found.users) == sorted(set(range(60)) - set(owners.tolist()))
    everybody = model.recommend_users("i4", COUNTS, N=100, filter_already_liked_users=False)
    assert everybody.users.size == 60
    assert model.recommend_users("i4", COUNTS[:0]).users.size == 0


def test_a_table_gives_user_ids_and_several_items_a_list(model, tmp_path):
    row, column = COUNTS.nonzero()
    table = pd.DataFrame(
        {"user": [f"u{u}" for u in row], "item": [f"i{i}" for i in column], "count": COUNTS.data}
    )
    table.to_parquet(tmp_path / "plays.parquet")
    rows = model.recommend_users(["i4", "i7"], COUNTS, N=3)
    for source in (table, tmp_path / "plays.parquet"):
        found = model.recommend_users(["i4", "i7"], source, N=3)
        assert len(found) == 2
        for own, by_row in zip(found, rows, strict=True):
            assert own.users.tolist() == [f"u{user}" for user in by_row.users]
            np.testing.assert_allclose(own.scores, by_row.scores, atol=1e-5)


def test_what_cannot_be_asked_gets_one_line(model):
    with pytest.raises(DataError, match="item 'gone' is not in this model"):
        model.recommend_users("gone", COUNTS)
    with pytest.raises(ConfigError, match="number of users must be a whole number of at least 1"):
        model.recommend_users("i4", COUNTS, N=0)
    with pytest.raises(DataError, match="fitted on 20 items, got 5"):
        model.recommend_users("i4", COUNTS[:, :5])


def test_the_file_has_a_row_for_each_user_of_each_item(model, tmp_path):
    found = find_audiences(model.answers_, COUNTS, [4, 7], 3, include_owners=True)
    path = tmp_path / "new" / "users.parquet"
    users = np.array([f"u{k}" for k in range(60)], dtype=object)
    assert write_audiences(path, np.array([104, 107]), users, found) == 6
    table = pd.read_parquet(path)
    assert list(table.columns) == ["item_id", "user_id", "rank", "score", "probability"]
    assert table["item_id"].tolist() == [104] * 3 + [107] * 3
    assert table["rank"].tolist() == [1, 2, 3] * 2
    rows = np.concatenate([audience.users for audience in found])
    assert table["user_id"].tolist() == users[rows].tolist()
    scores = np.concatenate([audience.scores for audience in found])
    np.testing.assert_allclose(table["score"], scores, rtol=1e-6)
    n_null = duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE probability IS NULL").fetchall()[0][0]
    assert n_null == sum(np.isnan(audience.probabilities).sum() for audience in found)
