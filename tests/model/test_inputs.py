from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.model.config import ModelConfig
from cfnade.model.inputs import input_weight, rescaling_without, with_values

CONTEXT = csr_array(np.array([[4.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))


@pytest.mark.parametrize(
    ("input_scale", "expected"),
    [
        ("none", [4.0, 2.0, 1.0]),
        ("alpha", [1.0, 0.5, 0.25]),
        ("history", [1.0 / 1.5**0.5, 0.5 / 1.5**0.5, 0.5]),
    ],
)
def test_confidences_enter_as_configured(input_scale, expected):
    config = ModelConfig(3, alpha=3.0, input_scale=input_scale)
    np.testing.assert_allclose(input_weight(CONTEXT, config), expected)


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_leaving_an_item_out_rescales_the_others_as_a_new_sum_would(rng, input_scale):
    config = ModelConfig(5, alpha=3.0, input_scale=input_scale)
    confidences = 1.0 + 3.0 * rng.random(5)
    whole = input_weight(csr_array(confidences[None, :]), config)
    factors = rescaling_without(csr_array(confidences[None, :]), config)
    for left_out in range(5):
        rest = confidences.copy()
        rest[left_out] = 0.0
        expected = input_weight(csr_array(rest[None, :]), config)
        actual = factors[left_out] * np.delete(whole, left_out)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert rescaling_without(csr_array([[2.0, 0.0]]), config).tolist() == [0.0]


def test_other_values_leave_the_matrix_as_it_was():
    changed = with_values(CONTEXT, np.array([7.0, 8.0, 9.0]))
    assert changed.toarray().tolist() == [[7.0, 0.0, 8.0], [0.0, 0.0, 0.0], [0.0, 9.0, 0.0]]
    assert CONTEXT.data.tolist() == [4.0, 2.0, 1.0]
