from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from cfnade.data.splitting import (
    belonging_together,
    draw_sessions,
    gather,
    hold_out,
    overlap,
    split_counts,
    without_overlap,
)
from cfnade.errors import ConfigError, DataError


def test_the_three_parts_are_disjoint_and_add_up(counts):
    split = split_counts(counts)
    parts = [split.train, split.validation, split.test]
    total = sum(part.toarray() for part in parts)
    np.testing.assert_array_equal(total, counts.toarray())
    assert sum(part.nnz for part in parts) == counts.nnz
    np.testing.assert_array_equal(
        split.known.toarray(), split.train.toarray() + split.validation.toarray()
    )


def test_a_tenth_of_each_users_items_is_held_out_and_at_least_one():
    counts = csr_array(np.tri(41, 40, k=-1))  # user k has k items
    _, held_out = hold_out(counts, share=0.1, min_items=5)
    n_held = np.diff(held_out.indptr)
    assert n_held[:5].tolist() == [0] * 5
    assert n_held[5:16].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert n_held[40] == 4


def test_users_with_too_few_items_stay_whole_in_train():
    counts = csr_array(np.array([[1.0, 2, 3, 4, 0], [0, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0] * 5]))
    kept, held_out = hold_out(counts, min_items=5)
    assert np.diff(held_out.indptr).tolist() == [0, 0, 1, 0]
    assert np.diff(kept.indptr).tolist() == [4, 4, 4, 0]


@pytest.mark.parametrize("n_users", [None, 60])
@pytest.mark.parametrize("by", ["pairs", "events"])
def test_no_item_loses_its_last_pair(by, n_users):
    rng = np.random.default_rng(0)
    counts = csr_array((rng.random((80, 300)) < rng.beta(0.3, 6.0, 300)) * 1.0)
    had = np.bincount(counts.indices, minlength=300)
    kept, held_out = hold_out(counts, share=0.4, by=by, n_users=n_users, rng=1)
    left = np.bincount(kept.indices, minlength=300)
    assert (left[had > 0] > 0).all() and (had == 1).sum() > 20
    np.testing.assert_array_equal((kept + held_out).toarray(), counts.toarray())
    taken = np.bincount(held_out.indices, minlength=300)
    assert taken[had == 1].sum() == 0
    assert taken[had == 2].max() == 1  # where both were drawn, one of them stays


def test_an_item_that_others_have_is_held_out_of_the_few_as_well():
    counts = csr_array(np.ones((500, 10)))
    _, held_out = hold_out(counts, n_users=1, rng=0)
    assert np.count_nonzero(np.diff(held_out.indptr)) == 1 and held_out.nnz == 1


def test_same_seed_same_split_and_another_seed_another(counts):
    first, again, other = (split_counts(counts, rng=seed).test.toarray() for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_each_item_of_a_user_is_held_out_equally_often():
    counts = csr_array(np.ones((4000, 5)))
    _, held_out = hold_out(counts, rng=0)
    share = np.bincount(held_out.indices, minlength=5) / 4000
    np.testing.assert_allclose(share, 0.2, atol=0.03)


def test_by_events_those_items_are_held_out_of_which_no_event_is_left_behind():
    counts = np.array([1, 1, 2, 3, 1])
    _, held_out = hold_out(csr_array(np.tile(counts, (40_000, 1)) * 1.0), by="events", rng=0)
    # Literally: every event is held out or not; users of whom one item is wholly held out.
    rng = np.random.default_rng(1)
    thrown = [rng.random((300_000, n)) < 0.1 for n in counts]
    is_held = np.stack([events.all(axis=1) for events in thrown], axis=1)  # (n_draws, n_items)
    literal = is_held[is_held.sum(axis=1) == 1].mean(axis=0)
    share_of_item = np.bincount(held_out.indices, minlength=5) / 40_000
    np.testing.assert_allclose(share_of_item, literal, atol=0.01)
    assert literal[2] < 0.1 * literal[0]


def test_by_events_as_many_items_are_held_out_as_are_to_be_expected():
    counts = np.array([1] * 40 + [2] * 40 + [5] * 20)
    _, held_out = hold_out(csr_array(np.tile(counts, (3000, 1)) * 1.0), by="events", rng=0)
    assert (np.diff(held_out.indptr) == 4).all()  # 40 * 0.1 + 40 * 0.01 and hardly more
    rng = np.random.default_rng(1)
    is_held = np.stack([(rng.random((30_000, n)) < 0.1).all(axis=1) for n in counts], axis=1)
    literal = is_held[is_held.sum(axis=1) == 4].mean(axis=0)
    share_of_item = np.bincount(held_out.indices, minlength=100) / 3000
    for items in (slice(40), slice(40, 80), slice(80, 100)):
        assert abs(share_of_item[items].mean() - literal[items].mean()) < 0.003


def test_by_events_plays_in_thousands_leave_the_rarest_items():
    keeps_it = [0.0, 0, 0, 0, 1]  # too few items to give one
    counts = csr_array(np.array([[5000.0, 7000, 9000, 20_000, 3000]] * 3 + [keeps_it]))
    _, held_out = hold_out(counts, by="events")
    assert held_out.indices.tolist() == [4, 4, 4]


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.99), st.sampled_from(["pairs", "events"]))
def test_nobody_loses_everything(seed, share, by):
    rng = np.random.default_rng(seed)
    counts = csr_array((rng.random((9, 7)) < 0.6) * 1.0)
    kept, held_out = hold_out(counts, share=share, min_items=2, by=by, rng=seed)
    np.testing.assert_array_equal((kept + held_out).toarray(), counts.toarray())
    assert (np.diff(kept.indptr)[np.diff(counts.indptr) > 0] > 0).all()


