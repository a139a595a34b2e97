from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix

from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions, align, as_count_matrix
from cfnade.errors import ConfigError, DataError

COUNTS = csr_array(np.array([[1.0, 0.0, 2.5], [0.0, 4.0, 0.0]]))


def interactions(dense, users=None, items=None, names=None) -> Interactions:
    counts = csr_array(np.asarray(dense, dtype=float))
    n_users, n_items = counts.shape
    return Interactions(
        counts,
        np.arange(n_users) if users is None else users,
        np.arange(n_items) if items is None else items,
        names,
    )


# As count matrix


@pytest.mark.parametrize("kind", [csr_matrix, csr_array, csc_matrix, coo_array])
def test_every_sparse_format_becomes_one_form(kind):
    counts = as_count_matrix(kind([[0, 2], [1, 0]]))
    assert isinstance(counts, csr_array)
    assert counts.dtype == np.float64
    assert counts.toarray().tolist() == [[0, 2], [1, 0]]


def test_duplicates_are_summed_zeros_dropped_and_rows_sorted_without_a_change_to_the_input():
    data, columns, starts = [1.0, 2.0, 4.0, 0.0], [2, 0, 2, 1], [0, 4]
    matrix = csr_array((data, columns, starts), shape=(1, 3))
    counts = as_count_matrix(matrix)
    assert counts.indices.tolist() == [0, 2]
    assert counts.data.tolist() == [2.0, 5.0]
    assert matrix.indices.tolist() == columns
    assert matrix.data.tolist() == data


def test_a_matrix_in_the_right_form_is_not_copied():
    matrix = csr_array([[0.0, 2.0], [1.0, 0.0]])
    assert np.shares_memory(as_count_matrix(matrix).data, matrix.data)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, -np.inf])
def test_a_bad_count_is_reported_with_its_place(value):
    matrix = csr_array(np.array([[1.0, 0.0], [0.0, value], [value, 1.0]]))
    with pytest.raises(DataError, match=r"2 of 4 counts .* the first is .* at row 1, column 1"):
        as_count_matrix(matrix)


def test_signed_counts_may_be_below_zero_but_must_be_finite():
    data, columns = [1.0, -2.0, -1.0, 3.0, -3.0], [2, 0, 2, 1, 1]
    counts = as_count_matrix(csr_array((data, columns, [0, 5]), shape=(1, 3)), signed=True)
    assert counts.indices.tolist() == [0] and counts.data.tolist() == [-2.0]
    for value in (np.nan, np.inf, -np.inf):
        bad = csr_array(np.array([[-1.0, 0.0], [0.0, value]]))
        with pytest.raises(DataError, match=r"^1 of 2 counts are NaN or infinite; .* be finite$"):
            as_count_matrix(bad, signed=True)


@pytest.mark.parametrize("matrix", [np.ones((2, 2)), [[1]], None])
def test_what_is_not_sparse_is_refused_with_advice(matrix):
    with pytest.raises(DataError, match=r"csr_array\(array\)"):
        as_count_matrix(matrix)


def test_a_single_dimension_is_refused():
    row = coo_array(np.array([1.0, 0.0, 2.0]))
    if len(row.shape) == 2:
        pytest.skip("this scipy makes a matrix of it")
    with pytest.raises(DataError, match=r"shape \(n_users, n_items\), got \(3,\)"):
        as_count_matrix(row)


# Interactions


def test_sizes_ids_and_labels():
    data = interactions([[0, 2, 1], [1, 0, 0]], ["u", "v"], np.array([7, 8, 9]))
    assert (data.n_users, data.n_items, data.n_pairs) == (2, 3, 3)
    assert data.user_index == {"u": 0, "v": 1}
    assert data.item_index == {7: 0, 8: 1, 9: 2}
    assert data.item_label(1) == "8"


def test_ids_given_as_a_list_stay_as_they_are():
    data = interactions([[1, 2]], [("a", 1)], [1, "1"])
    assert data.user_ids.tolist() == [("a", 1)]
    assert data.item_index == {1: 0, "1": 1}


