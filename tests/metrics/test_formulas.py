from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.metrics import ndcg_score

from cfnade.errors import ConfigError
from cfnade.metrics.formulas import (
    DEFAULT_METRICS,
    Places,
    cost_by,
    count_above_and_tied,
    metric_function,
    metrics_to_choose,
    mpr,
    mpr_unweighted,
    ndcg,
    percentile_rank,
    place_held_out,
    recall,
    recall_full,
)
from tests import reference


def places_of(scores, candidates, held_out) -> Places:
    """Places of one user's held-out items."""
    ranked = np.full(len(scores), -np.inf)
    ranked[candidates] = np.asarray(scores, dtype=float)[candidates]
    n_above, n_tied = count_above_and_tied(ranked, ranked[held_out])
    user = np.zeros(len(held_out), dtype=np.int64)
    return Places(user, n_above, n_tied, np.array([len(candidates)]))


def value(metric, places, **options) -> float:
    return metric(places, np.ones(places.user.size), **options).mean


@st.composite
def users(draw):
    """Scores with many ties, candidates, and held-out items among them."""
    scores = draw(st.lists(st.integers(0, 6), min_size=1, max_size=40))
    items = st.sampled_from(range(len(scores)))
    candidates = sorted(draw(st.sets(items, min_size=1)))
    held_out = sorted(draw(st.sets(st.sampled_from(candidates), min_size=1)))
    return scores, candidates, held_out


def test_the_first_item_has_percentile_rank_zero_and_the_last_one() -> None:
    scores, everything = [5.0, 1.0, 3.0], [0, 1, 2]
    assert percentile_rank(places_of(scores, everything, [0])) == 0.0
    assert percentile_rank(places_of(scores, everything, [2])) == 0.5
    assert percentile_rank(places_of(scores, everything, [1])) == 1.0


def test_ties_get_the_average_rank() -> None:
    places = places_of([7.0, 7.0, 7.0, 9.0, 1.0], [0, 1, 2, 3, 4], [0, 1, 2])
    assert percentile_rank(places).tolist() == [0.5, 0.5, 0.5]  # places 1, 2, 3 of 0 ... 4


def test_a_single_candidate_is_first() -> None:
    assert percentile_rank(places_of([1.0, 2.0], [0], [0])) == 0.0


def test_mpr_weighs_pairs_by_their_relative_rating() -> None:
    places = places_of([5.0, 1.0, 3.0], [0, 1, 2], [0, 1])  # ranks 0 and 1
    assert mpr(places, np.array([0.75, 0.25])).mean == 25.0
    assert mpr_unweighted(places, np.array([0.75, 0.25])).mean == 50.0


def test_recall_divides_by_what_can_be_reached_and_full_recall_by_all() -> None:
    places = places_of([9.0, 8.0, 7.0, 6.0, 5.0], [0, 1, 2, 3, 4], [0, 3, 4])
    assert value(recall, places, k=2) == 1 / 2
    assert value(recall_full, places, k=2) == 1 / 3


def test_ndcg_of_a_hand_worked_list() -> None:
    # Hits at places 0 and 2 of 3 held-out items; the third is outside the first 3.
    places = places_of([9.0, 8.0, 7.0, 6.0], [0, 1, 2, 3], [0, 2, 3])
    assert value(ndcg, places, k=3) == pytest.approx((1 + 1 / 2) / (1 + 1 / np.log2(3) + 1 / 2))


def test_everything_is_found_when_k_exceeds_the_candidates() -> None:
    places = places_of([1.0, 2.0, 3.0], [0, 1], [0, 1])
    assert value(recall, places, k=50) == 1.0
    assert value(recall_full, places, k=50) == 1.0
    assert value(ndcg, places, k=50) == 1.0


def test_ties_count_as_the_mean_over_all_orders_of_equal_scores() -> None:
    scores, everything, held_out = [1.0, 2.0, 2.0, 2.0, 1.0], [0, 1, 2, 3, 4], [0, 1]
    untied = [
        places_of(order, everything, held_out)
        for order in permutations(range(5))
        if all(order[high] > order[low] for high in (1, 2, 3) for low in (0, 4))
    ]
    tied = places_of(scores, everything, held_out)
    for metric, options in ((mpr, {}), (recall, {"k": 2}), (ndcg, {"k": 2}), (ndcg, {"k": 4})):
        expected = np.mean([value(metric, places, **options) for places in untied])
        assert value(metric, tied, **options) == pytest.approx(expected)


@given(users(), st.integers(1, 45))
def test_metrics_equal_their_plain_loops(user, k) -> None:
    scores, candidates, held_out = user
    places = places_of(*user)
    ratings = np.linspace(0.1, 1.0, len(held_out))
    gamma = dict(zip(held_out, ratings.tolist(), strict=True))
    expected = reference.mean_percentage_ranking([(scores, candidates, gamma)])
    assert mpr(places, ratings).mean == pytest.approx(expected)
    assert value(recall, places, k=k) == pytest.approx(reference.recall(*user, k))
    assert value(recall_full, places, k=k) == pytest.approx(reference.recall_full(*user, k))
    assert value(ndcg, places, k=k) == pytest.approx(reference.ndcg(*user, k))


