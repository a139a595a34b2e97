from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.readout import (
    GRID,
    MAX_TRIALS,
    NO_READOUT,
    USUAL,
    Readout,
    ReadoutParts,
    ReadoutScores,
    find_readout,
)
from cfnade.data.ratings import popularity_logit
from cfnade.errors import ConfigError
from cfnade.model.inference import direct_weight
from tests.networks import random_numpy_network

N_ITEMS = 20


@pytest.fixture
def network():
    return random_numpy_network(N_ITEMS, n_neighbours=0)


@pytest.fixture
def parts(ratings):
    return ReadoutParts(ratings, NeighbourRegression(ratings))


READOUTS = [
    Readout(True, 7.0, 4, 3.0, -0.25),
    Readout(True, 7.0, 100, 3.0, 0.0),  # more neighbours than there are
    Readout(False, popularity_tilt=0.5),
    NO_READOUT,
    Readout(),
]


@pytest.mark.parametrize("readout", READOUTS)
def test_a_readout_adds_scaled_neighbours_and_popularity(ratings, network, parts, readout):
    actual = parts.add(network, readout).logits(ratings)
    all_set, expected = readout.or_usual(), network.logits(ratings)
    if readout.direct:
        found = NeighbourRegression(ratings).neighbours(
            all_set.direct_l2, min(all_set.direct_neighbours, N_ITEMS - 1)
        )
        likes = (ratings.toarray() > 0).astype(float)
        expected = expected + all_set.direct_gain * likes @ direct_weight(*found).toarray()
    expected = expected + all_set.popularity_tilt * popularity_logit(ratings)
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("readout", READOUTS)
def test_scores_to_add_are_what_the_readout_adds_to_the_network(ratings, network, parts, readout):
    histories = ratings[:7]
    scores = ReadoutScores(parts, histories)
    for tried in (Readout(True, 2.0, 3, 1.0, 0.1), readout):  # the direct path is kept between
        expected = parts.add(network, tried).logits(histories) - network.logits(histories)
        np.testing.assert_allclose(scores.of(tried), expected, atol=1e-4)


def test_without_a_regression_there_is_no_direct_path(ratings, network):
    parts = ReadoutParts(ratings, None)
    assert parts.neighbours(USUAL) is None
    assert parts.add(network, USUAL).config == network.config
    assert (ReadoutScores(parts, ratings).of(USUAL) == 0.0).all()


def test_the_network_itself_is_not_changed(ratings, network, parts):
    before, weights = network.logits(ratings), dict(network.weights)
    parts.add(network, Readout(popularity_tilt=0.5))
    np.testing.assert_array_equal(network.logits(ratings), before)
    assert network.weights.keys() == weights.keys()


def test_regressions_of_the_same_l2_are_made_once(ratings, network):
    calls = []

    class Counting(NeighbourRegression):
        def neighbours(self, l2, n_neighbours):
            calls.append(l2)
            return super().neighbours(l2, n_neighbours)

    scores = ReadoutScores(ReadoutParts(ratings, Counting(ratings)), ratings)
    for readout in (USUAL, replace(USUAL, direct_gain=3.0), replace(USUAL, direct_neighbours=2)):
        scores.of(readout)
    scores.of(replace(USUAL, direct_l2=1.0))
    assert calls == [USUAL.direct_l2, 1.0]


def test_the_usual_value_stands_in_for_none():
    assert Readout().or_usual() == USUAL and USUAL.or_usual() is not None
    given = Readout(direct=False, direct_l2=5.0, popularity_tilt=-0.1)
    filled = given.or_usual()
    assert filled == replace(USUAL, direct=False, direct_l2=5.0, popularity_tilt=-0.1)
    assert None not in asdict(filled).values()
    for name, values in GRID.items():
        assert getattr(USUAL, name) in values and list(values) == sorted(values)


def test_what_is_fixed_stays_and_both_strengths_are_found():
    wanted = Readout(True, 300.0, 7, 40.0, -0.2)

    def cost(tried):  # a smooth bowl around what is wanted
        far = abs(tried.popularity_tilt - wanted.popularity_tilt)
        return far + abs(np.log(tried.direct_gain / wanted.direct_gain))

    assert find_readout(Readout(direct_l2=300.0, direct_neighbours=7), cost) == wanted
    usual = replace(USUAL, direct_gain=40.0, popularity_tilt=-0.2)
    assert find_readout(Readout(), cost) == usual  # nothing else is searched for
    gain = find_readout(replace(wanted, direct_gain=None), lambda tried: tried.direct_gain)
    assert gain == replace(wanted, direct_gain=min(GRID["direct_gain"]))


def test_all_fixed_means_one_look():
    fixed, looks = Readout(True, 5.0, 2, 1.5, 0.3), []
    found = find_readout(fixed, lambda tried: float(len(looks.append(tried) or looks)))
    assert found == fixed and looks == [fixed]


def test_without_a_direct_path_popularity_alone_is_searched():
    tried = []
    found = find_readout(Readout(direct=False), lambda r: tried.append(r) or 1.0)
    assert found == replace(USUAL, direct=False)
    assert {replace(r, popularity_tilt=0.0) for r in tried} == {found}
    assert 1 < len(tried) <= len(GRID["popularity_tilt"])


def test_a_search_ends_after_some_trials():
    tried = []
    find_readout(Readout(), lambda r: tried.append(r) or -float(len(tried)))
    assert len(tried) <= MAX_TRIALS


@pytest.mark.parametrize(
    "wrong",
    [
        {"direct_l2": 0.0},
        {"direct_gain": -1.0},
        {"direct_neighbours": 0},
        {"direct_neighbours": 2.5},
        {"popularity_tilt": float("nan")},
        {"popularity_tilt": "much"},
        {"direct": "no"},
        {"direct": None},
    ],
)
def test_settings_without_meaning_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Readout(**wrong)
