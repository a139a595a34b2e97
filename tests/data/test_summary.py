from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from cfnade.data.interactions import Interactions
from cfnade.data.summary import describe, fingerprint

COUNTS = csr_array(np.array([[1.0, 0.0, 2.5], [0.0, 4.0, 0.0]]))


def test_the_same_data_has_the_same_fingerprint_on_every_machine():
    users, items = np.array([10, 11]), np.array(["a", "b", "ü"], dtype=object)
    found = fingerprint(Interactions(COUNTS, users, items))
    assert found == {
        "n_users": 2,
        "n_items": 3,
        "n_pairs": 3,
        "sum_of_counts": 7.5,
        "sha256": "c128672c8d9564a6477a07a67e54f671ad5f9fb9306c2086cc9390929c744846",
    }
    narrow = Interactions(COUNTS.copy(), users.astype(np.int32), items.astype(str))
    assert fingerprint(narrow) == found


def test_names_are_no_part_of_it():
    data = Interactions.from_matrix(COUNTS)
    assert fingerprint(data.with_item_names({0: "zero"})) == fingerprint(data)


def test_any_other_data_has_another():
    texts = np.array(["0", "1", "2"], dtype=object)
    others = [
        Interactions.from_matrix(COUNTS),
        Interactions.from_matrix(COUNTS * 2),
        Interactions.from_matrix(COUNTS[::-1]),
        Interactions.from_matrix(csr_array((2, 3))),
        Interactions.from_matrix(csr_array((3, 3))),
        Interactions(COUNTS, np.arange(2), texts),
        Interactions(COUNTS, np.arange(2), np.arange(3)[::-1]),
        Interactions(COUNTS, np.arange(2), np.arange(3).astype("datetime64[D]")),
        Interactions(COUNTS, np.arange(2) + 1, np.arange(3)),
    ]
    assert len({fingerprint(data)["sha256"] for data in others}) == len(others)


def test_a_description_has_sizes_and_spreads():
    found = describe(Interactions(COUNTS, np.arange(2), np.arange(3)))
    assert (found["n_users"], found["n_items"], found["n_pairs"]) == (2, 3, 3)
    assert (found["density"], found["share_of_counts_above_1"]) == (0.5, 2 / 3)
    assert (found["count_min"], found["count_median"], found["count_max"]) == (1.0, 2.5, 4.0)
    assert (found["items_per_user_mean"], found["users_per_item_max"]) == (1.5, 1.0)


def test_no_pairs_have_no_spread_of_counts():
    found = describe(Interactions.from_matrix(csr_array((2, 0))))
    assert found["density"] == 0.0 and "count_min" not in found