def test_a_share_of_zero_holds_out_nothing(counts):
    kept, held_out = hold_out(counts, share=0.0)
    assert held_out.nnz == 0
    np.testing.assert_array_equal(kept.toarray(), counts.toarray())


def test_overlap_of_train_and_test_is_found_and_can_be_dropped():
    train = csr_array(np.array([[1.0, 0, 2], [0, 0, 0]]))
    test = csr_array(np.array([[5.0, 3, 0], [0, 1, 0]]))
    assert overlap(train, test).toarray().tolist() == [[5.0, 0, 0], [0, 0, 0]]
    assert without_overlap(train, test).toarray().tolist() == [[0, 3.0, 0], [0, 1, 0]]


def test_a_split_of_too_little_data_is_refused_in_one_line():
    with pytest.raises(DataError, match="no user has 5 items or more"):
        split_counts(csr_array(np.ones((3, 4))))


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="share must be at least 0 and below 1"):
        hold_out(csr_array((1, 1)), share=1.0)
    with pytest.raises(ConfigError, match="min_items must be at least 2"):
        hold_out(csr_array((1, 1)), min_items=1)


# Sessions ---------------------------------------------------------------------------------------

N_BASKETS, BASKET = 15, 4


def shoppers(n_users: int, rng: np.random.Generator) -> csr_array:
    """Everybody has two or three of fifteen baskets, of four items each."""
    has = np.zeros((n_users, N_BASKETS * BASKET))
    for row in has:
        for basket in rng.permutation(N_BASKETS)[: rng.integers(2, 4)]:
            row[basket * BASKET : (basket + 1) * BASKET] = rng.random(BASKET) < 0.9
    return csr_array(np.where(has, 1.0, 0.0))


def reference_together(likes: np.ndarray) -> np.ndarray:
    """The docstring of `belonging_together` as plain loops."""
    n_users, n_items = likes.shape
    log_lift = np.zeros((n_items, n_items))
    for i in range(n_items):
        for j in range(n_items):
            both = sum(likes[u, i] * likes[u, j] for u in range(n_users))
            by_chance = sum(likes[:, i]) * sum(likes[:, j]) / n_users
            log_lift[i, j] = np.log(both / (by_chance + 1.0) + 0.2)
    mean = [np.mean([log_lift[i, j] for j in range(n_items) if j != i]) for i in range(n_items)]
    return np.array(
        [
            [
                0.0 if i == j else log_lift[i, j] - mean[i] - mean[j] + np.mean(mean)
                for j in range(n_items)
            ]
            for i in range(n_items)
        ]
    )


def test_belonging_together_equals_its_definition(rng):
    likes = (rng.random((30, 7)) < 0.4) * 1.0
    shared = (likes.T @ likes).astype(np.float32)
    np.testing.assert_allclose(
        belonging_together(shared, 30),
        reference_together(likes),
        atol=1e-5,
    )


