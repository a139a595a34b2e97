import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.sessions import belonging_together, draw_sessions, gather
from cfnade.data.splitting import hold_out

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
    monkeypatch.setattr("cfnade.data.sessions._DENSE_UP_TO", 3)
    again = draw_sessions(counts, counts, 0.4, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(again, expected)
    monkeypatch.setattr("cfnade.data.sessions._MOST_ITEMS", 4)
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
