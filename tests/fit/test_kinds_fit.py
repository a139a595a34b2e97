"""A fit on events of several kinds, with one to predict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfnade import ImplicitCFNADE
from cfnade.answer.all_users import recommend_all
from cfnade.compare.comparison import compare
from cfnade.compare.contender import Contender
from cfnade.compare.protocol import Protocol
from cfnade.compare.registry import contender
from cfnade.data.event_splits import split_by_time, split_random
from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions, as_count_matrix
from cfnade.data.splitting import overlap, without_overlap
from cfnade.errors import ConfigError, DataError
from cfnade.metrics.evaluate import evaluate, relevance_of
from tests.networks import SMALL
from tests.planted import window_shopping


@pytest.fixture(scope="module", params=[False, True], ids=["random", "time"])
def shop(request):
    data = window_shopping(with_times=request.param).weighed(None, "buy")
    return split_by_time(data, share=0.1) if request.param else split_random(data, rng=1)


@pytest.fixture(scope="module")
def model(shop):
    return ImplicitCFNADE(**SMALL).fit(shop.train)


def quality(model, shop, data=None):
    data = data or shop.train
    held_out = shop.new
    ratings = model.scorer_.relative_rating
    return evaluate(
        model,
        model.histories(data),
        held_out,
        relevance_of(held_out, shop.train, ratings),
        exclude=shop.train.target_counts,
        n_bootstrap=0,
    ).metrics


def test_purchases_are_predicted_better_with_the_other_events(model, shop):
    weights = {kind: float(kind == "buy") for kind in shop.train.log.kinds}
    alone = ImplicitCFNADE(**SMALL).fit(shop.train.weighed(weights, "buy"))
    assert alone.histories(shop.train).nnz == shop.train.target_counts.nnz
    with_all, bought = quality(model, shop), quality(alone, shop)
    assert with_all["mpr"] < 0.7 * bought["mpr"]
    assert with_all["ndcg@20"] > 1.2 * bought["ndcg@20"]


def test_the_weights_are_found_and_saved(model, tmp_path, shop):
    assert model.event_weights_["cart"] > model.event_weights_["view"] > 0
    assert model.target_event_ == "buy"
    model.save(tmp_path / "model")
    again = ImplicitCFNADE.load(tmp_path / "model")
    assert again.event_weights_ == model.event_weights_ and again.target_event_ == "buy"
    histories = model.histories(shop.train)
    np.testing.assert_array_equal(again.histories(shop.train).toarray(), histories.toarray())
    np.testing.assert_array_equal(again.scores(histories), model.scores(histories))


def test_given_weights_are_used_as_they_are(shop):
    weights = {"view": 1.0, "cart": 3.0, "buy": 10.0, "skip": 0.0}
    data = shop.train.weighed(weights, "buy")
    model = ImplicitCFNADE(**SMALL).fit(data)
    assert model.event_weights_ == weights
    expected = sum(
        weight * data.log.of_kind(kind).counts(data.counts.shape).toarray()
        for kind, weight in weights.items()
    )
    np.testing.assert_allclose(data.counts.toarray(), expected)


def test_what_was_viewed_is_a_candidate_and_what_was_bought_is_not(model):
    history = {0: {"buy": 1}, 4: {"cart": 1, "view": 2}, 8: {"view": 1}}
    ids, _ = model.recommend_for(history, n=40)
    place = {item: rank for rank, item in enumerate(ids.tolist())}
    assert 0 not in place and {4, 8} <= place.keys()
    assert place[4] < place[8]  # in the cart, not only viewed
    everything, _ = model.recommend_for(history, n=40, filter_already_liked_items=False)
    assert 0 in everything and len(everything) == len(ids) + 1
    plain, _ = model.recommend_for([0, 4, 8], n=40)  # without a kind: bought
    assert not {0, 4, 8} & set(plain.tolist())


def test_a_history_by_request_scores_as_the_same_events_of_a_table(model, shop):
    user, log = 3, shop.train.log
    history: dict[int, dict[str, float]] = {}
    for place in np.flatnonzero(log.user == user):
        kind = log.kinds[log.kind[place]]
        entry = history.setdefault(int(log.item[place]), {})
        if log.time is None:
            entry[kind] = entry.get(kind, 0.0) + log.count[place]
        else:
            entry.setdefault(kind, []).append([log.count[place], log.time[place]])
    ids, scores = model.recommend_for(history, n=5)
    histories, owned = model.histories(shop.train), model.owned(shop.train)
    one = slice(user, user + 1)
    ((_, table),) = recommend_all(model.answers_, histories[one], 5, owned=owned[one], n_threads=1)
    assert table.column.tolist() == ids.tolist()
    np.testing.assert_allclose(table.score, scores, rtol=1e-5)


def test_all_users_get_what_each_gets_alone(model, shop):
    histories, owned = model.histories(shop.train), model.owned(shop.train)
    parts = [f for _, f in recommend_all(model.answers_, histories, 7, owned=owned, n_threads=1)]
    row = np.concatenate([part.row for part in parts])
    column = np.concatenate([part.column for part in parts])
    scores = model.scores(histories)
    rows, bought = owned.nonzero()
    scores[rows, bought] = -np.inf
    for user in range(histories.shape[0]):
        best = np.argsort(-scores[user], kind="stable")[:7]
        assert set(column[row == user]) == set(best)


def test_unknown_events_get_one_clear_line(model, shop):
    with pytest.raises(DataError, match="no event 'like'; its events are 'buy', 'cart'"):
        model.recommend_for({4: {"like": 1}})
    log = shop.train.log
    renamed = replace(shop.train, log=replace(log, kinds=("buy", "cart", "skip", "wish")))
    with pytest.raises(DataError, match="knows no event 'wish'"):
        model.histories(replace(renamed, event_weights=None, target_event=None))
    with pytest.raises(ConfigError, match="no event 'like' to predict; the events are"):
        window_shopping().weighed(None, "like")
    with pytest.raises(ConfigError, match="no event 'like' to weigh"):
        window_shopping().weighed({"like": 1.0})
    with pytest.raises(ConfigError, match="'buy', must be above 0"):
        window_shopping().weighed({"buy": 0.0, "cart": 1.0, "view": 1.0, "skip": 0.0}, "buy")


def test_a_comparison_gives_all_models_the_same_weights_and_candidates(shop):
    if shop.train.clock is not None:
        pytest.skip("a random split is enough here")
    data = window_shopping().weighed(None, "buy")
    models: dict[str, Contender] = {
        "popularity": contender("popularity"),
        "collective": contender("collective").holding(factors=32),
        "cfnade": replace(contender("cfnade"), start={"recipe": "default", **SMALL}),
        "cfnade-target": replace(contender("cfnade-target"), start={"recipe": "default", **SMALL}),
    }
    found = compare(data, models, max_trials=2, budget=None)
    assert found.protocol["target_event"] == "buy"
    assert found.protocol["event_weights"]["cart"] > found.protocol["event_weights"]["view"]
    mpr = {result.model: result.metrics["mpr"] for result in found.results}
    assert mpr["cfnade"] < min(mpr["popularity"], mpr["cfnade-target"])
    collective = next(r for r in found.results if r.model == "collective")
    assert set(collective.settings["event_weights"]) == {"cart", "skip", "view"}


# Dislikes ---------------------------------------------------------------------------------------


def skipping(seed: int = 0):
    """Users of four tastes: half of them also play the next taste's items, half skip those."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(300), 16)
    taste, likes_next = user % 4, (user // 4) % 2 == 0
    is_own = rng.random(user.size) < 0.6
    item = 4 * rng.integers(10, size=user.size) + np.where(is_own, taste, (taste + 1) % 4)
    is_skip = ~is_own & ~likes_next
    log = EventLog(
        user.astype(np.int32),
        item.astype(np.int32),
        np.ones(user.size),
        kind=is_skip.astype(np.int16),
        kinds=("play", "skip"),
    )
    return Interactions.from_log(log, np.arange(300), np.arange(40))


def test_skips_are_dislikes_in_training_and_histories():
    data = skipping().weighed({"play": 1.0, "skip": -1.0})
    model = ImplicitCFNADE(**SMALL).fit(data)
    histories = model.histories(data)
    assert (histories.data < 0).sum() == data.dislikes.nnz > 0
    assert (histories.data > 0).sum() == data.counts.nnz
    liked, disliked = {0: {"play": 1}, 4: {"play": 1}}, {1: {"skip": 1}, 5: {"skip": 2}}
    with_skips = model.probability({**liked, **disliked}, [9, 13, 17])
    without = model.probability(liked, [9, 13, 17])
    assert (with_skips < 0.95 * without).all()
    likes_both = model.probability({**liked, 1: {"play": 1}}, [9, 13, 17])
    assert (with_skips < 0.5 * likes_both).all()
    ids, _ = model.recommend_for({**liked, **disliked}, n=40, filter_already_liked_items=False)
    assert not {1, 5} & set(ids.tolist())


def test_a_skipped_item_scores_as_the_request_says_and_as_the_table_says():
    data = skipping().weighed({"play": 1.0, "skip": -1.0})
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 2}).fit(data)
    user, log = 5, data.log
    history: dict[int, dict[str, float]] = {}
    for place in np.flatnonzero(log.user == user):
        entry = history.setdefault(int(log.item[place]), {})
        kind = log.kinds[log.kind[place]]
        entry[kind] = entry.get(kind, 0.0) + 1.0
    ids, scores = model.recommend_for(history, n=5)
    histories = model.histories(data)
    expected, of_table = model.recommend(user, histories[user : user + 1], N=5)
    assert ids.tolist() == expected.tolist()
    np.testing.assert_allclose(scores, of_table, rtol=1e-5)


