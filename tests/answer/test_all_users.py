"""All users in blocks, by any number of threads, get what each would get alone."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

from cfnade import DataError, hold_out
from cfnade import scorer as ranking
from cfnade.answer import all_users
from cfnade.answer.all_users import COLUMNS, by_row, recommend_all, write_recommendations
from cfnade.answer.dials import Dials
from cfnade.answer.quick import QuickNetwork
from cfnade.answer.recommend import AnswerTable
from tests.networks import random_counts, random_model

N_ITEMS, COUNTS = 20, random_counts()
N_MANY = 700
DIALS = Dials(popularity=0.5)
EVEN = [f"i{k}" for k in range(0, N_MANY, 2)]
USERS = np.array([f"u{k}" for k in range(30)], dtype=object)
ONE_BLOCK = 4 * N_ITEMS * 7  # seven users


@pytest.fixture(scope="module")
def answers():
    model = random_model(N_ITEMS)
    model.calibrate(*hold_out(COUNTS, share=0.3, rng=0))
    return model.answers_


@pytest.mark.parametrize("n_threads", [1, 3, None])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"filter_already_liked_items": False},
        {"filter_items": ["i3", "i4"], "items": [f"i{k}" for k in range(15)]},
        {"items": [[f"i{k}" for k in range(row % 20, 20)] for row in range(30)]},
    ],
)
def test_each_row_gets_what_it_gets_alone(answers, filters, n_threads):
    blocks = list(
        recommend_all(answers, COUNTS, 4, **filters, block_bytes=ONE_BLOCK, n_threads=n_threads)
    )
    assert [n_done for n_done, _ in blocks] == [7, 14, 21, 28, 30]
    row, column, score, probability = map(
        np.concatenate, zip(*(found for _, found in blocks), strict=True)
    )
    for user in range(30):
        items = filters.get("items")
        own = items[user] if items and isinstance(items[0], list) else items
        query = answers.query(COUNTS[[user]], 4, **{**filters, "items": own})
        (alone,) = answers.recommend([query])
        assert column[row == user].tolist() == alone.columns.tolist()
        np.testing.assert_allclose(score[row == user], alone.scores, atol=1e-5)
        np.testing.assert_allclose(probability[row == user], alone.probabilities, atol=1e-6)


@pytest.mark.parametrize("filters", [{}, {"filter_already_liked_items": False}, {"dials": DIALS}])
@pytest.mark.parametrize("repeats", [False, True])
def test_disliked_items_count_in_the_scores_and_are_never_recommended(filters, repeats):
    model = random_model(N_ITEMS)
    model.calibrate(*hold_out(COUNTS, share=0.3, rng=0))
    answers, signed = model.answers_, COUNTS.copy()
    if repeats:
        weights = answers.scorer.network.weights
        weights["repeat_bias"] = np.linspace(-1.0, 1.0, N_ITEMS, dtype=np.float32)
        weights["repeat_weight"] = np.array([0.5], dtype=np.float32)
    signed.data[::3] = -1.0
    blocks = list(recommend_all(answers, signed, 30, **filters, block_bytes=ONE_BLOCK))
    row, column, score, probability = map(
        np.concatenate, zip(*(found for _, found in blocks), strict=True)
    )
    scores = answers.scorer.scores(signed)
    left_out = signed.toarray() < 0 if "filter_already_liked_items" in filters else signed.toarray()
    scores[left_out.nonzero()] = -np.inf
    for user in range(30):
        (alone,) = answers.recommend([answers.query(signed[[user]], 30, **filters)])
        assert column[row == user].tolist() == alone.columns.tolist()
        np.testing.assert_allclose(score[row == user], alone.scores, atol=1e-5)
        np.testing.assert_allclose(probability[row == user], alone.probabilities, atol=1e-6)
        assert set(column[row == user]) == set(np.flatnonzero(scores[user] > -np.inf))
        if "dials" not in filters:
            order = column[row == user]
            assert (np.diff(scores[user, order]) <= 1e-5).all()


@pytest.mark.parametrize("signs", [1, -1])
@pytest.mark.parametrize("filters", [{}, {"filter_already_liked_items": False, "items": EVEN}])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_quick_network_recommends_the_same(monkeypatch, filters, n_threads, signs):
    torch = pytest.importorskip("torch")
    counts = random_counts(n_users=40, n_items=N_MANY)
    counts.data[::5] *= signs  # dislikes, if below 0
    answers = random_model(N_MANY, n_neighbours=4).answers_
    asked = {**filters, "n_threads": n_threads, "block_bytes": 4 * N_MANY * 16}
    blocks, in_use, products = [], [], QuickNetwork.products

    def watched(quick, hidden):
        blocks.append(len(hidden))
        in_use.append(torch.get_num_threads())
        return products(quick, hidden)

    monkeypatch.setattr(QuickNetwork, "products", watched)

    def recommended(is_fast: bool, pays: int) -> list[np.ndarray]:
        monkeypatch.setattr(all_users, "has_fast_int8", lambda: is_fast)
        monkeypatch.setattr(all_users, "_QUICK_PAYS", pays)
        found = [part for _, part in recommend_all(answers, counts, 5, **asked)]
        return [np.concatenate(column) for column in zip(*found, strict=True)]

    expected = recommended(False, 1)
    recommended(True, 40 * N_MANY + 1)
    assert blocks == []  # neither where it is slow, nor for few scores
    row, column, score, _ = recommended(True, 1)
    assert sorted(blocks) == [8, 16, 16]
    assert in_use[n_threads - 1 :] == [1] * (4 - n_threads)  # the first block is before the others
    assert row.tolist() == expected[0].tolist() and column.tolist() == expected[1].tolist()
    np.testing.assert_allclose(score, expected[2], rtol=1e-5, atol=1e-5)


def test_blocks_that_nobody_asks_for_are_not_computed(answers, monkeypatch):
    asked = []
    ratings = type(answers.scorer.relative_rating)
    transform = ratings.transform

    def counted(self, counts):
        asked.append(counts.shape[0])
        return transform(self, counts)

    monkeypatch.setattr(ratings, "transform", counted)
    found = recommend_all(answers, COUNTS, block_bytes=1, n_threads=2)
    next(found)
    found.close()
    assert asked == [1]


def test_ranks_count_from_one_in_each_row():
    row = np.array([0, 0, 2, 2, 2])
    found = AnswerTable(row, row, np.ones(5, dtype=np.float32), np.ones(5))
    assert found.rank.tolist() == [1, 2, 1, 2, 3]


def test_rows_of_one_length_make_a_table_others_are_kept_apart(answers):
    ids = answers.catalogue.ids
    even, scores = by_row([f for _, f in recommend_all(answers, COUNTS, 4)], ids, 30, 4)
    assert even.shape == scores.shape == (30, 4)
    few = recommend_all(answers, COUNTS, 4, items=["i0", "i1", "i2"], block_bytes=ONE_BLOCK)
    uneven, scores = by_row([found for _, found in few], ids, 30, 4)
    assert uneven.shape == scores.shape == (30,)
    for user, own in enumerate(uneven):
        left = {0, 1, 2} - set(COUNTS[[user]].indices.tolist())
        assert set(own) == {f"i{k}" for k in left}
    none, _ = by_row([], ids, 0, 4)
    assert none.shape == (0, 4)


def test_the_file_has_what_recommend_gives_in_blocks_of_any_size(tmp_path, monkeypatch):
    model = random_model()
    ids, scores = model.recommend(USERS, COUNTS, 4)
    for block_bytes, blocks in [(ranking.BLOCK_BYTES, [30]), (4 * 20 * 7, [7, 14, 21, 28, 30])]:
        monkeypatch.setattr(ranking, "BLOCK_BYTES", block_bytes)
        done: list[int] = []
        path = tmp_path / "it's [new]" / "all.parquet"
        assert (
            write_recommendations(model.answers_, COUNTS, USERS, path, 4, progress=done.append)
            == 120
        )
        table = pd.read_parquet(path)
        assert table["user_id"].tolist() == USERS.repeat(4).tolist()
        assert table["item_id"].tolist() == ids.ravel().tolist()
        assert table["rank"].tolist() == [1, 2, 3, 4] * 30
        np.testing.assert_allclose(table["score"], scores.ravel(), rtol=1e-4)
        assert table["probability"].isna().all()  # the model has no calibrator
        assert done == blocks
        assert [p.name for p in path.parent.iterdir()] == ["all.parquet"]


def test_probabilities_are_calibrated_and_null_for_items_of_the_history(tmp_path):
    model, path = random_model(), tmp_path / "all.parquet"
    model.calibrate(*hold_out(COUNTS, share=0.3, rng=0))
    n_rows = write_recommendations(
        model.answers_, COUNTS, USERS, path, 20, filter_already_liked_items=False
    )
    n_null = duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE probability IS NULL").fetchall()
    assert n_rows == 30 * 20 and n_null == [(COUNTS.nnz,)]
    first = pd.read_parquet(path).query("user_id == 'u0'")
    expected = model.probability(COUNTS[[0]], first["item_id"])
    np.testing.assert_allclose(first["probability"], expected, rtol=1e-5)


def test_users_with_fewer_candidates_have_fewer_rows(tmp_path):
    model, path = random_model(), tmp_path / "all.parquet"
    few = [f"i{k}" for k in COUNTS[[0]].indices] + ["i19"]
    n_rows = write_recommendations(model.answers_, COUNTS, USERS, path, 20, items=few)
    table = pd.read_parquet(path)
    assert len(table) == n_rows
    expected = {
        user: len(set(few) - {f"i{k}" for k in COUNTS[[row]].indices})
        for row, user in enumerate(USERS)
    }
    assert table.groupby("user_id").size().to_dict() == {u: n for u, n in expected.items() if n}


@pytest.mark.parametrize(
    ("item_ids", "user_ids", "types"),
    [
        (np.arange(20), np.arange(30), ("BIGINT", "BIGINT")),
        (np.arange(20, dtype=np.uint32), USERS, ("VARCHAR", "UBIGINT")),
        (np.array([f"i{k}" for k in range(20)]), USERS.astype(str), ("VARCHAR", "VARCHAR")),
    ],
)
def test_numbers_stay_numbers_and_all_else_is_text(item_ids, user_ids, types, tmp_path):
    path = tmp_path / "all.parquet"
    write_recommendations(random_model(item_ids=item_ids).answers_, COUNTS, user_ids, path)
    columns = duckdb.sql(f"DESCRIBE FROM '{path}'").fetchall()
    assert tuple(kind for _, kind, *_ in columns[:2]) == types


def test_no_users_give_a_table_without_rows(tmp_path):
    path = tmp_path / "all.parquet"
    assert write_recommendations(random_model().answers_, COUNTS[:0], USERS[:0], path) == 0
    assert list(pd.read_parquet(path).columns) == list(COLUMNS)


def test_the_writer_fetches_nothing_from_the_network(tmp_path, monkeypatch):
    plain, found = duckdb.connect, []

    def connect(*place, **options):
        connection = plain(*place, **options)
        setting = "SELECT current_setting('autoinstall_known_extensions')"
        found.extend(connection.execute(setting).fetchall())
        return connection

    monkeypatch.setattr(duckdb, "connect", connect)
    write_recommendations(random_model().answers_, COUNTS, USERS, tmp_path / "all.parquet")
    assert found == [(False,)]


def test_what_goes_wrong_leaves_the_old_file(tmp_path):
    path = tmp_path / "all.parquet"
    path.write_text("old")

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_recommendations(random_model().answers_, COUNTS, USERS, path, progress=stop)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["all.parquet"]
    with pytest.raises(DataError, match="cannot write"):
        write_recommendations(random_model().answers_, COUNTS, USERS, path / "below.parquet")
