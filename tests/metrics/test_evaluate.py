from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from cfnade.errors import ConfigError, DataError
from cfnade.metrics.bootstrap import bootstrap_means, percentile_interval
from cfnade.metrics.evaluate import (
    distances_to_best,
    evaluate,
    mean_percentage_ranking,
)
from tests import reference


class FixedScores:
    """Looks a user up by the number that its first history item was watched."""

    def __init__(self, scores) -> None:
        self.table = np.asarray(scores)
        self.asked = []

    def scores(self, histories):
        rows = [int(histories.data[start]) - 1 for start in histories.indptr[:-1]]
        self.asked += rows
        return self.table[rows]


def sparse(rows, n_items) -> csr_array:
    """A matrix from one {column: value} for each row."""
    dense = np.zeros((len(rows), n_items))
    for row, values in enumerate(rows):
        for column, value in values.items():
            dense[row, column] = value
    return csr_array(dense)


@pytest.fixture
def worked():
    """Three users, five items; places and sums can be followed on paper."""
    scores = [[9, 4, 3, 2, 1], [1, 2, 3, 4, 9], [0, 0, 5, 5, 1]]
    histories = sparse([{0: 1}, {4: 2}, {0: 3, 1: 3}], 5)
    relevance = sparse([{1: 1.0}, {0: 0.5, 3: 0.25}, {3: 0.25}], 5)
    return FixedScores(np.array(scores, dtype=np.float32)), histories, relevance, relevance


@pytest.fixture
def random_case():
    """200 users with distinct first counts, 30 items, some ties, 1-10 held-out items each."""
    rng = np.random.default_rng(5)
    histories, relevance = [], []
    for user in range(200):
        items = rng.permutation(30)[: rng.integers(3, 20)]
        n_held_out = int(rng.integers(1, min(11, len(items) - 1)))
        histories.append(dict.fromkeys(items[n_held_out:], user + 1))
        relevance.append({item: rng.uniform(0.05, 1.0) for item in items[:n_held_out]})
    scores = rng.integers(0, 25, (200, 30)).astype(np.float32)
    relevance = sparse(relevance, 30)
    return FixedScores(scores), sparse(histories, 30), relevance, relevance


def test_mpr_of_three_users_and_five_items_worked_by_hand(worked) -> None:
    # Unseen candidates: ranks 0/3 | 3/3, 0/3 | 0.5/2, weights 1 | 0.5, 0.25 | 0.25.
    metrics = evaluate(*worked, n_bootstrap=0).metrics
    assert metrics["mpr"] == pytest.approx(100 * 0.5625 / 2.0)
    assert metrics["mpr_unweighted"] == pytest.approx(100 * 1.25 / 4)


def test_mpr_among_all_items_worked_by_hand(worked) -> None:
    # Ranks 1/4 | 4/4, 1/4 | 0.5/4, the same weights.
    metrics = evaluate(*worked, candidates="all", n_bootstrap=0).metrics
    assert metrics["mpr"] == pytest.approx(100 * 0.84375 / 2.0)


def test_recall_and_ndcg_of_the_worked_users_are_means_over_users(worked) -> None:
    names = ("recall@1", "recall_full@1", "ndcg@1")
    metrics = evaluate(*worked, metrics=names, n_bootstrap=0).metrics
    assert metrics == pytest.approx(
        {"recall@1": (1 + 1 + 0.5) / 3, "recall_full@1": (1 + 0.5 + 0.5) / 3, "ndcg@1": 2.5 / 3}
    )


@pytest.mark.parametrize("candidates", ["unseen", "all"])
def test_an_evaluation_equals_the_plain_loops(random_case, candidates) -> None:
    scorer, histories, _, relevance = random_case
    found = evaluate(*random_case, candidates=candidates, n_bootstrap=0).metrics
    users = []
    for user, scores in enumerate(scorer.table.tolist()):
        seen = set(histories[[user]].indices.tolist()) if candidates == "unseen" else set()
        row = relevance[[user]]
        gamma = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        users.append((scores, [item for item in range(30) if item not in seen], gamma))
    assert found["mpr"] == pytest.approx(reference.mean_percentage_ranking(users))
    for name in ("recall@20", "recall_full@20", "ndcg@20", "ndcg@100"):
        metric, k = name.split("@")
        by_user = [getattr(reference, metric)(*user, int(k)) for user in users]
        assert found[name] == pytest.approx(sum(by_user) / len(by_user))


def test_dislikes_are_part_of_the_history_that_is_not_ranked(worked) -> None:
    scorer, histories, held_out, relevance = worked
    histories = csr_array(histories.toarray() - sparse([{2: 1}, {}, {2: 1}], 5).toarray())
    # Candidates without the dislikes: ranks 0/2 | 3/3, 0/3 | 0/1.
    found = evaluate(scorer, histories, held_out, relevance, n_bootstrap=0).metrics
    assert found["mpr"] == pytest.approx(100 * 0.5 / 2.0)


