from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import Popularity
from cfnade.compare.protocol import Protocol, ProtocolConfig, validation_alone
from cfnade.data.event_splits import split_by_time
from cfnade.data.interactions import Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, DataError
from cfnade.metrics.evaluate import evaluate
from tests.compare.logs import random_log


def parts(data: Interactions, split_at: int) -> tuple[Interactions, Interactions]:
    """A fixed split: the first items of each user for training, the others for the test."""
    dense = data.counts.toarray()
    early = np.arange(data.n_items) < split_at
    return (
        Interactions(csr_array(dense * early), data.user_ids, data.item_ids),
        Interactions(csr_array(dense * ~early), data.user_ids, data.item_ids),
    )


def test_what_is_known_and_what_is_tested_on_add_up(counts):
    protocol = Protocol(Interactions.from_matrix(counts))
    facts = protocol.facts
    n_parts = [facts[f"n_{part}_pairs"] for part in ("train", "validation", "test")]
    assert sum(n_parts) == counts.nnz
    assert protocol.known.nnz == n_parts[0] + n_parts[1]
    evaluation = protocol.test(Popularity().fit(protocol.known))
    assert evaluation.n_pairs == n_parts[2]


def test_few_users_are_validated_on_and_the_others_pairs_stay_in_train(counts):
    data = Interactions.from_matrix(counts)
    few = Protocol(data, config=ProtocolConfig(validation_users=7))
    assert (np.diff(few.validation.held_out.indptr) > 0).sum() == 7
    everyone = Protocol(data)
    np.testing.assert_array_equal(few.known.toarray(), everyone.known.toarray())
    assert few.facts["n_train_pairs"] > everyone.facts["n_train_pairs"]
    rejoined = few.validation.train + few.validation.held_out
    np.testing.assert_array_equal(rejoined.toarray(), few.known.toarray())


@pytest.mark.parametrize(("clock", "split"), [("number", "time"), ("order", "last")])
def test_what_knows_times_gets_the_log_of_what_it_may_see(clock, split):
    data = random_log(clock=clock)
    protocol = Protocol(data)
    assert protocol.facts["split"] == split
    for part, counts in (
        (protocol.known_data, protocol.known),
        (protocol.validation.train_data, protocol.validation.train),
    ):
        assert part.counts is counts
        assert (part.log.counts(data.counts.shape) != counts).nnz == 0
        assert part.user_ids is data.user_ids
    assert protocol.validation.train_data.log.n_events < protocol.known_data.log.n_events
    evaluation = protocol.test(Popularity().fit(protocol.known))
    assert evaluation.n_pairs == protocol.facts["n_test_pairs"]


def test_repeats_are_validated_and_tested_if_all_items_are_candidates():
    data = random_log()
    protocol = Protocol(data, config=ProtocolConfig(candidates="all"))
    validation = protocol.validation
    assert validation.candidates == "all"
    assert validation.new_pairs.nnz < validation.held_out.nnz
    assert validation.new_pairs.multiply(validation.train).nnz == 0
    scorer = Popularity().fit(validation.train)
    relevance = validation.ratings.transform(validation.held_out)
    expected = evaluate(
        scorer, validation.train, validation.held_out, relevance, candidates="all", n_bootstrap=0
    )
    assert validation.metrics(scorer)["mpr"] == expected.metrics["mpr"]
    assert protocol.facts["n_overlap_pairs"] > 0
    assert protocol.test(Popularity().fit(protocol.known)).n_pairs == protocol.facts["n_test_pairs"]


@pytest.mark.parametrize("clock", ["number", "order", None])
def test_validation_alone_is_made_as_that_of_a_comparison_would_be(clock):
    data = random_log(clock=clock or "number")
    if clock is None:
        data = Interactions.from_matrix(data.counts)
    alone = validation_alone(data, ProtocolConfig(validation_users=10))
    assert np.count_nonzero(np.diff(alone.held_out.indptr)) == 10
    assert alone.held_out.multiply(alone.train).nnz == 0
    if clock == "number":
        split = split_by_time(data, share=0.1)
        assert (alone.train != split.train.counts).nnz == 0
        assert alone.train_data.log.time.max() < split.at


def test_ratings_are_fitted_on_what_is_known_unless_the_papers_order_is_asked_for(counts):
    data = Interactions.from_matrix(counts)
    assert Protocol(data).relative_rating is None
    everything = Protocol(data, config=ProtocolConfig(ratings_from="all")).relative_rating
    np.testing.assert_array_equal(
        everything.transform(counts).toarray(),
        RelativeRating().fit(counts).transform(counts).toarray(),
    )


def test_a_fixed_test_part_is_aligned_and_overlap_is_found_reported_and_left_out(counts, caplog):
    # Users and items of the test come in another order, with strangers among them.
    dense = counts.toarray()
    data = Interactions(counts, np.arange(60), np.arange(20))
    test = Interactions(
        csr_array(np.array([[3.0, 1.0, 2.0], [1.0, 0.0, 0.0]])),
        np.array([5, 999]),
        np.array([int(np.flatnonzero(dense[5])[0]), int(np.flatnonzero(dense[5] == 0)[0]), 777]),
    )
    protocol = Protocol(data, test)
    assert "2 of 4 test pairs are left out" in caplog.text
    assert "1 test pair also in train, left out" in caplog.text
    assert protocol.facts["n_unknown_user_pairs"] == 1
    assert protocol.facts["n_unknown_item_pairs"] == 1
    assert protocol.facts["n_overlap_pairs"] == 1
    assert protocol.facts["n_test_pairs"] == 1
    assert protocol.known.nnz == counts.nnz  # all of DATA is for training
    kept = Protocol(data, test, ProtocolConfig(candidates="all"))
    assert kept.facts["n_test_pairs"] == 2


