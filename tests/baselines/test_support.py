from __future__ import annotations

import sys

import numpy as np
import pytest

from cfnade.baselines.support import Iterative, checked_histories, library, plain_csr, stretches
from cfnade.errors import ConfigError, DataError, MissingExtraError


@pytest.mark.parametrize("stops", [[], [0], [2, 2], [3, 1]])
def test_stops_must_ascend_from_at_least_one(stops) -> None:
    assert stretches([1, 2, 7]) == [(1, 1), (2, 1), (7, 5)]
    with pytest.raises(ConfigError, match="at least 1 and ascending"):
        stretches(stops)


def test_a_copy_leaves_the_model_as_it_is() -> None:
    class Model(Iterative):
        iterations = 5

        def fits(self, counts, iterations):
            yield from (self.copy_at(stop) for stop in iterations)

    model = Model()
    fitted = model.copy_at(3, weights_=1.0)
    assert (fitted.iterations, fitted.weights_) == (3, 1.0)
    assert model.iterations == 5 and not hasattr(model, "weights_")


def test_histories_of_other_items_are_refused(counts) -> None:
    assert checked_histories(counts, 20).nnz == counts.nnz
    with pytest.raises(DataError, match="fitted on 19 items, the histories have 20"):
        checked_histories(counts, 19)


def test_pairs_keep_their_places_and_get_the_values(counts) -> None:
    ones = plain_csr(counts, 1.0, np.float64)
    assert ones.dtype == np.float64 and ones.indices.dtype == np.int32
    np.testing.assert_array_equal(ones.toarray(), counts.toarray() > 0)


def test_a_missing_library_is_named_with_its_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit.als", None)
    with pytest.raises(MissingExtraError, match=r"a test needs implicit; .*cfnade\[bench\]"):
        library("implicit.als", "a test")
