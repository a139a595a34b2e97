"""What follows from data to train on: dislikes, histories that decay, repeats on one scale."""

from __future__ import annotations

import weakref

import numpy as np

from cfnade import RelativeRating
from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.readout import NO_READOUT, USUAL, Readout
from cfnade.beyond.recency import recent_counts
from cfnade.data.event_splits import split_random
from cfnade.data.interactions import Interactions
from cfnade.fit import training_part
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings, Recipe
from cfnade.fit.training_part import TrainingPart, find_repeats
from cfnade.model.inference import NetworkScorer
from tests.networks import random_numpy_network
from tests.planted import N_ITEMS, window_shopping


def part_of(data: Interactions) -> TrainingPart:
    plan = FitPlan.of(data.counts, FitSettings(Recipe(readout=NO_READOUT)), clock=data.clock)
    return TrainingPart(data, RelativeRating().fit(data.counts), plan)


def test_dislikes_are_trained_on_but_are_not_in_the_direct_path():
    data = window_shopping().weighed({"view": 1.0, "cart": 2.0, "buy": 4.0, "skip": -9.0})
    part = part_of(data)
    rated, signed = part.rated, part.rated_with_dislikes
    assert (rated.data > 0).all() and rated.nnz == data.counts.nnz
    assert (signed.data < 0).sum() == data.dislikes.nnz > 0
    np.testing.assert_array_equal(np.maximum(signed.toarray(), 0.0), rated.toarray())
    without = part_of(window_shopping())
    assert without.rated_with_dislikes is without.rated


def test_histories_decay_and_have_distributions_of_their_own():
    data = window_shopping(with_times=True)
    part = part_of(data)
    ratings, counts = part.histories(0.0)
    assert ratings is part.ratings and counts is data.counts
    ratings, counts = part.histories(10.0)
    expected = recent_counts(data.log, data.counts.shape, 10.0)
    np.testing.assert_array_equal(counts.toarray(), expected.toarray())
    np.testing.assert_array_equal(
        ratings.transform(counts).toarray(),
        RelativeRating().fit(expected).transform(expected).toarray(),
    )


def test_what_was_put_in_the_cart_is_scored_above_what_was_viewed():
    data = window_shopping().weighed({"view": 1.0, "cart": 9.0, "buy": 9.0, "skip": 0.0}, "buy")
    found = split_random(data, share=0.3, rng=0)
    part, network = part_of(found.train), random_numpy_network(N_ITEMS, n_neighbours=0)
    of_new = NetworkScorer(network, part.ratings)
    repeats = find_repeats(part, of_new, NO_READOUT.or_usual(), found.test)
    assert len(repeats) == 4 and repeats[1] > 0  # the weight of the count
    scorer = part.scorer(network, Readout(direct=False, repeats=repeats).or_usual())
    scores = scorer.scores(found.train.counts)
    bought = found.train.target_counts.toarray() > 0
    of_counts = found.train.counts.toarray()
    carted, viewed = (~bought & (of_counts >= 9), ~bought & (of_counts == 1))
    assert scores[carted].mean() > scores[viewed].mean() + 1


def test_hardly_any_repeats_are_not_modelled():
    data = window_shopping().weighed(None, "buy")
    found = split_random(data, share=0.01, rng=0)
    part, network = part_of(found.train), random_numpy_network(N_ITEMS, n_neighbours=0)
    of_new = NetworkScorer(network, part.ratings)
    assert find_repeats(part, of_new, NO_READOUT.or_usual(), found.test) == ()
    plain = part_of(Interactions.from_matrix(data.counts))
    assert find_repeats(plain, of_new, NO_READOUT.or_usual(), found.test) == ()


def test_neighbours_are_found_once_and_shared_watchers_are_not_kept(monkeypatch):
    made = []

    class Noted(NeighbourRegression):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(weakref.ref(self))

    monkeypatch.setattr(training_part, "NeighbourRegression", Noted)
    data = window_shopping()
    part = TrainingPart(
        data, RelativeRating().fit(data.counts), FitPlan.of(data.counts, FitSettings(Recipe()))
    )
    for gain in (1.0, 2.0):
        assert part.readout_parts.neighbours(Readout(direct_gain=gain)) is not None
    (regression,) = made
    assert regression() is None  # the array takes 1.2 GB at the paper's scale
    expected = NeighbourRegression(part.rated).neighbours(USUAL.direct_l2, 3)
    found = part.readout_parts.neighbours(Readout(direct_gain=1.0, direct_neighbours=3))
    np.testing.assert_array_equal(found[0], expected[0])