def test_validation_mirrors_the_fixed_test_part():
    # Ten items that are bought often beside twenty bought once; a later period repeats pairs.
    rng = np.random.default_rng(0)
    dense = (rng.random((200, 30)) < 0.5).astype(float)
    dense[:, :10] *= 6.0
    data = Interactions.from_matrix(csr_array(dense))
    new = Interactions.from_matrix(csr_array((dense == 0) * 1.0))
    period = (dense != 1) * 1.0
    period[:, :10] *= 2.0
    repeats = Interactions.from_matrix(csr_array(period))

    def often_bought(protocol: Protocol) -> float:
        return float(np.mean(protocol.validation.held_out.data > 1))

    by_pairs, by_events = Protocol(data, new), Protocol(data, repeats)
    assert (by_pairs.facts["validation_by"], by_events.facts["validation_by"]) == (
        "pairs",
        "events",
    )
    assert often_bought(by_pairs) > 0.25
    slip = (dense == 0) * 1.0
    slip[0, np.flatnonzero(dense[0])[0]] = 1.0  # one pair of thousands that should not be there
    assert (
        Protocol(data, Interactions.from_matrix(csr_array(slip))).facts["validation_by"] == "pairs"
    )
    strangers = Interactions(
        csr_array(np.vstack([period[:9], np.full((900, 30), 2.0)])),
        np.arange(909),
        np.arange(30),
    )
    known_by_id = Interactions(data.counts[:9], np.arange(9), np.arange(30))
    assert Protocol(known_by_id, strangers).facts["validation_by"] == "events"
    assert often_bought(by_events) == 0.0
    assert often_bought(Protocol(data, repeats, ProtocolConfig(validation_by="pairs"))) > 0.25
    assert often_bought(Protocol(data, repeats, ProtocolConfig(candidates="all"))) > 0.25
    assert often_bought(Protocol(data)) > 0.25
    assert often_bought(Protocol(data, config=ProtocolConfig(validation_by="events"))) == 0.0


def test_a_test_part_that_has_everything_once_is_a_session(caplog):
    rng = np.random.default_rng(0)
    dense = (rng.random((200, 30)) < 0.5) * rng.integers(1, 3, (200, 30)).astype(float)
    basket = (rng.random((200, 30)) < 0.2) * 1.0
    basket[150:] = 0.0  # not tested
    data, test = (Interactions.from_matrix(csr_array(part)) for part in (dense, basket))
    protocol = Protocol(data, test)
    assert protocol.facts["validation_by"] == "sessions"
    assert "the last session of each user" in caplog.text
    held_out = protocol.validation.held_out
    assert held_out.data.max() == 1.0
    n_held = np.diff(held_out.indptr)
    assert not n_held[150:].any()  # who is tested is validated
    # As large a part of what somebody has once as the basket is of all that they have.
    share = (basket > 0)[:150].sum() / ((dense + basket) > 0)[:150].sum()
    n_once = (dense[:150] == 1.0).sum()
    assert n_held.sum() / n_once == pytest.approx(share, abs=0.05)
    assert protocol.facts["validation_share"] == pytest.approx(share, abs=0.02)
    for counts in ((dense > 0) * 1.0, (dense > 0) * 3.0):  # no counts above 1, no single events
        other = Interactions.from_matrix(csr_array(counts))
        assert Protocol(other, test).facts["validation_by"] == "events"
    everything = Interactions.from_matrix(csr_array((dense > 0) * 1.0 + basket > 0) * 1.0)
    assert Protocol(data, everything).facts["validation_share"] == 0.5  # something is left


def test_all_validated_users_have_something_held_out(caplog):
    rng = np.random.default_rng(0)
    dense = np.zeros((400, 30))
    dense[:, :2] = 1.0  # two items each, too few to hold one out
    dense[:100] = (rng.random((100, 30)) < 0.5) * 1.0
    new = Interactions.from_matrix(csr_array((dense == 0) * 1.0))
    config = ProtocolConfig(validation_users=60)
    data = Interactions.from_matrix(csr_array(dense))
    held_out = Protocol(data, new, config).validation.held_out
    assert np.count_nonzero(np.diff(held_out.indptr)) == 60
    few = (dense == 0) * 1.0
    few[:100] = 0.0  # only those with too few are tested
    held_out = Protocol(data, Interactions.from_matrix(csr_array(few)), config).validation.held_out
    assert np.count_nonzero(np.diff(held_out.indptr)) == 60
    assert "no tested user has enough items" in caplog.text


def test_nothing_left_to_test_on_is_refused_with_the_reasons(counts):
    data = Interactions.from_matrix(counts)
    with pytest.raises(DataError, match=f"nothing is left to test on.*{counts.nnz} are in train"):
        Protocol(data, data)


def test_test_figures_are_those_of_evaluate(counts):
    train, test = parts(Interactions.from_matrix(counts), 15)
    protocol = Protocol(train, test)
    scorer = Popularity().fit(train.counts)
    relevance = RelativeRating().fit(train.counts).transform(test.counts)
    expected = evaluate(scorer, train.counts, test.counts, relevance)
    assert protocol.test(scorer).metrics == expected.metrics


def test_too_little_data_and_invalid_settings_are_refused():
    with pytest.raises(DataError, match="no user has 5 items"):
        Protocol(Interactions.from_matrix(csr_array(np.ones((3, 2)))))
    with pytest.raises(DataError, match="validation"):
        Protocol(Interactions.from_matrix(csr_array(np.ones((3, 5)))))
    for wrong in (
        {"ratings_from": "test"},
        {"candidates": "some"},
        {"test_share": 0.0},
        {"validation_by": "x"},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ProtocolConfig(**wrong)
