from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

from cfnade.answer import filters
from cfnade.answer.filters import ItemSets, item_sets, rule_out, stack, top_items
from cfnade.data.catalogue import Catalogue
from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.errors import DataError

LETTERS = Catalogue(np.array(["a", "b", "c", "d"], dtype=object))
MASK = np.array([[True, False, False, True], [False, False, True, False]])


def sets(items, n_users=2, **options) -> list[set[int]]:
    read = item_sets(items, LETTERS, n_users, name="items", **options)
    return columns_of(read, n_users)


def columns_of(read: ItemSets, n_users: int) -> list[set[int]]:
    return [set(read.of(user).tolist()) for user in range(n_users)]


def test_ids_are_meant_for_all_users():
    for ids in (
        ["a", "d"],
        ("a", "d"),
        {"a", "d"},
        np.array(["a", "d"]),
        iter("ad"),
        {"a": 1, "d": 2},
    ):
        assert sets(ids) == [{0, 3}, {0, 3}]
    assert sets([]) == [set(), set()]


def test_a_list_of_collections_has_one_for_each_user():
    for ids in (
        [["a", "d"], ["c"]],
        [{"a", "d"}, {"c"}],
        [np.array(["a", "d"]), ["c"]],
        (["d", "a"], ["c", "c"]),
    ):
        assert sets(ids) == [{0, 3}, {2}]
    assert sets(np.array([["a", "d"], ["c", "b"]])) == [{0, 3}, {1, 2}]
    assert sets([[], ["b"]]) == [set(), {1}]


def test_ids_that_are_tuples_are_no_collections():
    pairs = Catalogue(np.fromiter([("s", 1), ("s", 2)], dtype=object, count=2))
    read = item_sets([("s", 2)], pairs, 2, name="items")
    assert columns_of(read, 2) == [{1}, {1}]


def test_a_mask_is_meant_for_all_or_for_each():
    stored_zero = csr_array(([1.0, 0.0, 1.0, 1.0], [0, 1, 3, 2], [0, 3, 4]), (2, 4))
    for mask in (MASK, csr_array(MASK), csr_matrix(MASK), stored_zero):
        assert sets(mask) == [{0, 3}, {2}]
    assert stored_zero.nnz == 4  # left as it was
    for mask in (MASK[0], MASK[0].tolist(), csr_array(MASK.astype(float))[0]):
        assert sets(mask) == [{0, 3}, {0, 3}]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (MASK[:, :3], r"mask items must have the shape \(4,\) or \(2, 4\); got \(2, 3\)"),
        (csr_array((3, 4)), r"got \(3, 4\)"),
        ([["a"], ["b"], ["c"]], "one list of them for each of the 2 users; got 3 entries"),
        ([["a"], "b"], "got 2 entries of which 1 are lists"),
        ("ab", "got the text 'ab'"),
        (5, "items must be a list of item ids, got 5"),
        ([("a", ["b"])], "is not a single item id"),
        (["x"], "item 'x' is not in this model"),
        ([["a"], ["x"]], "item 'x' is not in this model"),
    ],
)
def test_what_does_not_fit_is_told(items, message):
    with pytest.raises(DataError, match=message):
        sets(items)


def test_strangers_in_a_filter_can_be_ignored():
    assert sets(["a", "x"], unknown="ignore") == [{0}, {0}]
    assert sets([["a", "x"], ["x"]], unknown="ignore") == [{0}, set()]


@pytest.mark.parametrize(
    ("only", "never", "left"),
    [
        (None, [], [0, 1, 2, 3]),
        (None, [[2]], [0, 1, 3]),
        ([0, 1, 2], [[0, 3], [1]], [2]),
        ([0, 1, 2, 0], [[2], [2]], [0, 1]),
        ([], [[1]], []),
    ],
)
def test_only_allowed_items_that_are_not_excluded_keep_their_scores(only, never, left):
    scores = np.array([0.5, -1.0, 2.0, 0.0])
    before = scores.copy()
    chosen = None if only is None else np.array(only, dtype=int)
    rule_out(scores, chosen, *(np.array(columns) for columns in never))
    assert np.flatnonzero(np.isfinite(scores)).tolist() == left
    assert (scores[left] == before[left]).all()


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
    scores = rng.integers(n_values, size=(3, 10 * filters._CHUNK + 7)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.5] = -np.inf
    scores[1] = -np.inf
    scores[1, 5] = 1.0  # one candidate alone
    assert [top.tolist() for top in top_items(scores, n)] == [plain_sort(s, n) for s in scores]


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


def test_a_mapping_chooses_by_what_is_known_about_items():
    columns = {"kind": Entries([0, 1, 3], ["film", "series", "film"], np.ones(3))}
    known = ItemFeatures.from_entries(4, columns, {"kind": "values"})
    letters = Catalogue(LETTERS.ids, None, known)
    read = item_sets({"kind": "film"}, letters, 2, name="items")
    assert columns_of(read, 2) == [{0, 3}, {0, 3}]
    assert columns_of(item_sets({"a": 2}, letters, 2, name="items"), 2) == [{0}, {0}]
    with pytest.raises(DataError, match="no item has kind=flm; did you mean film"):
        item_sets({"kind": "flm"}, letters, 2, name="items")
    with pytest.raises(DataError, match="fitted without an items table"):
        sets({"kind": "film"})
