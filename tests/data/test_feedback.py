from __future__ import annotations

import numpy as np
import pytest

from cfnade.data.feedback import confidence
from cfnade.errors import ConfigError
from tests import reference


def test_confidence_grows_with_the_rating_from_exactly_one():
    ratings = np.array([0.0, 0.1, 0.5, 1.0])
    expected = [reference.confidence(rating, 300.0) for rating in ratings]
    np.testing.assert_allclose(confidence(ratings, 300.0), expected, rtol=1e-6)
    assert confidence(ratings, 300.0)[0] == 1.0


@pytest.mark.parametrize("alpha", [-1.0, float("nan"), float("inf")])
def test_an_alpha_without_meaning_is_refused(alpha):
    with pytest.raises(ConfigError, match="alpha must be"):
        confidence(np.array([0.5]), alpha)