def test_a_comparison_leaves_out_disliked_items_for_all_models():
    data = window_shopping(with_times=True)
    weighed = data.weighed({"view": 1.0, "cart": 2.0, "buy": 4.0, "skip": -9.0})
    protocol = Protocol(weighed)
    train, held_out = protocol.validation.train_data, protocol.validation.held_out
    assert overlap(train.dislikes, held_out).nnz == 0
    assert overlap(train.dislikes, protocol.validation.exclude).nnz == train.dislikes.nnz
    models = {"popularity": contender("popularity"), "imf": contender("imf").holding(factors=32)}
    models["cfnade"] = replace(contender("cfnade"), start={"recipe": "default", **SMALL})
    found = compare(weighed, models, max_trials=1, budget=None)
    assert len(found.results) == 3


def test_a_test_part_is_weighed_like_the_training_part():
    weights = {"view": 1.0, "cart": 2.0, "buy": 4.0, "skip": -9.0}
    data = window_shopping(with_times=True).weighed(weights)
    is_later = data.log.time >= 80
    train, later = data.with_events(~is_later), data.with_events(is_later)
    test = replace(later, counts=later.log.counts(later.counts.shape), event_weights=None)
    protocol = Protocol(train, test)
    skipped = as_count_matrix(later.dislikes)
    assert overlap(skipped, protocol._test).nnz == 0
    assert overlap(train.dislikes, protocol._test).nnz == 0 < protocol._test.nnz