@given(users(), st.integers(1, 45))
def test_ndcg_equals_scikit_learn_ties_included(user, k) -> None:
    scores, candidates, held_out = user
    if len(candidates) == 1:  # scikit-learn wants at least two documents
        return
    relevant = np.isin(candidates, held_out).astype(float)
    ranked = np.asarray(scores, dtype=float)[candidates]
    expected = ndcg_score(relevant[None], ranked[None], k=k)
    assert value(ndcg, places_of(*user), k=k) == pytest.approx(expected)


def test_every_default_metric_has_a_function() -> None:
    assert all(callable(metric_function(name)) for name in DEFAULT_METRICS)


@pytest.mark.parametrize(
    "name", ["precision@20", "recall", "recall@0", "recall@-1", "mpr@5", "", "ndcg@" + "9" * 5000]
)
def test_an_unknown_metric_is_refused_with_the_ones_there_are(name) -> None:
    with pytest.raises(ConfigError, match=r"choose from mpr, mpr_unweighted, recall@k"):
        metric_function(name)


@pytest.mark.parametrize("n_held_out", [1, 4, 5, 6, 30])  # counted up to 5, then sorted
def test_counting_and_sorting_find_the_same_places(n_held_out) -> None:
    scores = np.random.default_rng(n_held_out).integers(0, 20, 1000).astype(np.float32)
    targets = scores[:n_held_out]
    n_above, n_tied = count_above_and_tied(scores, targets)
    assert n_above.tolist() == [(scores > target).sum() for target in targets]
    assert n_tied.tolist() == [(scores == target).sum() for target in targets]


@pytest.mark.parametrize("candidates", ["unseen", "all"])
@pytest.mark.parametrize("block_size", [1, 4, 100])
@pytest.mark.parametrize("n_values", [3, 1 << 20])  # many ties, or none
def test_places_are_those_of_a_plain_count(rng, candidates, block_size, n_values) -> None:
    scores = rng.integers(n_values, size=(20, 300)).astype(np.float32) - n_values // 2
    is_known = rng.random(scores.shape) < 0.1
    is_held_out = (rng.random(scores.shape) < rng.random((20, 1)) * 0.2) & ~is_known
    is_held_out[3] = False  # not evaluated

    class Fixed:
        def scores(self, histories):
            return scores[histories.toarray()[:, -20:].argmax(axis=1)]

    who = np.eye(20)  # the last columns say who it is, to the scorer only
    is_known[:, -20:], is_held_out[:, -20:] = who > 0, False
    known, held_out = csr_array(is_known.astype(float)), csr_array(is_held_out.astype(float))
    before = scores.copy()
    places = place_held_out(Fixed(), known, held_out, candidates=candidates, block_size=block_size)
    expected = []
    for user in range(20):
        ranked = scores[user, ~is_known[user]] if candidates == "unseen" else scores[user]
        targets = scores[user, is_held_out[user]]
        expected += [[(ranked > target).sum(), (ranked == target).sum()] for target in targets]
    assert np.stack([places.n_above, places.n_tied], axis=1).tolist() == np.array(expected).tolist()
    assert (scores == before).all()  # they belong to the scorer


def test_places_are_counted_among_unseen_items_and_users_numbered_anew() -> None:
    class Descending:
        def scores(self, histories):
            return np.tile(np.array([4, 3, 2, 2, 1], dtype=np.float32), (histories.shape[0], 1))

    histories = csr_array([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0]])
    held_out = csr_array([[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]])
    places = place_held_out(Descending(), histories, held_out)
    assert places.user.tolist() == [0, 0, 1]
    assert places.n_above.tolist() == [0, 1, 1]
    assert places.n_tied.tolist() == [1, 2, 1]
    assert places.n_candidates.tolist() == [4, 3]
    assert places.n_held_out.tolist() == [2, 1]


def test_less_cost_is_better_by_every_metric():
    good, bad = {"mpr": 5.0, "ndcg@100": 0.4}, {"mpr": 6.0, "ndcg@100": 0.3}
    for by in (None, "mpr", "ndcg@100"):
        assert cost_by(good, by) < cost_by(bad, by)
    # One per cent of the one is worth one per cent of the other.
    level = {"mpr": 5.0 * 1.01, "ndcg@100": 0.4 * 1.01}
    assert cost_by(level, None) == pytest.approx(cost_by(good, None))
    assert np.isfinite(cost_by({"mpr": 50.0, "ndcg@100": 0.0}, None))
    assert min(cost_by(good, by) for by in (None, "mpr", "ndcg@100")) > 0  # ratios mean something
    assert metrics_to_choose(None) == ("mpr", "ndcg@100") == metrics_to_choose("ndcg@100")
    assert metrics_to_choose("mpr") == ("mpr",)
