"""Limits from a few columns of V: above all scores, and dropped where they do not pay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.answer import rotation
from cfnade.answer.rotation import RotatedWeights

N_ITEMS, N_HIDDEN = 300, 24
ROUNDING = 2.0**-23 * (N_HIDDEN + 16)


def weights(seed, noise, scale=1.0):
    """V of low rank with noise, and d."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(N_ITEMS, 3)) @ rng.normal(size=(3, N_HIDDEN))
    V = scale * (V + noise * rng.normal(size=V.shape))
    return V.astype(np.float32), (scale * rng.normal(size=N_ITEMS)).astype(np.float32)


@settings(deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    noise=st.sampled_from([0.0, 1e-6, 0.1, 0.5]),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_no_score_exceeds_its_limit(seed, noise, scale):
    V, d = weights(seed, noise, scale)
    hidden = np.tanh(np.random.default_rng(seed).normal(size=(7, N_HIDDEN))).astype(np.float32)
    hidden[0] = 0.0
    made = RotatedWeights(V, d, ROUNDING)
    assert made.pays
    scores = np.stack([np.einsum("ij,ij->i", np.tile(h, (N_ITEMS, 1)), V) + d for h in hidden])
    limits = made.limits(hidden)
    assert limits.shape == scores.shape and (limits >= scores).all()
    norms = np.hypot(np.linalg.norm(hidden, axis=1), 1.0)[:, None] * np.hypot(
        np.linalg.norm(V, axis=1), d
    )
    assert (limits <= 1.001 * norms).all()  # no worse than Cauchy-Schwarz without a rotation


def test_without_dominant_directions_it_does_not_pay():
    assert not RotatedWeights(*weights(0, 9.0), ROUNDING).pays


@pytest.mark.parametrize(("n_in_vain", "pays"), [(31, True), (32, False), (64, False)])
def test_enough_users_judge_whether_it_pays(monkeypatch, n_in_vain, pays):
    monkeypatch.setattr(rotation, "_ENOUGH", 64)
    made = RotatedWeights(*weights(0, 0.1), ROUNDING)
    for _ in range(n_in_vain):
        made.judge(1, in_vain=True)
        assert made.pays or n_in_vain == 64  # too few to judge
    made.judge(64 - n_in_vain, in_vain=False)
    assert made.pays == pays


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_were_not_verified_are_not_rotated(value):
    V, d = weights(0, 0.1)
    V[::3] = value
    assert not RotatedWeights(V, d, ROUNDING).pays
