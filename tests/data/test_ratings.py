from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix, vstack

from cfnade.data.ratings import RelativeRating, confidence, dislikes_alone, likes_alone
from cfnade.errors import ConfigError, DataError
from tests import reference


def column(*values: float) -> csr_array:
    """One item's counts, one user a row."""
    return csr_array(np.array(values, dtype=float)[:, None])


def test_the_example_of_the_paper():
    """100 of 1000 watchers watched no more than 10 times: whoever did so 10 times gets 0.1."""
    counts = column(*([10.0] * 100 + [25.0] * 900))
    ratings = RelativeRating().fit(counts).transform(counts)
    assert ratings[0, 0] == 0.1
    assert ratings[999, 0] == 1.0


def test_relative_rating_of_the_heaviest_watcher_is_one(counts):
    ratings = RelativeRating().fit(counts).transform(counts)
    heaviest = counts.toarray().argmax(axis=0)
    assert (ratings.toarray()[heaviest, np.arange(20)] == 1.0).all()


def test_those_who_did_not_watch_are_not_counted_and_stay_at_zero():
    counts = column(0, 1, 0, 2)
    ratings = RelativeRating().fit(counts).transform(counts)
    assert ratings.toarray()[:, 0].tolist() == [0.0, 0.5, 0.0, 1.0]


def test_vectorised_ratings_equal_the_loops(counts):
    ratings = RelativeRating().fit(counts).transform(counts).toarray()
    dense = counts.toarray()
    for user, item in zip(*dense.nonzero(), strict=True):
        watchers = [count for count in dense[:, item] if count > 0]
        assert ratings[user, item] == reference.relative_rating(dense[user, item], watchers)


def test_a_count_below_zero_is_a_dislike_of_rating_minus_one(counts):
    signed = counts.toarray()
    signed[signed == 0] = np.random.default_rng(0).choice([0.0, -1.0, -7.5], (signed == 0).sum())
    known = RelativeRating().fit(counts)
    with pytest.raises(DataError, match="counts are negative"):
        RelativeRating().fit(csr_array(signed))
    expected = np.where(signed < 0, -1.0, known.transform(counts).toarray())
    np.testing.assert_array_equal(known.transform(csr_array(signed)).toarray(), expected)
    unseen = RelativeRating().fit(csr_array((3, 2)))  # items without watchers
    assert unseen.transform(csr_array([[-2.0, 1.0]])).toarray().tolist() == [[-1.0, 1.0]]


def test_likes_and_dislikes_are_taken_apart():
    pairs = csr_array(np.array([[0.5, -1.0, 0.0], [0.0, 0.0, 0.0], [-1.0, -1.0, 0.2]]))
    np.testing.assert_array_equal(likes_alone(pairs).toarray(), np.maximum(pairs.toarray(), 0.0))
    assert likes_alone(pairs).nnz == 2
    np.testing.assert_array_equal(dislikes_alone(pairs).toarray(), np.minimum(pairs.toarray(), 0.0))
    assert dislikes_alone(pairs).nnz == 3
    likes = likes_alone(pairs)
    assert likes_alone(likes) is likes and dislikes_alone(likes).nnz == 0


def test_ratings_equal_the_cumulative_distribution_of_sql(counts):
    import duckdb

    pairs = counts.tocoo()
    table = {"user": pairs.row, "item": pairs.col, "count": pairs.data}
    with duckdb.connect() as connection:
        connection.execute('create table pairs ("user" int, item int, "count" double)')
        rows = list(zip(*(values.tolist() for values in table.values()), strict=True))
        connection.executemany("insert into pairs values (?, ?, ?)", rows)
        query = (
            'select cume_dist() over (partition by item order by "count") from pairs '
            'order by "user", item'
        )
        expected = [row[0] for row in connection.execute(query).fetchall()]
    assert RelativeRating().fit(counts).transform(counts).data.tolist() == expected


def test_counts_of_new_users_are_placed_in_the_stored_distribution():
    ratings = RelativeRating().fit(column(2, 4, 4, 8))
    new = ratings.transform(column(2, 3, 4, 5, 8, 100))
    assert new.toarray()[:, 0].tolist() == [0.25, 0.25, 0.75, 0.75, 1.0, 1.0]


def test_a_count_below_all_seen_ones_is_that_of_a_new_lightest_watcher():
    ratings = RelativeRating().fit(column(2, 4, 4, 8))
    assert ratings.transform(column(1)).data.tolist() == [1 / 5]


def test_the_first_watcher_of_an_unseen_item_gets_one():
    ratings = RelativeRating().fit(csr_array(np.array([[3.0, 0.0, 2.0]])))
    assert ratings.transform(csr_array(np.array([[0.0, 7.0, 0.0]]))).data.tolist() == [1.0]


def test_no_counts_at_all_can_be_fitted_and_an_empty_history_transformed():
    ratings = RelativeRating().fit(csr_array((3, 2)))
    assert ratings.transform(csr_array((2, 2))).nnz == 0
    assert ratings.transform(csr_array(np.array([[5.0, 0.0]]))).data.tolist() == [1.0]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_ratings_grow_with_the_count_and_do_not_depend_on_the_order_of_users(rows, random):
    counts = csr_array(np.array(rows, dtype=float))
    ratings = RelativeRating().fit(counts)
    dense = ratings.transform(counts).toarray()
    for item in range(3):
        for a in range(len(rows)):
            for b in range(len(rows)):
                if 0 < rows[a][item] <= rows[b][item]:
                    assert 0 < dense[a, item] <= dense[b, item] <= 1
    order = random.sample(range(len(rows)), len(rows))
    shuffled = RelativeRating().fit(counts[order]).transform(counts)
    np.testing.assert_array_equal(shuffled.toarray(), dense)


