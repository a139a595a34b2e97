from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfnade import ranking
from cfnade.ranking import blocks, stack, top_items


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 14),
)
def test_top_items_equal_a_plain_sort(pairs, n):
    scores = np.array([score for score, _ in pairs], dtype=np.float32)
    allowed = np.array([is_allowed for _, is_allowed in pairs])
    columns = [column for column in range(len(pairs)) if allowed[column]]
    expected = sorted(columns, key=lambda column: (-scores[column], column))[:n]
    assert top_items(scores, n, allowed).tolist() == expected


def test_blocks_cover_all_rows_within_the_memory_allowed(monkeypatch):
    monkeypatch.setattr(ranking, "BLOCK_BYTES", 4 * 10 * 3)
    assert list(blocks(7, 10)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(blocks(2, 1000)) == [slice(0, 1), slice(1, 2)]  # one row at least
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
