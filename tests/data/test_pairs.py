from __future__ import annotations

import numpy as np

from cfnade.data.pairs import keys_of, pair_keys, pairs_where, rows_of
from tests.networks import random_counts


def test_keys_are_those_of_a_loop_and_tell_all_pairs_apart():
    counts = random_counts(9, 7, 0.4)
    pairs = [(u, i) for u in range(9) for i in range(7) if counts[u, i]]
    assert rows_of(counts).tolist() == [user for user, _ in pairs]
    assert keys_of(counts).tolist() == [7 * user + item for user, item in pairs]
    assert (np.diff(keys_of(counts)) > 0).all()


def test_keys_of_many_users_do_not_overflow():
    user = np.array([2_000_000_000], dtype=np.int32)
    assert pair_keys(user, np.array([3], dtype=np.int32), 100_000).tolist() == [200_000_000_000_003]


def test_the_pairs_to_keep_stay_in_their_places():
    counts = random_counts(9, 7, 0.4)
    kept = pairs_where(counts, counts.data > 2)
    assert kept.nnz == (counts.data > 2).sum() and (kept.data > 2).all()
    expected = np.where(counts.toarray() > 2, counts.toarray(), 0)
    np.testing.assert_array_equal(kept.toarray(), expected)
