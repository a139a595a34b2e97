from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating, confidence, popularity_logit
from cfnade.model.batches import Exchange, RowsInMemory, first_bias
from cfnade.model.config import TrainingConfig

ALPHA = 30.0


@pytest.fixture
def ratings(counts) -> csr_array:
    empty = csr_array((2, 20))  # two users without any like
    whole = csr_array(np.vstack([counts.toarray(), empty.toarray()]))
    return RelativeRating().fit(whole).transform(whole)


def test_every_user_with_a_like_is_in_one_batch(ratings, rng):
    rows = RowsInMemory(ratings, ALPHA)
    assert rows.n_users == 60
    batches = list(rows.batches(TrainingConfig(batch_size=16), 1, rng))
    assert [n_users for _, n_users in batches] == [16, 16, 16, 12]
    seen = np.vstack([likes.toarray() for likes, _ in batches])
    expected = ratings.toarray()[:60]
    expected = np.where(expected > 0, confidence(expected, ALPHA), 0.0)
    assert sorted(map(tuple, seen)) == sorted(map(tuple, expected.astype(np.float32)))
    assert (seen[:16] != expected[:16]).any()  # in another order


def test_the_order_of_users_follows_from_the_generator(ratings):
    rows, training = RowsInMemory(ratings, ALPHA), TrainingConfig(batch_size=16)

    def first(seed):
        likes, _ = next(rows.batches(training, 1, np.random.default_rng(seed)))
        return likes.toarray()

    np.testing.assert_array_equal(first(0), first(0))
    assert (first(0) != first(1)).any()


def test_watchers_are_counted_and_the_data_is_identified(ratings):
    rows = RowsInMemory(ratings, ALPHA)
    np.testing.assert_array_equal(rows.n_watchers, (ratings.toarray() > 0).sum(axis=0))
    assert rows.identity() == RowsInMemory(ratings.copy(), ALPHA).identity()
    assert rows.identity() != RowsInMemory(ratings, 2 * ALPHA).identity()
    assert rows.identity()[:2] == [62, 20]


def test_dislikes_are_in_the_batches_but_not_among_the_watchers(ratings, rng):
    known = ratings.toarray()
    known[known == 0] = rng.choice([0.0, -1.0], size=(known == 0).sum())
    known[0] = np.minimum(known[0], 0.0)  # no like is left: does not train
    assert (known[60] < 0).any()
    rows, likes = RowsInMemory(csr_array(known), ALPHA), csr_array(np.maximum(known, 0.0))
    alone = RowsInMemory(likes, ALPHA)
    assert rows.n_users == alone.n_users == 59
    np.testing.assert_array_equal(rows.n_watchers, alone.n_watchers)
    np.testing.assert_array_equal(rows.total_confidence(), alone.total_confidence())
    for start in ("zero", "share", "odds"):
        np.testing.assert_array_equal(first_bias(start, rows), first_bias(start, alone))
    assert rows.identity() != alone.identity()
    (batch, n_users), *others = rows.batches(TrainingConfig(batch_size=64), 1, rng)
    assert n_users == 59 and not others
    expected = confidence(known, ALPHA) * (known != 0)
    assert sorted(map(tuple, batch.toarray())) == sorted(map(tuple, expected[1:60]))
    assert batch.toarray().min() == -(1.0 + ALPHA)


def test_the_bias_starts_at_zero_or_the_share_of_watchers(ratings):
    rows = RowsInMemory(ratings, ALPHA)
    assert (first_bias("zero", rows) == 0.0).all() and first_bias("zero", rows).shape == (20,)
    np.testing.assert_allclose(first_bias("share", rows), popularity_logit(ratings))
    share = 1.0 / (1.0 + np.exp(-first_bias("share", rows)))
    np.testing.assert_allclose(share, (rows.n_watchers + 0.5) / 61, rtol=1e-5)


def test_no_bias_is_better_than_the_odds_with_nothing_beside_it(ratings):
    rows = RowsInMemory(ratings, ALPHA)
    bias, dense = first_bias("odds", rows), rows.confidence.toarray()[:60]

    def cost(moved):
        zeros = np.where(dense == 0, np.logaddexp(0, moved), 0.0).sum()
        return zeros + (dense * np.logaddexp(0, -moved)).sum()

    assert cost(bias) < min(cost(bias + 0.2), cost(bias - 0.2), cost(np.zeros(20)))


def test_items_of_nobody_and_of_everybody_have_a_finite_bias():
    rows = RowsInMemory(csr_array([[0.0, 1.0]] * 3), ALPHA)
    for start in ("zero", "share", "odds"):
        bias = first_bias(start, rows)
        assert np.isfinite(bias).all()


def test_one_process_alone_adds_nothing():
    tensors = [torch.ones(3), torch.arange(4.0)]
    Exchange().add_up(tensors)
    assert tensors[0].tolist() == [1.0] * 3 and tensors[1].tolist() == [0.0, 1.0, 2.0, 3.0]
    rows, (values,) = Exchange().add_up_rows(torch.tensor([1, 4]), [torch.ones(2, 3)], 9)
    assert rows.tolist() == [1, 4] and values.tolist() == [[1.0] * 3] * 2
    Exchange().check_same([1, 2], "anything")
    assert Exchange().is_first