def test_a_strictly_monotone_transform_of_the_scores_changes_nothing(random_case) -> None:
    scorer, *rest = random_case
    before = evaluate(scorer, *rest)
    after = evaluate(FixedScores(np.exp(scorer.table / 5) - 100), *rest)
    assert after.metrics == before.metrics
    assert after.intervals == before.intervals


@pytest.mark.parametrize("block_size", [1, 7, 199, 200, 10_000])
def test_the_block_size_changes_nothing(random_case, block_size) -> None:
    assert evaluate(*random_case, block_size=block_size).metrics == evaluate(*random_case).metrics


def test_random_scores_are_near_fifty_percent(random_case) -> None:
    _, *rest = random_case
    noise = np.random.default_rng(0).random((200, 30), dtype=np.float32)
    evaluation = evaluate(FixedScores(noise), *rest)
    assert evaluation.metrics["mpr"] == pytest.approx(50, abs=5)
    low, high = evaluation.intervals["mpr"]
    assert low < 50 < high


def test_a_constant_scorer_gets_what_chance_gives(random_case) -> None:
    _, histories, held_out, relevance = random_case
    constant = FixedScores(np.zeros((200, 30), dtype=np.float32))
    metrics = evaluate(constant, histories, held_out, relevance, metrics=("mpr", "recall_full@5"))
    n_candidates = 30 - np.diff(histories.indptr)
    assert metrics.metrics["mpr"] == pytest.approx(50)
    assert metrics.metrics["recall_full@5"] == pytest.approx(np.mean(5 / n_candidates))


def test_perfect_and_worst_scores_reach_the_ends() -> None:
    histories = sparse([{0: 1}, {1: 2}], 4)
    held_out = sparse([{2: 1}, {2: 1}], 4)
    best = FixedScores(np.array([[0, 0, 1, 0]] * 2, dtype=np.float32))
    worst = FixedScores(-best.table)
    assert evaluate(best, histories, held_out, held_out).metrics["mpr"] == 0
    assert evaluate(worst, histories, held_out, held_out).metrics["mpr"] == 100


def test_the_mean_percentage_ranking_alone_is_the_same(random_case) -> None:
    assert mean_percentage_ranking(*random_case) == evaluate(*random_case).metrics["mpr"]


def test_users_without_held_out_items_are_not_scored() -> None:
    scorer = FixedScores(np.eye(3, dtype=np.float32))
    histories = sparse([{0: 1}, {0: 2}, {0: 3}], 3)
    held_out = sparse([{}, {1: 1}, {}], 3)
    evaluation = evaluate(scorer, histories, held_out, held_out)
    assert scorer.asked == [1]
    assert evaluation.users.tolist() == [1]
    assert evaluation.n_pairs == 1


def test_scores_of_the_scorer_are_left_as_they_are(worked) -> None:
    class Shared:
        kept = worked[0].table.copy()
        kept.flags.writeable = False

        def scores(self, histories):
            return self.kept

    assert evaluate(Shared(), *worked[1:]).metrics == evaluate(*worked).metrics


def test_whole_number_scores_are_ranked_too(worked) -> None:
    scorer, *rest = worked
    whole = FixedScores(scorer.table.astype(np.int64))
    assert evaluate(whole, *rest).metrics == evaluate(*worked).metrics


def test_old_style_sparse_matrices_are_accepted(worked) -> None:
    scorer, *matrices = worked
    old = [csr_matrix(matrix) for matrix in matrices]
    assert evaluate(scorer, *old).metrics == evaluate(*worked).metrics


def test_relevance_may_list_its_items_in_any_order(worked) -> None:
    scorer, histories, held_out, _ = worked
    shuffled = csr_array(([1.0, 0.25, 0.5, 0.25], [1, 3, 0, 3], [0, 1, 3, 4]), shape=(3, 5))
    assert evaluate(scorer, histories, held_out, shuffled).metrics == evaluate(*worked).metrics


def test_progress_counts_the_users_done(random_case) -> None:
    calls = []
    evaluate(*random_case, block_size=90, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(90, 200), (180, 200), (200, 200)]


def test_held_out_pairs_in_the_history_are_an_error_with_their_number(worked) -> None:
    scorer, histories, held_out, relevance = worked
    both = histories + sparse([{}, {3: 1}, {3: 1}], 5)
    with pytest.raises(DataError, match=r"2 of 4 held-out .* row 1, column 3; drop them"):
        evaluate(scorer, both, held_out, relevance)
    assert evaluate(scorer, both, held_out, relevance, candidates="all").metrics["mpr"] > 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_cannot_be_ranked_name_the_scorer_and_the_user(worked, bad) -> None:
    scorer, *rest = worked
    scorer.table[1, 2] = bad
    with pytest.raises(DataError, match=rf"FixedScores gave 1 of 5 .*row 1.*{bad} for column 2"):
        evaluate(scorer, *rest)


