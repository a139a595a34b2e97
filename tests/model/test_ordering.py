from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from cfnade.model.ordering import draw_context, split_batch


def test_there_is_always_a_target_and_the_number_of_context_items_is_uniform(rng):
    sizes = [int(draw_context(5, None, rng).sum()) for _ in range(5000)]
    share = np.bincount(sizes, minlength=6) / 5000
    np.testing.assert_allclose(share, [0.2] * 5 + [0.0], atol=0.03)


def test_a_fixed_share_of_the_items_is_context_and_each_item_equally_often(rng):
    draws = np.array([draw_context(10, 0.5, rng) for _ in range(4000)])
    assert (draws.sum(axis=1) == 5).all()
    np.testing.assert_allclose(draws.mean(axis=0), 0.5, atol=0.04)
    assert draw_context(1, 0.9, rng).tolist() == [False]


def test_a_batch_is_parted_without_loss(rng):
    batch = csr_array(rng.random((6, 8)) * (rng.random((6, 8)) < 0.5))
    in_context = np.array([True, False, True, False, False, True, False, True])
    context, targets = split_batch(batch, in_context)
    np.testing.assert_array_equal(context.toarray(), batch.toarray() * in_context)
    np.testing.assert_array_equal(targets.toarray(), batch.toarray()[:, ~in_context])
