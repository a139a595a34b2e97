"""Rearranged lists equal a slow literal loop over all items, and keep what was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from cfnade.answer import rerank
from cfnade.answer.rerank import Reranking
from cfnade.answer.shortlist import Shortlist
from cfnade.answer.similar import ItemSimilarity
from tests.networks import random_numpy_network

N_ITEMS, N_USERS = 40, 3
NETWORK = random_numpy_network(N_ITEMS)
SHORTLIST = Shortlist(NETWORK)
GENRES = csr_array(np.random.default_rng(7).random((N_ITEMS, 5)) < 0.3, dtype=np.float32)
ALL = np.arange(N_ITEMS)
SIMILARITY = ItemSimilarity(NETWORK.weights["output_weight"], GENRES).between(ALL, ALL)


def alike(columns, others):
    return SIMILARITY[np.ix_(columns, others)]


def inputs(seed):
    """Hidden layers, and a direct path that leaves out some items."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(N_USERS, 6)).astype(np.float32)
    added = rng.normal(size=(N_USERS, N_ITEMS)).astype(np.float32)
    added[rng.random(added.shape) < 0.3] = -np.inf
    return hidden, added


def all_scores(hidden, added):
    """Of every pair, with the rounding of the short list, (n_users, n_items)."""
    row, column = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
    return SHORTLIST.scores(hidden, row, column, added[row, column]).reshape(N_USERS, N_ITEMS)


def literal_list(asked, scores, n, n_pool):
    """One list as the docstrings of `Dials` describe it, item by item."""
    allowed = [item for item in np.argsort(-scores, kind="stable") if scores[item] > -np.inf]
    pins = {place: item for place, item in asked.pins.items() if item in allowed}
    used = np.zeros_like(asked.room)
    listed = []

    def add(item):
        listed.append(item)
        if asked.features is not None:
            used[asked.features[[item]].indices] += 1

    def is_full(item):
        if asked.features is None:
            return False
        mine = asked.features[[item]].indices
        return any(used[feature] >= asked.room[feature] for feature in mine)

    for item in pins.values():
        add(item)
    pool = allowed[:n_pool]
    own = scores if asked.shift is None else scores - asked.shift
    first = [own[item] for item in pool if item not in listed]
    scale = float(max(first) - min(first) if first else 0.0) or 1.0
    while len(listed) < n:
        open_items = [item for item in pool if item not in listed and not is_full(item)]
        if not open_items:
            pool = [item for item in allowed if item not in listed and not is_full(item)][:n_pool]
            if not pool:
                break
            continue

        def worth(item):
            closest = max([0.0, *(float(SIMILARITY[item, other]) for other in listed)])
            relevance = float(scores[item]) / scale
            return (1 - asked.diversity) * relevance - asked.diversity * closest

        add(max(open_items, key=worth))
    others = listed[len(pins) :]
    for place in sorted(pins):
        others.insert(place, pins[place])
    return others


@st.composite
def rerankings(draw):
    n = draw(st.integers(1, 12))
    items = draw(st.lists(st.integers(0, N_ITEMS - 1), max_size=n, unique=True))
    places = draw(st.lists(st.integers(0, n - 1), min_size=len(items), max_size=n, unique=True))
    pins = dict(sorted(zip(places, items, strict=False)))
    shift = None
    if draw(st.booleans()):
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        shift = draw(st.sampled_from([0.5, 3.0])) * rng.normal(size=N_ITEMS).astype(np.float32)
    limits = {}
    if draw(st.booleans()):
        room = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, np.inf]), min_size=5, max_size=5))
        n_pinned = np.asarray(GENRES[items].sum(axis=0)).ravel()
        limits = {"features": GENRES, "room": np.maximum(room, n_pinned)}
    diversity = draw(st.sampled_from([0.0, 0.2, 0.5, 0.95]))
    return n, Reranking(shift, diversity, pins, **limits)