def test_csr_matrix_and_csr_array_give_the_same(counts):
    ratings = RelativeRating().fit(csr_matrix(counts))
    np.testing.assert_array_equal(
        ratings.transform(csr_matrix(counts)).toarray(),
        RelativeRating().fit(counts).transform(counts).toarray(),
    )


def test_restoring_from_the_arrays_changes_nothing(counts):
    fitted = RelativeRating().fit(counts)
    restored = RelativeRating.from_distributions(
        fitted.item_starts_, fitted.distinct_counts_, fitted.n_watchers_up_to_
    )
    np.testing.assert_array_equal(
        restored.transform(counts).toarray(), fitted.transform(counts).toarray()
    )


def test_fitting_again_forgets_the_first_distribution():
    ratings = RelativeRating().fit(column(1, 2))
    assert ratings.transform(column(1)).data.tolist() == [0.5]
    assert ratings.fit(column(1, 5, 7, 9)).transform(column(5)).data.tolist() == [0.5]


def test_wrong_use_is_refused():
    with pytest.raises(DataError, match="not fitted"):
        RelativeRating().transform(csr_array((1, 2)))
    with pytest.raises(DataError, match="fitted on 3 items, got 2"):
        RelativeRating().fit(csr_array((1, 3))).transform(csr_array((1, 2)))


tables = st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=12)


@settings(deadline=None)
@given(tables, tables)
def test_ratings_of_ratings_are_the_same_ratings(rows, new_rows):
    """In seen and unseen counts: only their order within an item matters."""
    counts, new = (csr_array(np.array(r, dtype=float)) for r in (rows, new_rows))
    first = RelativeRating().fit(counts)
    second = RelativeRating().fit(first.transform(counts))
    once = first.transform(new)
    np.testing.assert_array_equal(second.transform(once).toarray(), once.toarray())


def test_fit_transform_is_fit_then_transform(counts):
    np.testing.assert_array_equal(
        RelativeRating().fit_transform(counts).toarray(),
        RelativeRating().fit(counts).transform(counts).toarray(),
    )


@settings(deadline=None)
@given(tables, tables, st.integers(0, 3))
def test_merged_distributions_are_those_of_all_rows_together(rows, more_rows, n_further):
    counts = csr_array(np.array(rows, dtype=float))
    more = np.array(more_rows, dtype=float)
    more = csr_array(np.hstack([more, more[:, :n_further]]))  # some items are new
    merged = RelativeRating().fit(counts).merged_with(RelativeRating().fit(more))
    wider = csr_array((counts.data, counts.indices, counts.indptr), (len(rows), more.shape[1]))
    expected = RelativeRating().fit(vstack([wider, more], format="csr"))
    for name in ("item_starts_", "distinct_counts_", "n_watchers_up_to_"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(expected, name))
    np.testing.assert_array_equal(merged.n_watchers, np.bincount(
        np.concatenate([counts.indices, more.indices]), minlength=more.shape[1]
    ))  # fmt: skip


def test_the_same_rows_again_change_no_rating(counts):
    once = RelativeRating().fit(counts)
    twice = once.merged_with(once)
    np.testing.assert_array_equal(twice.transform(counts).data, once.transform(counts).data)


def test_followed_by_keeps_what_is_known_and_adds_the_further_items(counts):
    known, more = RelativeRating().fit(counts[:, :15]), RelativeRating().fit(counts[:30])
    both = known.followed_by(more)
    ratings = both.transform(counts).toarray()
    np.testing.assert_array_equal(ratings[:, :15], known.transform(counts[:, :15]).toarray())
    np.testing.assert_array_equal(ratings[:, 15:], more.transform(counts).toarray()[:, 15:])
    for wrong in (more.followed_by, more.merged_with):
        with pytest.raises(DataError, match="at least 20 items, got 15"):
            wrong(known)


def test_confidence_grows_with_the_rating_from_exactly_one():
    ratings = np.array([0.0, 0.1, 0.5, 1.0])
    expected = [reference.confidence(rating, 300.0) for rating in ratings]
    np.testing.assert_allclose(confidence(ratings, 300.0), expected, rtol=1e-6)
    assert confidence(ratings, 300.0)[0] == 1.0


def test_a_dislike_is_as_sure_as_the_surest_like_and_keeps_its_sign():
    assert confidence(np.array([-1.0, 1.0]), 30.0).tolist() == [-31.0, 31.0]
    assert confidence(np.array([-1.0, 1.0]), 0.0).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("alpha", [-1.0, float("nan"), float("inf")])
def test_an_alpha_without_meaning_is_refused(alpha):
    with pytest.raises(ConfigError, match="alpha must be"):
        confidence(np.array([0.5]), alpha)


def test_a_table_of_all_ratings_changes_nothing(rng):
    counts = csr_array(np.ceil(6 * rng.random((40, 9))) * (rng.random((40, 9)) < 0.4))
    ratings = RelativeRating().fit(counts)
    items = rng.integers(9, size=30)
    asked = rng.choice([-2.0, 0.5, 1.0, 2.0, 2.5, 6.0, 70.0], size=30)
    searched = ratings.of_pairs(items, asked)
    ratings.prepare(30)
    assert "_table" not in vars(ratings)  # it would be larger
    ratings.prepare(1000)
    assert "_table" in vars(ratings)
    np.testing.assert_array_equal(ratings.of_pairs(items, asked), searched)
    ratings.fit(counts[:0])
    np.testing.assert_array_equal(ratings.of_pairs(items, np.ones(30)), np.ones(30))
