"""The collective model: one weight per source, against the sum written out."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.baselines import IMF, CollectiveIMF
from cfnade.baselines.imf import _confidences
from cfnade.data.interactions import Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.errors import DataError
from tests.planted import window_shopping

WEIGHTS = {"buy": 1.0, "cart": 0.3, "view": 0.1, "skip": 0.0}


@pytest.fixture(scope="module")
def fitted():
    model = CollectiveIMF(factors=8, alpha=10.0, iterations=3, event_weights=WEIGHTS)
    return model.fit(window_shopping())


def test_the_confidence_adds_up_the_weighted_relative_ratings_of_the_sources(fitted):
    data = window_shopping()
    expected = np.zeros(data.counts.shape)
    for kind, weight in WEIGHTS.items():
        source = data.log.of_kind(kind).counts(data.counts.shape)
        expected += weight * RelativeRating().fit(source).transform(source).toarray()
    histories = fitted.histories(data)
    np.testing.assert_allclose(histories.toarray(), expected, rtol=1e-12)
    found = _confidences(fitted.imf.relative_rating_, histories, 10.0)
    np.testing.assert_allclose(found.data, 1.0 + 10.0 * histories.data, rtol=1e-5)


def test_with_one_source_it_is_imf():
    data = window_shopping()
    only = {kind: float(kind == "buy") for kind in data.log.kinds}
    bought = data.log.of_kind("buy").counts(data.counts.shape)
    settings = {"factors": 8, "alpha": 10.0, "iterations": 3}
    collective = CollectiveIMF(**settings, event_weights=only).fit(data)
    plain = IMF(**settings).fit(bought)
    scores = collective.scores(collective.histories(data))
    np.testing.assert_allclose(scores, plain.scores(bought), atol=1e-4)


def test_each_stop_equals_a_fit_of_that_many_iterations(fitted):
    data = window_shopping()
    settings = {"factors": 8, "alpha": 10.0, "event_weights": WEIGHTS}
    stops = list(CollectiveIMF(**settings).fits(data, [1, 3]))
    assert [stop.iterations for stop in stops] == [1, 3]
    histories = fitted.histories(data)
    np.testing.assert_allclose(stops[1].scores(histories), fitted.scores(histories), atol=1e-5)
    assert np.abs(stops[0].scores(histories) - stops[1].scores(histories)).max() > 1e-3


def test_data_without_kinds_of_events_get_a_clear_error():
    data = Interactions.from_matrix(window_shopping().counts)
    with pytest.raises(DataError, match="kind of each event"):
        CollectiveIMF().fit(data)