def test_what_is_bought_together_is_a_session(rng):
    counts = shoppers(400, rng)
    is_drawn = draw_sessions(counts, counts, 0.4, 5, rng)
    user_of = np.repeat(np.arange(400), np.diff(counts.indptr))

    def share_of_one_basket(is_chosen: np.ndarray) -> float:
        """How many of a user's chosen items are in the basket that most of them are in."""
        baskets = [counts.indices[is_chosen & (user_of == u)] // BASKET for u in range(400)]
        return sum(np.bincount(b).max() for b in baskets if b.size) / is_chosen.sum()

    shuffled = np.lexsort((rng.random(counts.nnz), user_of))  # within users
    assert share_of_one_basket(is_drawn) > share_of_one_basket(is_drawn[shuffled]) + 0.15


def test_a_session_is_as_popular_as_everything(rng):
    # Items of very different popularity that belong together with none.
    counts = csr_array((rng.random((500, 60)) < np.linspace(0.05, 0.9, 60)) * 1.0)
    n_watchers = np.bincount(counts.indices, minlength=60)
    is_drawn = draw_sessions(counts, counts, 0.2, 5, rng)
    drawn, all_pairs = n_watchers[counts.indices[is_drawn]], n_watchers[counts.indices]
    assert abs(drawn.mean() / all_pairs.mean() - 1.0) < 0.05


def test_what_was_bought_twice_is_never_in_a_session(rng):
    counts = shoppers(50, rng)
    counts.data[rng.random(counts.nnz) < 0.5] = 2.0
    assert counts.data[draw_sessions(counts, counts, 0.5, 5, rng)].max() == 1.0
    counts.data[:] = 3.0
    assert not draw_sessions(counts, counts, 0.5, 5, rng).any()


def test_many_items_are_drawn_from_alike(rng, monkeypatch):
    counts = shoppers(60, rng)
    expected = draw_sessions(counts, counts, 0.4, 5, np.random.default_rng(1))
    monkeypatch.setattr("cfnade.data.splitting._DENSE_UP_TO", 3)
    again = draw_sessions(counts, counts, 0.4, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(again, expected)
    monkeypatch.setattr("cfnade.data.splitting._MOST_ITEMS", 4)
    few = draw_sessions(counts, counts, 0.9, 5, np.random.default_rng(1))
    assert 0 < few.sum() < expected.sum() * 3
    assert np.add.reduceat(few, counts.indptr[:-1][np.diff(counts.indptr) > 0]).max() <= 4


def test_no_item_is_in_the_sessions_of_all_who_have_it(rng):
    counts = csr_array(np.ones((3, 8)))
    kept, held_out = hold_out(counts, share=0.9, by="sessions", rng=rng)
    assert held_out.nnz
    assert (np.bincount(kept.indices, minlength=8) >= 1).all()


def test_counts_below_one_are_single_events(rng):
    counts = shoppers(40, rng)
    counts.data[:] = 0.5
    assert draw_sessions(counts, counts, 0.3, 5, rng).any()


def test_gather_draws_by_the_product_of_lifts(rng):
    lift = np.array(
        [[1.0, 2.0, 1.0, 4.0], [2.0, 1.0, 3.0, 0.5], [1.0, 3.0, 1.0, 1.0], [4.0, 0.5, 1.0, 1.0]]
    )
    log_lift = np.log(lift).astype(np.float32)
    drawn = [tuple(gather(log_lift, 0, 3, rng)[1:].tolist()) for _ in range(20_000)]
    for first, second in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)]:
        odds = {item: lift[0, item] * lift[first, item] for item in {1, 2, 3} - {first}}
        chance = lift[0, first] / 7.0 * odds[second] / sum(odds.values())
        assert drawn.count((first, second)) / 20_000 == pytest.approx(chance, abs=0.012)


def test_gather_gives_every_size_up_to_all(rng):
    for n_items in (1, 2, 3, 5, 8, 21):
        together = rng.normal(size=(n_items, n_items)).astype(np.float32)
        for size in range(1, n_items + 1):
            gathered = gather(together, n_items - 1, size, rng)
            assert len(set(gathered.tolist())) == size


def test_hold_out_by_sessions_adds_up_and_repeats(rng):
    counts = shoppers(120, rng)
    is_asked = np.arange(120) % 2 == 0
    parts = [hold_out(counts, share=0.3, by="sessions", among=is_asked, rng=7) for _ in range(2)]
    (kept, held_out), (_, again) = parts
    np.testing.assert_array_equal((kept + held_out).toarray(), counts.toarray())
    np.testing.assert_array_equal(held_out.toarray(), again.toarray())
    assert held_out.nnz and kept.multiply(held_out).nnz == 0
    has_held_out = np.diff(held_out.indptr) > 0
    assert not has_held_out[~is_asked].any()
    assert (np.diff(kept.indptr)[has_held_out] > 0).all()
    few = hold_out(counts, share=0.3, by="sessions", n_users=9, among=is_asked, rng=7)[1]
    assert 0 < np.count_nonzero(np.diff(few.indptr)) <= 9
