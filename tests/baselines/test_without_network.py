from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.baselines import IMF, WithoutNetwork
from cfnade.baselines.without_network import neighbour_weights
from cfnade.errors import ConfigError
from cfnade.fit.plan import FEW_NEIGHBOURS

SETTINGS = {"factors": 3, "alpha": 10.0, "regularization": 2.0, "n_threads": 1}


def test_scores_are_those_of_imf_and_of_each_items_neighbours(counts) -> None:
    model = WithoutNetwork(**SETTINGS, iterations=4, direct_gain=6.0).fit(counts)
    imf = IMF(**SETTINGS, iterations=4).fit(counts).scores(counts)
    likes, B = (counts.toarray() > 0) * 1.0, neighbour_weights(counts).toarray()
    direct = np.array([[sum(row * column) for column in B.T] for row in likes])
    expected = imf / imf.std(axis=1).mean() + 6.0 * direct
    np.testing.assert_allclose(model.scores(counts), expected, rtol=1e-4, atol=1e-5)
    assert (np.diag(B) == 0).all() and (B > 0).any()


def test_without_the_direct_path_it_ranks_as_imf(counts) -> None:
    model = WithoutNetwork(**SETTINGS, iterations=4, direct_gain=0.0).fit(counts)
    imf = IMF(**SETTINGS, iterations=4).fit(counts)
    np.testing.assert_array_equal(
        model.scores(counts).argsort(axis=1), imf.scores(counts).argsort(axis=1)
    )


def test_known_neighbours_are_used_and_stops_equal_fits_of_that_length(counts) -> None:
    known = neighbour_weights(counts)
    on_the_way = list(WithoutNetwork(**SETTINGS, neighbours=known).fits(counts, [2, 5]))
    assert [model.iterations for model in on_the_way] == [2, 5]
    for model in on_the_way:
        assert model.neighbours_ is known
        alone = WithoutNetwork(**SETTINGS, iterations=model.iterations).fit(counts)
        np.testing.assert_array_equal(model.scores(counts), alone.scores(counts))


def test_the_direct_path_is_that_of_a_default_fit(rng) -> None:
    """Few neighbours, as most items have few users."""
    counts = csr_array((rng.random((3000, 200)) < 0.011).astype(float))
    settings = {"n_hidden": 2, "max_epochs": 1, "validation_share": 0.0}
    fitted = ImplicitCFNADE(**settings, readout={"direct_gain": 1.0}).fit(counts)
    found = neighbour_weights(counts)
    np.testing.assert_allclose(
        found.toarray(), fitted.scorer_.network.direct_weight.toarray(), rtol=1e-5
    )
    assert 0 < (found.toarray() > 0).sum(axis=0).max() <= FEW_NEIGHBOURS


def test_a_gain_below_zero_is_refused(counts) -> None:
    with pytest.raises(ConfigError, match="direct_gain must be at least 0"):
        WithoutNetwork(direct_gain=-1.0).fit(counts)