@settings(deadline=None, max_examples=150)
@given(rerankings(), st.integers(0, 999), st.sampled_from([3, 8, 200]))
def test_lists_equal_a_literal_loop(asked, seed, n_candidates):
    (n, asked), (hidden, added) = asked, inputs(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rerank, "N_CANDIDATES", n_candidates)
        (row, column, score), own = asked.best(SHORTLIST, alike, hidden, added, n)
    is_chosen = asked.diversity > 0 or asked.features is not None
    n_pool = max(n_candidates, 3 * n) + len(asked.pins) if is_chosen else n
    scores = all_scores(hidden, added if asked.shift is None else added + asked.shift)
    for user in range(N_USERS):
        expected = literal_list(asked, scores[user], n, n_pool)
        assert column[row == user].tolist() == expected
    assert score.tolist() == scores[row, column].tolist()
    assert own.tolist() == all_scores(hidden, added)[row, column].tolist()


@settings(deadline=None, max_examples=100)
@given(rerankings(), st.integers(0, 999))
def test_limits_are_kept_and_pins_stand_where_asked(asked, seed):
    (n, asked), (hidden, added) = asked, inputs(seed)
    (row, column, _), _ = asked.best(SHORTLIST, alike, hidden, added, n)
    for user in range(N_USERS):
        found = column[row == user].tolist()
        assert len(set(found)) == len(found) <= n
        assert (added[user, found] > -np.inf).all()
        if asked.features is not None:
            counts = np.asarray(GENRES[found].sum(axis=0)).ravel()
            assert (counts <= asked.room).all()
        for place, item in asked.pins.items():
            if added[user, item] == -np.inf:
                assert item not in found
            elif len(found) == n:
                assert found[place] == item
            else:
                assert item in found
        pinned = [asked.pins[place] for place in sorted(asked.pins)]
        listed = [item for item in pinned if item in found]
        assert sorted(listed, key=found.index) == listed  # also if a list is too short for a place


def test_what_is_not_asked_for_changes_nothing():
    hidden, added = inputs(0)
    (row, column, score), own = Reranking().best(SHORTLIST, alike, hidden, added, 7)
    for found, expected in zip(
        (row, column, score, own),
        (*(b := SHORTLIST.best(hidden, added.__getitem__, 7)), b[2]),
        strict=True,
    ):
        assert found.tolist() == expected.tolist()


def test_a_little_diversity_leaves_the_best_item_first_and_more_makes_items_less_alike():
    hidden, added = inputs(1)

    def mean_similarity(diversity):
        (row, column, _), _ = Reranking(diversity=diversity).best(
            SHORTLIST, alike, hidden, added, 6
        )
        firsts = [column[row == user][0] for user in range(N_USERS)]
        pairs = [alike(column[row == user], column[row == user]) for user in range(N_USERS)]
        return firsts, np.mean([(p.sum() - np.trace(p)) / 30 for p in pairs])

    plain, some, much = map(mean_similarity, (0.0, 0.3, 0.9))
    assert plain[0] == some[0] == much[0]
    assert plain[1] > some[1] > much[1]


def test_items_without_a_limited_feature_fill_the_list_from_beyond_the_pool(monkeypatch):
    """The best 20 items share a genre of which one is allowed: the rest of the list is below."""
    monkeypatch.setattr(rerank, "N_CANDIDATES", 5)
    hidden, added = inputs(2)
    plain = all_scores(hidden, added)
    genre = np.zeros((N_ITEMS, 1), dtype=np.float32)
    best = np.argsort(-plain[0], kind="stable")
    genre[best[:20]] = 1.0
    asked = Reranking(features=csr_array(genre), room=np.array([1.0]))
    (_, column, _), _ = asked.best(SHORTLIST, alike, hidden[:1], added[:1], 5)
    assert column.tolist() == [best[0], *best[20:24]]


def test_equal_scores_and_single_items_have_a_range_of_no_zero():
    hidden = np.zeros((1, 6), dtype=np.float32)
    added = -NETWORK.weights["output_bias"][None]  # all scores are 0
    (_, column, _), _ = Reranking(diversity=0.5).best(SHORTLIST, alike, hidden, added, 3)
    assert len(set(column.tolist())) == 3
    only = np.full_like(added, -np.inf)
    only[0, 4] = 1.0
    (_, column, _), _ = Reranking(diversity=0.5).best(SHORTLIST, alike, hidden, only, 3)
    assert column.tolist() == [4]
