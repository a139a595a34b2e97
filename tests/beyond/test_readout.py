from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.readout import (
    GAINS,
    NO_READOUT,
    USUAL,
    Readout,
    ReadoutParts,
    find_readout,
)
from cfnade.errors import ConfigError
from cfnade.model.inference import direct_weight
from tests.networks import random_numpy_network

N_ITEMS, L2 = 20, USUAL.direct_l2


@pytest.fixture
def network():
    return random_numpy_network(N_ITEMS, n_neighbours=0)


@pytest.fixture
def parts(ratings):
    regression = NeighbourRegression(ratings)
    return ReadoutParts(regression.neighbours(L2, regression.n_candidates))


READOUTS = [
    Readout(True, L2, 4, 3.0),
    Readout(True, L2, 100, 3.0),  # more neighbours than there are
    NO_READOUT,
    Readout(),
]


@pytest.mark.parametrize("readout", READOUTS)
def test_a_readout_adds_scaled_neighbours(ratings, network, parts, readout):
    actual = parts.add(network, readout).logits(ratings)
    all_set, expected = readout.or_usual(), network.logits(ratings)
    if readout.direct:
        found = NeighbourRegression(ratings).neighbours(
            all_set.direct_l2, min(all_set.direct_neighbours, N_ITEMS - 1)
        )
        likes = (ratings.toarray() > 0).astype(float)
        expected = expected + all_set.direct_gain * likes @ direct_weight(*found).toarray()
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("readout", READOUTS)
def test_scores_to_add_are_what_the_readout_adds_to_the_network(ratings, network, parts, readout):
    histories = ratings[:7]
    at_gain_1 = parts.scores(readout, histories)
    expected = parts.add(network, readout).logits(histories) - network.logits(histories)
    if not readout.direct:
        assert at_gain_1 is None and (expected == 0.0).all()
    else:
        scores = readout.or_usual().direct_gain * at_gain_1
        np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_without_neighbours_there_is_no_direct_path(ratings, network):
    parts = ReadoutParts(None)
    assert parts.neighbours(USUAL) is None and parts.scores(USUAL, ratings) is None
    assert parts.add(network, USUAL).config == network.config


def test_the_network_itself_is_not_changed(ratings, network, parts):
    before, weights = network.logits(ratings), dict(network.weights)
    parts.add(network, Readout())
    np.testing.assert_array_equal(network.logits(ratings), before)
    assert network.weights.keys() == weights.keys()


def test_the_usual_value_stands_in_for_none():
    assert Readout().or_usual() == USUAL and USUAL.or_usual() is not None
    filled = Readout(direct=False, direct_l2=5.0).or_usual()
    assert filled == replace(USUAL, direct=False, direct_l2=5.0)
    assert None not in asdict(filled).values()
    assert USUAL.direct_gain in GAINS and list(GAINS) == sorted(GAINS)


@pytest.mark.parametrize("gain", GAINS)
def test_what_is_fixed_stays_and_the_gain_is_found(gain):
    def cost(tried):
        return abs(np.log(tried.direct_gain / gain))

    wanted = Readout(True, 300.0, 7, gain).or_usual()
    assert find_readout(Readout(direct_l2=300.0, direct_neighbours=7), cost) == wanted
    assert find_readout(Readout(), cost) == replace(USUAL, direct_gain=gain)


@pytest.mark.parametrize("fixed", [Readout(True, 5.0, 2, 1.5), Readout(direct=False)])
def test_where_nothing_is_searched_validation_is_not_looked_at(fixed):
    looks: list[Readout] = []
    assert find_readout(fixed, lambda tried: float(len(looks.append(tried) or looks))) == (
        fixed.or_usual()
    )
    assert not looks


@pytest.mark.parametrize(
    "wrong",
    [
        {"direct_l2": 0.0},
        {"direct_gain": -1.0},
        {"direct_neighbours": 0},
        {"direct_neighbours": 2.5},
        {"direct": "no"},
        {"direct": None},
    ],
)
def test_settings_without_meaning_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Readout(**wrong)


@pytest.mark.parametrize("repeats", [2.5, 7, "weights", (1.0,), [1.0, "a", 2.0, 3.0], {}])
def test_repeats_are_a_list_of_numbers(repeats):
    with pytest.raises(ConfigError, match="repeats"):
        Readout(repeats=repeats)