@pytest.mark.parametrize("field", ["user_ids", "item_ids", "item_names"])
def test_ids_must_match_the_counts(field):
    fields = {"user_ids": np.arange(1), "item_ids": np.arange(2), field: np.arange(5)}
    with pytest.raises(DataError, match=f"{field} has 5 entries, the counts need"):
        Interactions(csr_array([[1.0, 2.0]]), **fields)


def test_ids_must_be_distinct():
    data = interactions([[1, 1, 1]], items=["a", "b", "a"])
    with pytest.raises(DataError, match="item ids must be distinct; 'a' occurs more than once"):
        _ = data.item_index


def test_names_are_added_by_id_and_an_item_without_one_keeps_its_id():
    data = interactions([[1, 1]], items=np.array([7, 8])).with_item_names({8: "Tea", 9: "Cake"})
    assert [data.item_label(0), data.item_label(1)] == ["7", "Tea"]


def test_names_that_all_miss_are_warned_of(caplog):
    with caplog.at_level(logging.WARNING, logger="cfnade"):
        interactions([[1]], items=np.array([7])).with_item_names({"7": "Tea"})
        assert "none of the 1 names matches an item" in caplog.text
        assert "'7'" in caplog.text
        caplog.clear()
        interactions([[1]], items=np.array([7])).with_item_names({7: "Tea"})
        interactions([[1]], items=np.array([7])).with_item_names({})
    assert caplog.text == ""


# Floors


def test_floors_of_zero_keep_everyone_and_of_one_drop_the_empty():
    data = interactions([[1, 0], [0, 0]])
    assert data.with_floors() is data
    assert data.with_floors(1, 0).counts.shape == (1, 2)
    assert data.with_floors(0, 1).counts.shape == (2, 1)
    assert data.with_floors(1, 1).counts.shape == (1, 1)


def test_what_is_left_keeps_its_ids_names_counts_and_order():
    data = interactions(
        [[1, 2, 3], [0, 4, 0], [5, 0, 6]], ["u", "v", "w"], ["a", "b", "c"], ["A", "B", "C"]
    )
    left = data.with_floors(min_user_items=2)
    assert left.user_ids.tolist() == ["u", "w"]
    assert left.counts.toarray().tolist() == [[1, 2, 3], [5, 0, 6]]
    left = data.with_floors(min_user_items=2, min_item_users=2)
    assert left.item_ids.tolist() == ["a", "c"]
    assert [left.item_label(0), left.item_label(1)] == ["A", "C"]
    assert left.counts.toarray().tolist() == [[1, 3], [5, 6]]


def test_one_drop_may_lead_to_the_next():
    """A chain in which every floor is met only thanks to the link before."""
    length = 30
    chain = np.eye(length) + np.eye(length, k=1)
    chain[-1, :2] = 1  # all but the first item have two users, all users two items
    assert interactions(chain).with_floors(2, 2).counts.shape == (length, length)
    chain[-1, :2] = 0
    with pytest.raises(DataError, match="nothing is left with at least 2 items a user"):
        interactions(chain).with_floors(2, 2)


@pytest.mark.parametrize("floors", [(-1, 0), (0, -1)])
def test_negative_floors_are_refused(floors):
    with pytest.raises(ConfigError, match=r"min_.* must be at least 0"):
        interactions([[1]]).with_floors(*floors)


def literal_core(dense, min_user_items, min_item_users):
    """Drop one user or item at a time until all meet their floor."""
    users, items = set(range(len(dense))), set(range(len(dense[0])))
    while True:
        for user in users:
            if sum(dense[user][item] > 0 for item in items) < min_user_items:
                users.remove(user)
                break
        else:
            for item in items:
                if sum(dense[user][item] > 0 for user in users) < min_item_users:
                    items.remove(item)
                    break
            else:
                return sorted(users), sorted(items)


