"""Dials by item id and category: what they ask for, what they leave alone, and wrong values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ConfigError, DataError, Dials, ImplicitCFNADE, hold_out
from cfnade.answer.dials import read_dials
from cfnade.data.catalogue import Catalogue
from cfnade.data.item_features import ItemFeatures
from tests.networks import random_counts, random_model

N_ITEMS = 20
HISTORY = {"i1": 2, "i5": 1}
GENRES = np.array(["Drama", "Comedy", "War"], dtype=object)


def with_genres(model: ImplicitCFNADE) -> ImplicitCFNADE:
    """Item k has genre k % 3; the last item has none."""
    genre = np.eye(3, dtype=np.float32)[np.arange(N_ITEMS) % 3]
    genre[-1] = 0.0
    features = ItemFeatures(csr_array(genre), GENRES, np.zeros(3, dtype=np.int64), ("genre",))
    return ImplicitCFNADE.from_parts(
        model.scorer_,
        replace(model.catalogue_, features=features),
        calibrator=model.calibrator_,
    )


@pytest.fixture(scope="module")
def model():
    model = random_model(N_ITEMS)
    model.calibrate(*hold_out(random_counts(n_items=N_ITEMS), share=0.3, rng=0))
    return with_genres(model)


def ask(model, n=20, **dials):
    ids, scores = model.recommend_for(HISTORY, n, dials=Dials(**dials))
    return ids.tolist(), scores


def test_all_dials_at_zero_give_the_same_bits(model):
    for zero in (Dials(), Dials(boost={"i3": 0.0}), Dials(boost_category={"genre": {"War": 0}})):
        assert model.answers_.query(HISTORY, dials=zero).reranking is None
        for ids, scores in (
            model.recommend_for(HISTORY, 7, dials=zero),
            model.recommend([0], model.catalogue_.history(HISTORY), 7, dials=zero),
        ):
            plain_ids, plain_scores = model.recommend_for(HISTORY, 7)
            assert ids.ravel().tolist() == plain_ids.tolist()
            assert scores.tobytes() == plain_scores.tobytes()


def test_popularity_adds_its_multiple_of_the_log_of_the_users(model):
    plain = dict(zip(*ask(model), strict=True))
    n_watchers = model.scorer_.relative_rating.n_watchers
    for tilt in (-1.5, 0.7):
        ids, scores = ask(model, popularity=tilt)
        columns = model.catalogue_.columns(ids)
        expected = [plain[item] for item in ids] + tilt * np.log(1 + n_watchers[columns])
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        assert (np.diff(scores) <= 0).all()


def test_boosts_of_items_and_categories_add_up(model):
    plain = dict(zip(*ask(model), strict=True))
    ids, scores = ask(model, boost={"i2": -1.0, "i4": 2.0}, boost_category={"genre": {"War": 0.5}})
    added = {"i2": -0.5, "i4": 2.0, **{f"i{k}": 0.5 for k in range(5, 19, 3)}}
    for item, score in zip(ids, scores, strict=True):
        assert score == pytest.approx(plain[item] + added.get(item, 0.0), abs=1e-5)


def test_probabilities_stay_those_of_the_items_whatever_is_added(model):
    asked = Dials(popularity=-1.0, diversity=0.4, boost={"i3": 1e6}, pin=["i9"])
    query = model.answers_.query(HISTORY, 6, dials=asked)
    (answer,) = model.answers_.recommend([query])
    ids = model.catalogue_.ids[answer.columns]
    assert ids[:2].tolist() == ["i9", "i3"] and answer.scores[1] > 1e5
    np.testing.assert_allclose(answer.probabilities, model.probability(HISTORY, ids), rtol=1e-5)


def test_pins_come_first_or_at_their_places(model):
    plain, _ = ask(model)
    assert ask(model, 5, pin=["i19", "i2"])[0][:2] == ["i19", "i2"]
    ids, _ = ask(model, 5, pin={"i19": 5, "i2": 2})
    others = [item for item in plain if item not in ("i19", "i2")]
    assert ids == [others[0], "i2", others[1], others[2], "i19"]


def test_an_item_that_a_filter_leaves_out_is_not_pinned(model):
    asked = Dials(pin=["i1", "i2", "i3"])
    ids, _ = model.recommend_for(HISTORY, 4, dials=asked, filter_items=["i2"])
    assert ids[2] == "i3" and not {"i1", "i2"} & set(ids.tolist())
    seen, _ = model.recommend_for(HISTORY, 4, dials=asked, filter_already_liked_items=False)
    assert seen[:3].tolist() == ["i1", "i2", "i3"]


def test_a_category_has_at_most_so_many_items(model):
    ids, _ = ask(model, at_most={"genre": 2})
    genres = [int(item[1:]) % 3 for item in ids if item != "i19"]
    assert sorted(genres) == [0, 0, 1, 1, 2, 2] and "i19" in ids
    plain, _ = ask(model)
    assert ids == [item for item in plain if item in ids]  # in the plain order


def test_lists_of_all_users_and_of_one_are_the_same(model):
    counts = random_counts(n_items=N_ITEMS)
    asked = Dials(popularity=-0.3, diversity=0.3, pin={"i4": 2}, at_most={"genre": 2})
    rows, scores = model.recommend(np.arange(30), counts, 5, dials=asked)
    for user in range(30):
        ids, own = model.recommend_for(counts[[user]], 5, dials=asked)
        assert rows[user].tolist() == ids.tolist()
        np.testing.assert_allclose(scores[user], own, atol=1e-5)


def test_queries_with_and_without_dials_are_answered_together(model):
    answers = model.answers_
    dials = [None, Dials(diversity=0.5), None, Dials(popularity=1.0, pin=["i7"]), Dials()]
    queries = [
        answers.query({f"i{k}": 1}, n, dials=asked, explain=True)
        for k, (asked, n) in enumerate(zip(dials, (3, 8, 9, 2, 5), strict=True))
    ]
    for query, answer in zip(queries, answers.recommend(queries), strict=True):
        (alone,) = answers.recommend([query])
        assert answer.columns.tolist() == alone.columns.tolist()
        np.testing.assert_allclose(answer.scores, alone.scores, atol=1e-5)
        np.testing.assert_allclose(answer.probabilities, alone.probabilities, atol=1e-6)
        assert len(answer.effects.scores) == len(answer.columns) == query.n


def test_the_histogram_has_the_scores_that_rank(model):
    query = replace(model.answers_.query(HISTORY, dials=Dials(boost={"i3": 9.0})), spread=True)
    (answer,) = model.answers_.recommend([query])
    assert answer.spread["high"] == pytest.approx(answer.scores[0], abs=1e-5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"popularity": float("nan")}, "popularity must be a finite number, got nan"),
        ({"popularity": 1e7}, "popularity must be from -1e+06 to 1e+06, got 10000000.0"),
        ({"diversity": 1.0}, "diversity must be at least 0 and below 1, got 1.0"),
        ({"diversity": -0.1}, "diversity must be at least 0 and below 1, got -0.1"),
        ({"pin": "i1"}, "pin takes a list of item ids, got the text 'i1'"),
        ({"pin": 5}, "pin must be a list of item ids, got 5"),
        ({"pin": [["i1"]]}, "['i1'] is not a single item id; pin must be a list of item ids"),
        ({"pin": ["i1", "i1"]}, "an item is pinned twice; name each once"),
        ({"pin": {"i1": 0}}, "the place of the pinned item 'i1' must be a whole number of at "),
        ({"pin": {"i1": 2, "i2": 2}}, "two items are pinned to the same place; choose another"),
        ({"boost": ["i1"]}, "boost must be a mapping, got ['i1']"),
        ({"boost": {"i1": "much"}}, "the boost of 'i1' must be a finite number, got 'much'"),
        ({"boost_category": {"genre": 1}}, "boost_category takes numbers by value, such as "),
        ({"boost_category": {"genre": {"War": 1e9}}}, "the boost of genre=War must be from -1e"),
        ({"at_most": {"genre": 0}}, "at_most of 'genre' must be a whole number of at least 1, "),
    ],
)
def test_a_wrong_value_gets_one_line(wrong, message):
    with pytest.raises(ConfigError) as error:
        Dials(**wrong)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ({"pin": {"i1": 11}}, ConfigError, "an item is pinned to place 11 of a list of 10; "),
        ({"pin": ["gone"]}, DataError, "item 'gone' is not in this model"),
        ({"boost": {"gone": 1.0}}, DataError, "item 'gone' is not in this model"),
        ({"at_most": {"brand": 1}}, DataError, "nothing is known about the items' brand; known: "),
        ({"boost_category": {"genre": {"Wat": 1}}}, DataError, "no item has genre=Wat; did you "),
        (
            {"at_most": {"genre": 1}, "pin": ["i0", "i3"]},
            ConfigError,
            "2 pinned items have genre=Drama, and at_most allows 1; pin fewer, or allow more",
        ),
    ],
)
def test_what_a_model_cannot_do_gets_one_line(model, asked, kind, message):
    with pytest.raises(kind) as error:
        ask(model, 10, **asked)
    assert str(error.value).startswith(message)


def test_unknown_items_can_be_ignored(model):
    asked = Dials(pin={"gone": 1, "i3": 2}, boost={"also gone": 3.0})
    ids, _ = model.recommend_for(HISTORY, 4, dials=asked, unknown="ignore")
    assert ids[1] == "i3"


def test_a_model_without_categories_says_so_and_takes_the_other_dials():
    plain = Catalogue(np.arange(4))
    n_watchers = np.array([4, 0, 2, 1])
    with pytest.raises(DataError, match="knows no categories of its items; fit it with a table"):
        read_dials(Dials(at_most={"genre": 2}), 3, plain, n_watchers)
    found = read_dials(Dials(popularity=2.0, diversity=0.1, pin={3: 2}), 3, plain, n_watchers)
    np.testing.assert_allclose(found.shift, 2 * np.log([5, 1, 3, 2]), rtol=1e-6)
    assert found.pins == {1: 3} and found.diversity == 0.1
    with pytest.raises(ConfigError, match=r"dials must be Dials\(...\), got {'diversity': 0.3}"):
        read_dials({"diversity": 0.3}, 3, plain, n_watchers)
