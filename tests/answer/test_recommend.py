"""A batch of queries gets the answers that each would get alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import DataError, hold_out
from cfnade.answer.recommend import N_BINS, Query
from cfnade.beyond.history_reader import HistoryReader
from cfnade.data.ratings import dislikes_alone, likes_alone
from tests.networks import random_counts, random_model

N_ITEMS = 20


@pytest.fixture(scope="module")
def answers():
    model = random_model(N_ITEMS)
    model.calibrate(*hold_out(random_counts(n_items=N_ITEMS), share=0.3, rng=0))
    return model.answers_


def random_query(rng: np.random.Generator) -> Query:
    items = rng.permutation(N_ITEMS)
    cuts = np.cumsum(rng.integers(0, 5, 2))
    liked, disliked = np.sort(items[: cuts[0]]), np.sort(items[cuts[0] : cuts[1]])
    return Query(
        liked,
        rng.integers(1, 9, liked.size).astype(float),
        disliked,
        rng.integers(1, 30, disliked.size).astype(float),
        n=int(rng.integers(1, 15)),
        only=rng.choice(N_ITEMS, 9) if rng.random() < 0.3 else None,
        exclude=rng.choice(N_ITEMS, 3),
        include_seen=bool(rng.random() < 0.5),
        explain=bool(rng.random() < 0.5),
        spread=bool(rng.random() < 0.5),
    )


def assert_same(one, other):
    assert one.columns.tolist() == other.columns.tolist()
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
    np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-6)
    assert (one.spread is None) == (other.spread is None)
    assert (one.effects is None) == (other.effects is None)
    if one.effects is not None:
        np.testing.assert_allclose(one.effects.on_scores, other.effects.on_scores, atol=1e-5)


@pytest.mark.parametrize("n_together", [2, 5, 40])
def test_a_query_gets_the_same_answer_alone_and_in_a_batch(answers, rng, n_together):
    queries = [random_query(rng) for _ in range(n_together)]
    for query, answer in zip(queries, answers.recommend(queries), strict=True):
        assert_same(answer, answers.recommend([query])[0])


def test_answers_respect_filters_and_follow_the_scores(answers, rng):
    for _ in range(30):
        query = random_query(rng)
        (answer,) = answers.recommend([query])
        logits = answers.scorer.network.logits(*answers._inputs([query]))[0]
        allowed = set(range(N_ITEMS)) if query.only is None else set(query.only.tolist())
        allowed -= {*query.exclude.tolist(), *query.disliked.tolist()}
        allowed -= set() if query.include_seen else set(query.liked.tolist())
        best = sorted(allowed, key=lambda column: -logits[column])[: query.n]
        assert answer.columns.tolist() == best
        assert answer.scores.dtype == np.float32
        np.testing.assert_allclose(answer.scores, logits[best], atol=1e-6)


def test_probabilities_are_calibrated_and_missing_for_items_of_the_history(answers, rng):
    for _ in range(30):
        query = random_query(rng)
        (answer,) = answers.recommend([query])
        is_seen = np.isin(answer.columns, query.liked)
        assert (np.isnan(answer.probabilities) == is_seen).all()
        expected = answers.probability(query)[answer.columns]
        np.testing.assert_allclose(answer.probabilities, expected, atol=1e-6)


def test_a_row_with_counts_below_zero_is_a_history_with_full_dislikes(answers):
    row = random_counts(1, N_ITEMS, 0.6)
    row.data[::3] = -2.0
    likes, disliked = likes_alone(row), dislikes_alone(row).indices
    full = {answers.catalogue.ids[column]: answers.full_dislike for column in disliked}
    for asked in ({}, {"filter_already_liked_items": False}, {"explain": True}):
        signed = answers.query(row, 9, **asked)
        plain = answers.query(likes, 9, disliked=full, **asked)
        assert signed.liked.tolist() == likes.indices.tolist()
        assert signed.disliked.tolist() == plain.disliked.tolist() == disliked.tolist()
        assert signed.confidences.tolist() == plain.confidences.tolist()
        assert_same(answers.recommend([signed])[0], answers.recommend([plain])[0])
        found = answers.probability(signed)
        np.testing.assert_array_equal(found, answers.probability(plain))


def test_dislikes_of_a_row_and_those_named_beside_it_add_up(answers):
    row = csr_array(([3.0, -1.0, -1.0], [2, 5, 7], [0, 3]), shape=(1, N_ITEMS))
    query = answers.query(row, disliked={"i7": 1.5, "i1": 2.0})
    assert query.disliked.tolist() == [1, 5, 7]
    assert query.confidences.tolist() == [2.0, answers.full_dislike, 1.5]
    with pytest.raises(DataError, match="'i2' is both in the history and disliked"):
        answers.query(row, disliked=["i2"])


def test_disliked_ids_share_the_weight_of_one_unless_the_model_was_trained_with_dislikes(answers):
    full = answers.full_dislike
    assert answers.query({}, disliked=["i1"]).confidences.tolist() == [full]
    some = answers.query({}, disliked=iter(["i1", "i2", "i2", "i5"])).confidences
    assert some.tolist() == [max(full / 3, 1.0)] * 3
    everything = answers.query({}, disliked=answers.catalogue.ids).confidences
    assert everything.tolist() == [1.0] * N_ITEMS  # as unseen items
    trained = replace(answers, reader=HistoryReader(weights={"view": 1.0, "skip": -1.0}))
    assert trained.query({}, disliked=["i1", "i2"]).confidences.tolist() == [full, full]


def test_dislikes_do_not_change_how_many_items_are_expected(answers, rng):
    for disliked in (["i1"], ["i1", "i4", "i6"]):
        plain, query = (answers.query({"i2": 3, "i8": 1}, disliked=d) for d in (None, disliked))
        others = np.setdiff1d(np.arange(N_ITEMS), [*query.liked, *query.disliked])
        before, after = (answers.probability(q)[others] for q in (plain, query))
        assert after.sum() == pytest.approx(before.sum(), rel=1e-6)
        assert not np.allclose(after, before, rtol=1e-3)  # they say which ones
        trained = replace(answers, reader=HistoryReader(weights={"view": 1.0, "skip": -1.0}))
        assert answers.dislike_shift(query) != 0.0 == trained.dislike_shift(query)
    assert answers.dislike_shift(plain) == 0.0


def test_without_a_calibrator_there_are_scores_only():
    (answer,) = random_model().answers_.recommend([Query(n=4)])
    assert np.isnan(answer.probabilities).all() and len(answer.scores) == 4
    found = answer.to_json(lambda column: {"item": column, "name": f"item {column}"})
    assert [entry["probability"] for entry in found["recommendations"]] == [None] * 4
    assert set(found["recommendations"][0]) == {"item", "name", "score", "probability"}


def test_a_calibrator_is_used_as_soon_as_the_model_has_one():
    model = random_model()
    assert model.answers_.calibrator is None
    model.calibrate(*hold_out(random_counts(), share=0.3, rng=0))
    assert model.answers_.calibrator is model.calibrator_ is not None


def test_no_queries_have_no_answers(answers):
    assert answers.recommend([]) == []


def test_the_histogram_counts_all_items_that_may_be_recommended(answers):
    query = Query(np.array([3]), np.array([2.0]), exclude=np.array([1, 2]), spread=True)
    (answer,) = answers.recommend([query])
    counts = answer.spread["counts"]
    assert sum(counts) == N_ITEMS - 3 and len(counts) == N_BINS
    assert answer.spread["high"] == pytest.approx(answer.scores[0], abs=1e-6)
    (empty,) = answers.recommend([Query(only=np.empty(0, dtype=int), spread=True)])
    assert empty.spread == {"low": None, "high": None, "counts": []}
    assert empty.columns.size == 0