@settings(deadline=None)
@given(
    dense=st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=6),
    min_user_items=st.integers(0, 4),
    min_item_users=st.integers(0, 4),
)
def test_floors_agree_with_dropping_one_at_a_time(dense, min_user_items, min_item_users):
    users, items = literal_core(dense, min_user_items, min_item_users)
    data = interactions(dense)
    if not (users and items):
        with pytest.raises(DataError, match="nothing is left"):
            data.with_floors(min_user_items, min_item_users)
        return
    left = data.with_floors(min_user_items, min_item_users)
    assert (left.user_ids.tolist(), left.item_ids.tolist()) == (users, items)
    assert (left.counts.toarray() == np.array(dense)[np.ix_(users, items)]).all()


# A second set in the places of a first


def test_a_test_set_is_written_in_the_places_of_its_train_set():
    train = interactions([[1, 0, 2], [3, 1, 0]], ["u", "v"], ["a", "b", "c"])
    test = interactions([[5, 0], [6, 7]], ["v", "u"], ["c", "b"])
    aligned = align(test, train)
    assert aligned.counts.toarray().tolist() == [[0, 7, 6], [0, 0, 5]]
    assert aligned.n_dropped_pairs == 0


def test_what_the_train_set_does_not_know_is_left_out_and_counted():
    train = interactions([[1, 1]], ["u"], ["a", "b"])
    test = interactions([[1, 2, 0], [0, 4, 8], [0, 0, 0]], ["u", "new", "empty"], ["a", "x", "b"])
    aligned = align(test, train)
    assert aligned.counts.toarray().tolist() == [[1, 0]]
    assert aligned.n_unknown_user_pairs == 2  # (new, x) and (new, b)
    assert aligned.n_unknown_item_pairs == 2  # (u, x) and (new, x)
    assert aligned.n_dropped_pairs == 3


def test_integers_and_the_same_integers_as_text_are_the_same_ids():
    train = interactions([[1, 2]], np.array([7]), np.array([1, 5]))
    test = interactions([[4, 3]], ["7"], ["5", "new-item"])
    aligned = align(test, train)
    assert aligned.counts.toarray().tolist() == [[0.0, 4.0]]
    assert aligned.n_unknown_item_pairs == 1


def test_a_test_set_of_which_nothing_is_known_is_found_out():
    train = interactions([[1]], np.array([7]), np.array([1]))
    test = interactions([[1]], ["u7"], ["i1"])
    with pytest.raises(
        DataError, match=r"none of the 1 test pairs .* like 'u7' and 'i1', .* 7 and 1;"
    ):
        align(test, train)


def test_an_empty_test_set_is_aligned_to_nothing():
    train = interactions([[1]])
    assert align(interactions([[0]]), train).counts.nnz == 0


@settings(deadline=None)
@given(st.data())
def test_alignment_agrees_with_a_lookup_pair_by_pair(data):
    ids = st.permutations(range(6))
    sizes = st.integers(1, 5)
    sides = []
    for _ in range(2):
        users, items = data.draw(ids)[: data.draw(sizes)], data.draw(ids)[: data.draw(sizes)]
        dense = data.draw(
            st.lists(
                st.lists(st.integers(0, 3), min_size=len(items), max_size=len(items)),
                min_size=len(users),
                max_size=len(users),
            )
        )
        sides.append((interactions(dense, np.array(users), np.array(items)), dense, users, items))
    (train, _, train_users, train_items), (test, dense, users, items) = sides
    expected = np.zeros(train.counts.shape)
    n_pairs = 0
    for row, user in enumerate(users):
        for column, item in enumerate(items):
            if dense[row][column] and user in train_users and item in train_items:
                n_pairs += 1
                place = train_users.index(user), train_items.index(item)
                expected[place] = dense[row][column]
    if test.n_pairs and not n_pairs:
        with pytest.raises(DataError, match="none of the"):
            align(test, train)
        return
    aligned = align(test, train)
    assert (aligned.counts.toarray() == expected).all()
    assert aligned.n_dropped_pairs == test.n_pairs - n_pairs


# Description and fingerprint


