"""Figures of lists, worked out by hand and by plain loops."""

from __future__ import annotations

from itertools import combinations
from math import log2, sqrt

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import DataError
from cfnade import scorer as ranking
from cfnade.metrics.lists import (
    ListQuality,
    coverage,
    diversity,
    gini,
    judge_lists,
    novelty,
    top_lists,
)

KNOWN = csr_array(
    np.array(
        [
            # a  b  c  d  e
            [1, 1, 0, 0, 0],
            [5, 2, 1, 0, 0],
            [1, 0, 0, 1, 0],
            [1, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],  # has nothing
        ],
        dtype=float,
    )
)


def lists_of(*rows: list[int], n_items: int = 5) -> csr_array:
    table = np.zeros((len(rows), n_items))
    for user, items in enumerate(rows):
        table[user, items] = 1.0
    return csr_array(table)


def test_coverage_is_the_share_of_items_in_any_list():
    assert coverage(np.array([3, 0, 1, 0, 0])) == 0.4
    assert coverage(np.array([1, 1])) == 1.0


@pytest.mark.parametrize(
    ("n_listed", "expected"),
    [
        ([2, 2, 2, 2], 0.0),
        ([0, 0, 0, 8], 0.75),  # (3 * 8) / (4 * 8)
        ([3, 1], 0.25),  # (-1 + 3) / (2 * 4)
        ([0, 0], 0.0),
    ],
)
def test_gini_by_hand(n_listed, expected):
    assert gini(np.array(n_listed)) == pytest.approx(expected)


def test_gini_is_half_the_mean_difference_over_the_mean(rng):
    n_listed = rng.integers(0, 30, 40)
    differences = np.abs(n_listed[:, None] - n_listed[None])
    assert gini(n_listed) == pytest.approx(differences.mean() / (2 * n_listed.mean()))


def test_novelty_by_hand():
    """All four users with items have a, two have b, one has c; nobody has e."""
    assert novelty(lists_of([0]), KNOWN) == 0.0
    assert novelty(lists_of([0, 1]), KNOWN) == pytest.approx(0.5)  # of 0 and 1 bit
    assert novelty(lists_of([2, 4]), KNOWN) == pytest.approx(2.0)
    assert novelty(lists_of([0], [2], []), KNOWN) == pytest.approx(1.0)  # a mean over lists


def test_diversity_by_hand():
    """a and b: two users have both, of four and two; c and d: nobody has both."""
    assert diversity(lists_of([0, 1]), KNOWN) == pytest.approx(1 - 2 / sqrt(8))
    assert diversity(lists_of([2, 3]), KNOWN) == pytest.approx(1.0)
    assert diversity(lists_of([0, 1], [2, 3]), KNOWN) == pytest.approx(1 - 1 / sqrt(8))
    pairs = [2 / sqrt(8), 1 / sqrt(4), 1 / sqrt(2)]  # a b, a c, b c
    assert diversity(lists_of([0, 1, 2]), KNOWN) == pytest.approx(1 - sum(pairs) / 3)
    assert diversity(lists_of([4, 0]), KNOWN) == pytest.approx(1.0)  # nobody has e
    assert diversity(lists_of([0], []), KNOWN) == 0.0  # no list of two


def test_figures_equal_plain_loops_in_blocks_of_any_size(rng, monkeypatch):
    known = csr_array((rng.random((25, 12)) < 0.3) * rng.integers(1, 5, (25, 12)).astype(float))
    rows = [rng.permutation(12)[: rng.integers(1, 7)].tolist() for _ in range(9)]
    has = known.toarray() > 0
    n_users = np.count_nonzero(has.any(axis=1))

    def cosine(i, j):
        together = np.count_nonzero(has[:, i] & has[:, j])
        return together / sqrt(has[:, i].sum() * has[:, j].sum()) if together else 0.0

    bits = [np.mean([log2(n_users / max(has[:, i].sum(), 1)) for i in row]) for row in rows]
    apart = [
        np.mean([1 - cosine(i, j) for i, j in combinations(row, 2)]) for row in rows if len(row) > 1
    ]
    n_listed = np.bincount(np.concatenate(rows), minlength=12)
    for block_bytes in (ranking.BLOCK_BYTES, 4 * 25 * 2):
        monkeypatch.setattr(ranking, "BLOCK_BYTES", block_bytes)
        found = judge_lists(lists_of(*rows, n_items=12), known, 6)
        expected = (6, coverage(n_listed), gini(n_listed), np.mean(bits), np.mean(apart))
        for value, wanted in zip(vars(found).values(), expected, strict=True):
            assert value == pytest.approx(wanted)


class Fixed:
    """Gives everybody the same scores."""

    def __init__(self, scores):
        self.row = np.array(scores)

    def scores(self, histories):
        return np.tile(self.row, (histories.shape[0], 1))


@pytest.mark.parametrize("block_bytes", [ranking.BLOCK_BYTES, 4 * 5 * 2])
def test_the_best_items_outside_the_history_are_listed(monkeypatch, block_bytes):
    monkeypatch.setattr(ranking, "BLOCK_BYTES", block_bytes)
    scorer = Fixed([5, 4, 3, 2, 1])
    found = top_lists(scorer, KNOWN, 2)
    assert [found[[u]].indices.tolist() for u in range(5)] == [
        [2, 3],
        [3, 4],
        [1, 2],
        [1, 2],
        [0, 1],
    ]
    everything = top_lists(scorer, KNOWN, 2, candidates="all")
    assert everything[[1]].indices.tolist() == [0, 1]
    assert np.diff(top_lists(scorer, KNOWN, 9).indptr).tolist() == [3, 2, 3, 4, 5]
    assert scorer.row.tolist() == [5, 4, 3, 2, 1]


def test_popular_items_for_all_are_neither_new_nor_spread():
    scorer = Fixed([5, 4, 3, 2, 1])
    found = judge_lists(top_lists(scorer, KNOWN, 1, candidates="all"), KNOWN, 1)
    assert found == ListQuality(1, 0.2, 0.8, 0.0, 0.0)


def test_lists_of_other_items_are_refused():
    with pytest.raises(DataError, match="lists are of 4 items, the training data of 5; both need"):
        judge_lists(lists_of([0], n_items=4), KNOWN, 1)