def test_an_audience_is_scored_from_histories_as_the_model_reads_them(model, shop):
    item = 4
    found = model.recommend_users(item, shop.train, N=20)
    histories, owned = model.histories(shop.train), model.owned(shop.train)
    scores = model.scores(histories)[:, item]
    scores[owned[:, [item]].nonzero()[0]] = -np.inf
    best = np.argsort(-scores, kind="stable")[:20]
    np.testing.assert_allclose(found.scores, scores[best], rtol=1e-5)
    assert set(found.users.tolist()) == set(best.tolist())
    carted = shop.train.log.of_kind("cart").counts(shop.train.counts.shape)[:, [item]].nonzero()[0]
    assert set(carted) & set(found.users.tolist())  # not bought yet


def test_probabilities_are_of_the_event_to_predict():
    n_expected, n_true = 0.0, 0
    for seed in range(3):
        data = window_shopping(seed, with_times=True).weighed(None, "buy")
        train = split_by_time(data, at=82.0).train
        model = ImplicitCFNADE(**SMALL).fit(train)
        histories = model.histories(train)
        for user, scores in enumerate(model.scores(histories)):
            own = histories[[user]].indices
            probability = model.calibrator_.probability(scores, own.size)
            probability[own] = 0.0
            n_expected += probability.sum() if own.size else 0.0
        # Validation was the last tenth, about seven days: as long a period after it.
        later = data.with_events((data.log.time >= 82) & (data.log.time < 89))
        n_true += without_overlap(histories, later.target_counts).nnz
    assert 0.5 * n_true < n_expected < 2.0 * n_true
