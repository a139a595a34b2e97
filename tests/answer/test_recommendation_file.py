from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

from cfnade import DataError, hold_out
from cfnade import scorer as ranking
from cfnade.answer.recommendation_file import COLUMNS, write_recommendations
from tests.networks import random_counts, random_model

COUNTS = random_counts()
USERS = np.array([f"u{k}" for k in range(30)], dtype=object)


def test_the_file_has_what_recommend_gives_in_blocks_of_any_size(tmp_path, monkeypatch):
    model = random_model()
    ids, scores = model.recommend(USERS, COUNTS, 4)
    for block_bytes, blocks in [(ranking.BLOCK_BYTES, [30]), (8 * 20 * 7, [7, 14, 21, 28, 30])]:
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