def test_scores_of_the_wrong_shape_are_refused(worked) -> None:
    scorer, *rest = worked
    narrow = FixedScores(scorer.table[:, :4])
    with pytest.raises(DataError, match=r"FixedScores returned scores of shape \(3, 4\)"):
        evaluate(narrow, *rest)


def test_matrices_that_do_not_belong_together_are_refused(worked) -> None:
    scorer, histories, held_out, relevance = worked
    with pytest.raises(DataError, match="same users and items"):
        evaluate(scorer, histories[:2], held_out, relevance)
    with pytest.raises(DataError, match=r"got 1 values in \(1, 5\) for 4 pairs in \(3, 5\)"):
        evaluate(scorer, histories, held_out, relevance[:1])
    with pytest.raises(DataError, match="one value for each held-out pair"):
        evaluate(scorer, histories, held_out, sparse([{2: 1}, {0: 1, 3: 1}, {3: 1}], 5))
    with pytest.raises(DataError, match="finite and above 0"):
        evaluate(scorer, histories, held_out, -relevance)


def test_nothing_held_out_is_refused(worked) -> None:
    scorer, histories, *_ = worked
    nothing = csr_array((3, 5))
    with pytest.raises(DataError, match="no held-out pairs"):
        evaluate(scorer, histories, nothing, nothing)


def test_options_without_meaning_are_refused(worked) -> None:
    with pytest.raises(ConfigError, match="candidates must be one of unseen, all; got 'some'"):
        evaluate(*worked, candidates="some")
    with pytest.raises(ConfigError, match="block_size must be at least 1, got 0"):
        evaluate(*worked, block_size=0)


def test_intervals_hold_the_value_and_follow_the_seed(random_case) -> None:
    names = ("mpr", "mpr_unweighted", "recall@5", "recall_full@5", "ndcg@5")
    evaluation = evaluate(*random_case, metrics=names, rng=3)
    assert tuple(evaluation.intervals) == names
    for name, (low, high) in evaluation.intervals.items():
        assert low < evaluation.metrics[name] < high
    again, other = (evaluate(*random_case, metrics=names, rng=seed) for seed in (3, 4))
    assert again.intervals == evaluation.intervals
    assert other.intervals != evaluation.intervals
    assert evaluate(*random_case, n_bootstrap=0).intervals == {}


def test_a_paired_difference_is_narrower_than_the_intervals_suggest(random_case) -> None:
    scorer, *rest = random_case
    nudged = scorer.table + np.random.default_rng(1).normal(0, 2, scorer.table.shape)
    a, b = evaluate(scorer, *rest), evaluate(FixedScores(nudged), *rest)
    (low, high) = next(d for d in distances_to_best([a, b], "mpr") if d != (0.0, 0.0))
    assert low < abs(a.metrics["mpr"] - b.metrics["mpr"]) < high
    assert high - low < 0.5 * (a.intervals["mpr"][1] - a.intervals["mpr"][0])


def test_the_distance_to_the_best_is_the_paired_difference_to_it(random_case) -> None:
    scorer, *rest = random_case
    rng = np.random.default_rng(1)
    tables = [scorer.table + rng.normal(0, s, scorer.table.shape) for s in (0.1, 0.0, 9.0)]
    judged = [evaluate(FixedScores(table), *rest) for table in tables]
    for metric, better in (("mpr", min), ("ndcg@20", max)):
        values = [each.metrics[metric] for each in judged]
        best = judged[values.index(better(values))]
        found = distances_to_best(judged, metric, rng=3)
        for each, interval in zip(judged, found, strict=True):
            pair = [each.per_user[metric], best.per_user[metric]]
            means = bootstrap_means(pair, n_bootstrap=1000, rng=3)
            expected = percentile_interval(means[:, 0] - means[:, 1])
            np.testing.assert_allclose(interval, expected, atol=1e-12)
        assert found[values.index(better(values))] == (0.0, 0.0)


def test_a_model_does_not_differ_from_itself(random_case) -> None:
    evaluation = evaluate(*random_case)
    assert distances_to_best([evaluation, evaluation], "ndcg@20") == [(0.0, 0.0)] * 2


def test_a_paired_difference_needs_the_same_users_and_metric(worked, random_case) -> None:
    a, b = evaluate(*worked), evaluate(*random_case)
    with pytest.raises(DataError, match="got 4 pairs of 3 users and"):
        distances_to_best([a, b], "mpr")
    with pytest.raises(DataError, match="'recall@7' is not in all"):
        distances_to_best([a, a], "recall@7")
