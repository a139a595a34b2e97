"""The shortlist gives the items and scores of a plain sort of all scores, to the bit."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.answer import rotation, shortlist
from cfnade.answer.quick import QuickNetwork
from cfnade.answer.shortlist import Shortlist
from cfnade.model.inference import NumpyNetwork
from tests.networks import network_of

N_HIDDEN, N_ITEMS, N_USERS = 24, 400, 7
HAS_TORCH = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")


@pytest.fixture(autouse=True)
def _users_and_pairs_come_in_several_parts(monkeypatch):
    monkeypatch.setattr(shortlist, "_PAIRS", 50)
    monkeypatch.setattr(shortlist, "_CACHE_BYTES", 4 * N_ITEMS * 3)  # three users


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


def best(network, hidden, added, n, *, is_quick):
    quick = QuickNetwork(network) if is_quick else None
    return Shortlist(network).best(hidden, added.__getitem__, n, quick)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 30),
    noise=st.sampled_from([0.0, 0.1, 0.5, 3.0]),
    scale=st.sampled_from([1e-4, 1.0, 1e3]),
    kind=st.sampled_from(["all different", "equal", "nearly equal"]),
    n=st.sampled_from([1, 2, 3, 5, 12, 13, 100, N_ITEMS, 2 * N_ITEMS]),
    has_direct=st.booleans(),
    is_quick=st.sampled_from([False, HAS_TORCH]),
)
def test_items_and_scores_are_those_of_a_plain_sort(
    seed, noise, scale, kind, n, has_direct, is_quick
):
    network, hidden, added = random_case(seed, noise, scale, kind)
    if not has_direct:
        added = np.minimum(added, np.float32(0.0))
    found = best(network, hidden, added, n, is_quick=is_quick)
    assert [part.tolist() for part in found] == plain_sort(all_scores(network, hidden, added), n)
    assert found[2].dtype == np.float32


@needs_torch
@pytest.mark.parametrize("n", [3, 4])
def test_products_in_8_bits_are_used_for_few_items_alone(monkeypatch, n):
    network, hidden, added = random_case(0, 3.0, 1.0, "all different")
    asked, output = [], NumpyNetwork.output
    monkeypatch.setattr(NumpyNetwork, "output", lambda self, h: asked.append(h) or output(self, h))
    found = best(network, hidden, added, n, is_quick=True)
    assert len(asked) == (n > 3)
    assert [part.tolist() for part in found] == plain_sort(all_scores(network, hidden, added), n)


@pytest.mark.parametrize("is_quick", [False, pytest.param(True, marks=needs_torch)])
def test_few_items_are_scored_alone(monkeypatch, is_quick):
    network, hidden, added = random_case(0, 3.0, 1.0, "all different")
    n_scored, score = [], Shortlist._scored
    monkeypatch.setattr(
        Shortlist, "_scored", lambda *args: n_scored.append(len(args[2])) or score(*args)
    )
    best(network, hidden, added, 3, is_quick=is_quick)
    assert n_scored[0] < (0.05 if is_quick else 0.015) * hidden.shape[0] * N_ITEMS


@needs_torch
def test_where_8_bits_are_too_rough_products_are_in_float32(monkeypatch):
    network, hidden, added = random_case(0, 3.0, 1.0, "all different")
    network.weights["output_weight"][7, 0] = 1e5  # its rounding is larger than most scores
    added[:, 7] = -np.inf
    n_scored, score = [], Shortlist._scored
    monkeypatch.setattr(
        Shortlist, "_scored", lambda *args: n_scored.append(len(args[2])) or score(*args)
    )
    found = best(network, hidden, added, 3, is_quick=True)
    assert n_scored[0] < 0.05 * hidden.shape[0] * N_ITEMS
    assert [part.tolist() for part in found] == plain_sort(all_scores(network, hidden, added), 3)


@pytest.mark.parametrize(
    ("noise", "is_rotated", "pays", "most_scored"),
    [(0.1, True, True, 0.1), (0.4, True, False, 0.5), (3.0, False, False, 0.1)],
)
def test_a_rotation_that_does_not_pay_is_dropped(monkeypatch, noise, is_rotated, pays, most_scored):
    network, hidden, added = random_case(0, noise, 1.0, "all different")
    made, n_scored = Shortlist(network), []
    score = made._scored
    monkeypatch.setattr(
        made, "_scored", lambda *args: n_scored.append(len(args[1])) or score(*args)
    )
    monkeypatch.setattr(rotation, "_ENOUGH", 2 * len(hidden))
    assert made._rotation.pays == is_rotated
    first = made.best(hidden, added.__getitem__, 5)
    assert made._rotation.pays == is_rotated  # too few users to judge
    assert sum(n_scored) < most_scored * hidden.shape[0] * N_ITEMS
    made.best(hidden, added.__getitem__, 5)
    assert made._rotation.pays == pays  # if not, the whole product is used from now on
    for one, again in zip(first, made.best(hidden, added.__getitem__, 5), strict=True):
        np.testing.assert_array_equal(one, again)
