from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfnade.ranking import top_items


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
