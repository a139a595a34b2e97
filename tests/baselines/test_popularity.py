from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import Popularity, RandomScorer
from cfnade.metrics.evaluate import mean_percentage_ranking


def test_popularity_counts_users_not_events() -> None:
    counts = csr_array([[100.0, 1, 0], [0, 1, 0], [0, 2, 1]])
    assert Popularity().fit(counts).scores(csr_array((1, 3))).tolist() == [[1, 3, 1]]


def test_random_scores_differ_between_histories_and_between_seeds(counts) -> None:
    first, second = RandomScorer(rng=1).fit(counts), RandomScorer(rng=2).fit(counts)
    scores = first.scores(counts)
    assert len(np.unique(scores, axis=0)) == counts.shape[0]
    assert not np.array_equal(scores, second.scores(counts))


def test_random_scores_take_a_generator(counts) -> None:
    seeded = [RandomScorer(rng=np.random.default_rng(7)).fit(counts) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].scores(counts), seeded[1].scores(counts))


def test_random_scores_reach_what_chance_gives() -> None:
    # Everyone's held-out item is the same one: numbers shared by users would not average out.
    history = np.triu(np.ones((300, 301)))
    histories = csr_array(np.hstack([history[:, 1:] * 2.0, np.zeros((300, 1))]))
    held_out = csr_array(np.hstack([np.zeros((300, 300)), np.ones((300, 1))]))
    scorer = RandomScorer().fit(histories)
    mpr = mean_percentage_ranking(scorer, histories, held_out, held_out)
    assert mpr == pytest.approx(50, abs=6)  # 3.5 standard errors
