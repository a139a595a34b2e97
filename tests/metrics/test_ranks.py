from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.metrics.ranks import count_above_and_tied, place_held_out


@pytest.mark.parametrize("n_held_out", [1, 5, 8, 9, 30])
def test_counting_and_sorting_find_the_same_places(n_held_out) -> None:
    scores = np.random.default_rng(n_held_out).integers(0, 20, 60).astype(np.float32)
    targets = scores[:n_held_out]
    n_above, n_tied = count_above_and_tied(scores, targets)
    assert n_above.tolist() == [(scores > target).sum() for target in targets]
    assert n_tied.tolist() == [(scores == target).sum() for target in targets]


def test_places_are_counted_among_unseen_items_and_users_numbered_anew() -> None:
    class Descending:
        def scores(self, histories):
            return np.tile(np.array([4, 3, 2, 2, 1], dtype=np.float32), (histories.shape[0], 1))

    histories = csr_array([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0]])
    held_out = csr_array([[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]])
    places = place_held_out(Descending(), histories, held_out)
    assert places.user.tolist() == [0, 0, 1]
    assert places.n_above.tolist() == [0, 1, 1]
    assert places.n_tied.tolist() == [1, 2, 1]
    assert places.n_candidates.tolist() == [4, 3]
    assert places.n_held_out.tolist() == [2, 1]
