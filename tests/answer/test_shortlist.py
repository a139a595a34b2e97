"""The shortlist gives the items and scores of a plain sort of all scores, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.answer import shortlist
from cfnade.answer.shortlist import Shortlist
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork

N_HIDDEN, N_ITEMS, N_USERS = 24, 400, 7


@pytest.fixture(autouse=True)
def _pairs_are_scored_in_several_parts(monkeypatch):
    monkeypatch.setattr(shortlist, "_PAIRS", 50)


def network_of(V: np.ndarray, d: np.ndarray) -> NumpyNetwork:
    n_items, n_hidden = V.shape
    nothing = np.zeros((n_items, n_hidden), dtype=np.float32)
    weights = {
        "like_weight": nothing,
        "dislike_weight": nothing,
        "hidden_bias": nothing[0],
        "output_weight": V.astype(np.float32),
        "output_bias": d.astype(np.float32),
    }
    return NumpyNetwork(ModelConfig(n_items, n_hidden), weights)


def all_scores(network, hidden, added):
    """Every item scored alone, (n_users, n_items)."""
    V, d = network.weights["output_weight"], network.weights["output_bias"]
    scores = np.stack([np.einsum("ij,ij->i", np.tile(h, (len(V), 1)), V) + d for h in hidden])
    return scores + added


def plain_sort(scores, n):
    """Rows, columns and scores of the best n, by Python's sort."""
    found = []
    for row, own in enumerate(scores):
        allowed = [column for column in range(own.size) if own[column] > -np.inf]
        best = sorted(allowed, key=lambda column: (-own[column], column))[:n]
        found += [(row, column, own[column]) for column in best]
    return [list(part) for part in zip(*found, strict=True)] if found else [[], [], []]


def random_case(seed, noise, scale, kind):
    """V of low rank with noise; `kind` is how alike items are."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(N_ITEMS, 3)) @ rng.normal(size=(3, N_HIDDEN))
    V += noise * rng.normal(size=V.shape)
    d = rng.normal(size=N_ITEMS)
    V, d = (scale * V).astype(np.float32), (scale * d).astype(np.float32)
    direct = rng.random((N_USERS, N_ITEMS)).astype(np.float32)
    if kind != "all different":
        same = rng.integers(20, size=N_ITEMS)  # twenty groups of equal items
        V, d, direct = V[same], d[same], direct[:, same]
    if kind == "nearly equal":
        V = np.nextafter(V, rng.choice([-9e9, 0, 9e9], size=V.shape).astype(np.float32))
        d = np.nextafter(d, rng.choice([-9e9, 9e9], size=d.shape).astype(np.float32))
    hidden = np.tanh(rng.normal(size=(N_USERS, N_HIDDEN))).astype(np.float32)
    hidden[0] = 0.0
    direct[rng.random(direct.shape) < 0.2] = -np.inf  # may not be recommended
    direct[1, 3:] = -np.inf
    direct[2] = -np.inf
    return network_of(V, d), hidden, direct


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 30),
    noise=st.sampled_from([0.0, 0.1, 0.5, 3.0]),
    scale=st.sampled_from([1e-4, 1.0, 1e3]),
    kind=st.sampled_from(["all different", "equal", "nearly equal"]),
    n=st.sampled_from([1, 2, 5, 12, 13, 100, N_ITEMS, 2 * N_ITEMS]),
    has_direct=st.booleans(),
)
def test_items_and_scores_are_those_of_a_plain_sort(seed, noise, scale, kind, n, has_direct):
    network, hidden, added = random_case(seed, noise, scale, kind)
    if not has_direct:
        added = np.minimum(added, np.float32(0.0))
    found = Shortlist(network).best(hidden, added, n)
    assert [part.tolist() for part in found] == plain_sort(all_scores(network, hidden, added), n)
    assert found[2].dtype == np.float32


@settings(deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    noise=st.sampled_from([0.0, 1e-6, 0.1, 0.5, 3.0]),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_no_score_exceeds_its_limits(seed, noise, scale):
    network, hidden, _ = random_case(seed, noise, scale, "all different")
    made, scores = Shortlist(network), all_scores(network, hidden, 0.0)
    assert (made._limits(hidden) >= scores).all()
    if made._is_rotated:
        assert (made._rough_limits(hidden) >= scores).all()
    exact = hidden.astype(np.float64) @ network.weights["output_weight"].T.astype(np.float64)
    exact += network.weights["output_bias"]
    np.testing.assert_allclose(made._limits(hidden), exact, atol=1e-3 * scale, rtol=1e-4)


@pytest.mark.parametrize(
    ("noise", "is_rotated", "pays", "most_scored"),
    [(0.1, True, True, 0.1), (0.4, True, False, 0.5), (3.0, False, False, 0.1)],
)
def test_few_items_are_scored_alone(monkeypatch, noise, is_rotated, pays, most_scored):
    network, hidden, added = random_case(0, noise, 1.0, "all different")
    made, n_scored = Shortlist(network), []
    score = made._scored
    monkeypatch.setattr(
        made, "_scored", lambda h, D, *pairs: n_scored.append(len(pairs[0])) or score(h, D, *pairs)
    )
    assert made._is_rotated == is_rotated
    first = made.best(hidden, added, 5)
    assert made._is_rotated == is_rotated  # too few users to judge
    monkeypatch.setattr(shortlist, "_ENOUGH", len(hidden))
    made.best(hidden, added, 5)
    assert made._is_rotated == pays  # if not, the whole product is used from now on
    assert n_scored[0] + n_scored[1] < most_scored * hidden.shape[0] * N_ITEMS
    for one, again in zip(first, made.best(hidden, added, 5), strict=True):
        np.testing.assert_array_equal(one, again)
