from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfnade.answer import top as ranking
from cfnade.answer.top import stack, top_items
from cfnade.scorer import blocks


def plain_sort(scores, n):
    columns = [column for column in range(len(scores)) if scores[column] > -np.inf]
    return sorted(columns, key=lambda column: (-scores[column], column))[:n]


@given(
    st.lists(st.lists(st.sampled_from([-np.inf, -1, 0, 1, 2]), min_size=9, max_size=9)),
    st.integers(0, 11),
)
def test_top_items_equal_a_plain_sort(rows, n):
    scores = np.array(rows, dtype=np.float32).reshape(len(rows), 9)
    assert [top.tolist() for top in top_items(scores, n)] == [plain_sort(s, n) for s in scores]


@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 5))
def test_top_items_of_many_chunks_equal_a_plain_sort_too(seed, n, n_values):
    rng = np.random.default_rng(seed)
    scores = rng.integers(n_values, size=(3, 10 * ranking._CHUNK + 7)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.5] = -np.inf
    scores[1] = -np.inf
    scores[1, 5] = 1.0  # one candidate alone
    assert [top.tolist() for top in top_items(scores, n)] == [plain_sort(s, n) for s in scores]


def test_blocks_cover_all_rows_within_the_memory_allowed():
    assert list(blocks(7, 10, 4 * 10 * 3)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(blocks(2, 1000, 4 * 10 * 3)) == [slice(0, 1), slice(1, 2)]  # one row at least
    assert list(blocks(0, 10)) == []


def test_answers_of_one_length_are_stacked_others_kept_apart():
    ids = np.array(["a", "b", "c"], dtype=object)
    long = (ids[:2], np.array([0.9, 0.5], dtype=np.float32))
    short = (ids[2:], np.array([0.1], dtype=np.float32))
    stacked_ids, scores = stack([long, long], ids, 2)
    assert stacked_ids.tolist() == [["a", "b"]] * 2 and scores.shape == (2, 2)
    stacked_ids, scores = stack([long, short], ids, 2)
    assert stacked_ids.shape == scores.shape == (2,)
    assert stacked_ids[1].tolist() == ["c"] and scores[0].dtype == np.float32
    stacked_ids, scores = stack([], np.arange(3), 2)
    assert stacked_ids.shape == scores.shape == (0, 2) and stacked_ids.dtype == np.int64
