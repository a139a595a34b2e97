from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.model.ordering import N_STARTS, Window, draw_window, split_batch


def in_context(window: Window) -> np.ndarray:
    """Whether each place is in the context, (n_items,)."""
    return window.target_number(np.arange(window.n_items)) >= window.n_targets


def test_there_is_always_a_target_and_the_number_of_context_items_is_uniform(rng):
    sizes = [int(in_context(draw_window(5, None, rng)).sum()) for _ in range(5000)]
    share = np.bincount(sizes, minlength=6) / 5000
    np.testing.assert_allclose(share, [0.2] * 5 + [0.0], atol=0.03)


def test_a_fixed_share_of_the_items_is_context_and_each_item_equally_often(rng):
    draws = np.array([in_context(draw_window(10, 0.5, rng)) for _ in range(4000)])
    assert (draws.sum(axis=1) == 5).all()
    np.testing.assert_allclose(draws.mean(axis=0), 0.5, atol=0.04)
    assert in_context(draw_window(1, 0.9, rng)).tolist() == [False]


@pytest.mark.parametrize("n_items", [3, 10, 32, 1000])
def test_targets_of_a_fixed_number_start_at_a_few_places_around_the_circle(rng, n_items):
    windows = [draw_window(n_items, 0.5, rng) for _ in range(600)]
    starts = {window.start for window in windows}
    assert (
        starts == {k * n_items // N_STARTS for k in range(N_STARTS)} == starts & set(range(n_items))
    )
    assert len(starts) == min(n_items, N_STARTS)
    # So products have few sizes, of whole windows and of the two parts of those across the end.
    sizes = {at.stop - at.start for window in windows for at, _ in window.blocks()}
    assert len(sizes) <= N_STARTS + 1


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("n_targets", [1, 3, 8])
def test_the_blocks_are_the_targets_in_their_order_around_the_circle(start, n_targets):
    window = Window(8, start, n_targets)
    places = [(start + k) % 8 for k in range(n_targets)]
    assert np.flatnonzero(~in_context(window)).tolist() == sorted(places)
    assert window.target_number(np.array(places)).tolist() == list(range(n_targets))
    place_of = {}
    for numbers, at in window.blocks():
        pieces = (range(piece.start, piece.stop) for piece in (numbers, at))
        place_of |= dict(zip(*pieces, strict=True))
    assert place_of == dict(enumerate(places))


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("n_targets", [1, 3, 8])
def test_every_place_is_a_target_or_in_the_context(start, n_targets):
    window = Window(8, start, n_targets)
    targets, context = (
        [place for at in places for place in range(8)[at]]
        for places in (window.target_places, window.context_places)
    )
    assert sorted(targets + context) == list(range(8))
    np.testing.assert_array_equal(np.isin(np.arange(8), context), in_context(window))


def test_a_batch_is_split_without_loss(rng):
    batch = csr_array(rng.random((6, 8)) * (rng.random((6, 8)) < 0.5))
    window = Window(8, start=6, n_targets=5)
    context, targets = split_batch(batch, window)
    np.testing.assert_array_equal(context.toarray(), batch.toarray() * in_context(window))
    np.testing.assert_array_equal(targets.toarray(), batch.toarray()[:, [6, 7, 0, 1, 2]])
