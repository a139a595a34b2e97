"""All users in blocks, by any number of threads, get what each would get alone."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade import hold_out
from cfnade.answer.all_users import by_row, recommend_all
from cfnade.answer.recommend import AnswerTable
from tests.networks import random_counts, random_model

N_ITEMS, COUNTS = 20, random_counts()
ONE_BLOCK = 4 * 2 * N_ITEMS * 7  # seven users


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