def test_the_same_data_has_the_same_fingerprint_on_every_machine():
    users, items = np.array([10, 11]), np.array(["a", "b", "ü"], dtype=object)
    found = Interactions(COUNTS, users, items).fingerprint()
    assert found == {
        "n_users": 2,
        "n_items": 3,
        "n_pairs": 3,
        "sum_of_counts": 7.5,
        "sha256": "c128672c8d9564a6477a07a67e54f671ad5f9fb9306c2086cc9390929c744846",
    }
    narrow = Interactions(COUNTS.copy(), users.astype(np.int32), items.astype(str))
    assert narrow.fingerprint() == found


def test_names_are_no_part_of_the_fingerprint():
    data = Interactions.from_matrix(COUNTS)
    assert data.with_item_names({0: "zero"}).fingerprint() == data.fingerprint()


def test_any_other_data_has_another_fingerprint():
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
    assert len({data.fingerprint()["sha256"] for data in others}) == len(others)


def test_a_description_has_sizes_and_spreads():
    found = Interactions.from_matrix(COUNTS).describe()
    assert (found["n_users"], found["n_items"], found["n_pairs"]) == (2, 3, 3)
    assert (found["density"], found["share_of_counts_above_1"]) == (0.5, 2 / 3)
    assert (found["count_min"], found["count_median"], found["count_max"]) == (1.0, 2.5, 4.0)
    assert (found["items_per_user_mean"], found["users_per_item_max"]) == (1.5, 1.0)


def test_no_pairs_have_no_spread_of_counts():
    found = Interactions.from_matrix(csr_array((2, 0))).describe()
    assert found["density"] == 0.0 and "count_min" not in found


# With a log -------------------------------------------------------------------------------------


def with_log(**changes) -> Interactions:
    columns = {
        "user": np.array([0, 0, 1], dtype=np.int32),
        "item": np.array([1, 0, 1], dtype=np.int32),
        "count": np.array([2.0, 1.0, 1.0]),
        "time": np.array([1.0, 2.0, 1.0]),
        "clock": "number",
    }
    return Interactions.from_log(EventLog(**{**columns, **changes}), ["u", "v"], ["a", "b"])


def test_counts_are_those_of_the_log():
    assert with_log().counts.toarray().tolist() == [[1, 2], [0, 1]]


def test_a_log_must_fit_its_rows_and_columns():
    log = with_log().log
    with pytest.raises(DataError, match="the log has item numbers from 0 to 1"):
        Interactions(csr_array([[3.0], [1.0]]), ["u", "v"], ["a"], log=log)


def test_the_fingerprint_covers_the_log():
    marks = {
        data.fingerprint()["sha256"]
        for data in (
            with_log(),
            with_log(time=np.array([1.0, 3.0, 1.0])),
            with_log(clock="order"),
            with_log(kind=np.array([0, 0, 0], dtype=np.int16), kinds=("view",)),
            with_log(kind=np.array([0, 1, 0], dtype=np.int16), kinds=("buy", "view")),
            replace(with_log(), log=None),
        )
    }
    assert len(marks) == 6
    assert with_log().fingerprint() == with_log().fingerprint()


def test_events_and_pairs_can_be_left_out_of_counts_and_log():
    data = with_log()
    part = data.with_events(data.log.time < 2)
    assert part.counts.toarray().tolist() == [[0, 2], [0, 1]]
    part = data.without_pairs(csr_array([[0.0, 9.0], [0.0, 0.0]]))
    assert part.counts.toarray().tolist() == [[1, 0], [0, 1]]
    assert part.log.counts((2, 2)).toarray().tolist() == part.counts.toarray().tolist()
    with pytest.raises(DataError, match="no event log"):
        replace(data, log=None).with_events(np.array([True]))


def test_kinds_of_events_may_be_named_by_numbers():
    data = with_log(kind=np.array([0, 1, 0], dtype=np.int16), kinds=("1", "4"))
    found = data.weighed({1: 1.0, 4: 9.0}, target=4)
    assert (found.event_weights, found.target_event) == ({"1": 1.0, "4": 9.0}, "4")
    assert found.counts.toarray().tolist() == [[9, 2], [0, 1]]
