"""An effect equals the difference to the answer without the entry."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from cfnade import DataError, ImplicitCFNADE, hold_out
from cfnade.answer.explain import logits_without_each
from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.model.inference import ACTIVATIONS, NetworkScorer, NumpyNetwork
from tests.networks import random_counts, random_model, random_numpy_network

HISTORY = {"i3": 5, "i0": 1, "i7": 2, "i12": 9}
N_ITEMS, ITEM = 12, 5


def score_of(model, history, item, disliked=None):
    ids, scores = model.recommend_for(
        history, n=20, disliked=disliked, filter_already_liked_items=False
    )
    return float(scores[ids.tolist().index(item)])


@pytest.mark.parametrize(
    "settings", [{}, {"n_neighbours": 0, "input_scale": "none", "n_layers": 2}]
)
@pytest.mark.parametrize("disliked", [{}, {"i5": 8.0, "i9": 2.0}])
def test_effects_equal_really_leaving_the_entry_out(settings, disliked):
    model = random_model(**settings)
    model.calibrate(*hold_out(random_counts(), share=0.3, rng=0))
    explanation = model.explain(HISTORY, "i15", disliked=disliked)
    score = score_of(model, HISTORY, "i15", disliked)
    (probability,) = model.probability(HISTORY, ["i15"], disliked=disliked)
    assert explanation.item == "i15"
    assert explanation.score == pytest.approx(score, abs=1e-5)
    assert explanation.probability == pytest.approx(probability, abs=1e-6)
    assert {e.item for e in explanation.effects if e.is_liked} == set(HISTORY)
    assert {e.item for e in explanation.effects if not e.is_liked} == set(disliked)
    for effect in explanation.effects:
        less = {k: v for k, v in HISTORY.items() if k != effect.item}
        fewer = {k: v for k, v in disliked.items() if k != effect.item}
        without = score_of(model, less, "i15", fewer)
        assert effect.score == pytest.approx(score - without, abs=1e-5)
        if not disliked:
            (without,) = model.probability(less, ["i15"])
            assert effect.probability == pytest.approx(probability - without, abs=1e-6)


def test_the_shift_of_dislikes_stays_while_a_like_is_left_out_and_is_shared_among_dislikes():
    model = random_model()
    model.calibrate(*hold_out(random_counts(), share=0.3, rng=0))
    disliked = {"i5": 8.0, "i9": 2.0}
    shift = model.answers_.dislike_shift(model.answers_.query(HISTORY, disliked=disliked))
    explanation = model.explain(HISTORY, "i15", disliked=disliked)
    assert shift != 0.0
    for effect in explanation.effects:
        logit, n_left = explanation.score - effect.score, len(HISTORY) - effect.is_liked
        left = shift if effect.is_liked else shift / 2
        without = model.calibrator_.probability(np.array([logit]), n_left, left)[0]
        assert effect.probability == pytest.approx(explanation.probability - without, abs=1e-6)
    (alone,) = (e for e in model.explain(HISTORY, "i15", disliked=["i5"]).effects if not e.is_liked)
    with_it, without = (
        model.probability(HISTORY, ["i15"], **asked)[0] for asked in ({"disliked": ["i5"]}, {})
    )
    assert alone.probability == pytest.approx(with_it - without, abs=1e-6)  # exact


def test_there_is_no_probability_without_a_calibrator_or_for_an_item_of_the_history():
    model = random_model()
    explanation = model.explain(HISTORY, "i15")
    assert explanation.probability is None
    assert {effect.probability for effect in explanation.effects} == {None}
    model.calibrate(*hold_out(random_counts(), share=0.3, rng=0))
    explanation = model.explain(HISTORY, "i3")
    assert explanation.probability is None
    assert {effect.probability for effect in explanation.effects} == {None}


def test_the_largest_effects_come_first_and_because_has_the_likes_that_speak_for_it():
    model = random_model()
    for item in ("i1", "i2", "i15"):
        explanation = model.explain(HISTORY, item, disliked=["i5"])
        sizes = [abs(effect.score) for effect in explanation.effects]
        assert sizes == sorted(sizes, reverse=True)
        for_it = [e for e in explanation.effects if e.is_liked and e.score > 0]
        assert list(explanation.because(2)) == for_it[:2]


def test_a_history_is_given_by_ids_or_as_a_row():
    model = random_model()
    by_id = model.explain(HISTORY, "i15")
    row = model.catalogue_.history(HISTORY)
    for form in (row, row[0], csr_matrix(row), csr_matrix(row)[0]):
        assert model.explain(form, "i15") == by_id
    ones = model.explain(["i3", "i0"], "i15")
    assert ones == model.explain({"i0": 1, "i3": 1}, "i15")


def test_an_empty_history_has_nothing_to_leave_out():
    explanation = random_model().explain({}, "i15")
    assert explanation.effects == () and explanation.because() == ()
    assert explanation == random_model().explain(csr_array((1, 20)), "i15")


def test_ids_come_back_in_their_own_type():
    model = random_model(item_ids=np.arange(100, 120))
    explanation = model.explain([103, np.int64(107)], np.int64(110))
    assert type(explanation.item) is int
    assert {type(effect.item) for effect in explanation.effects} == {int}


def test_an_unknown_item_is_told_and_one_of_the_history_can_be_ignored():
    model = random_model()
    with pytest.raises(DataError, match="item 'x' is not in this model"):
        model.explain(HISTORY, "x")
    with pytest.raises(DataError, match="item 'x' is not in this model"):
        model.explain({**HISTORY, "x": 1}, "i15")
    ignored = model.explain({**HISTORY, "x": 1}, "i15", disliked=["y"], unknown="ignore")
    assert ignored == model.explain(HISTORY, "i15")


def row(values: dict[int, float]) -> csr_array:
    columns = sorted(values)
    return csr_array(([values[c] for c in columns], columns, [0, len(columns)]), (1, N_ITEMS))


def without(values: dict[int, float], left_out: int) -> csr_array:
    return row({item: value for item, value in values.items() if item != left_out})


def check(network: NumpyNetwork, liked: dict[int, float], disliked: dict[int, float]) -> None:
    dislikes = row(disliked) if disliked else None
    found = logits_without_each(network, row(liked), np.array([ITEM]), dislikes)[:, 0]
    expected = [
        network.logits(row(liked), dislikes)[0, ITEM],
        *(network.logits(without(liked, j), dislikes)[0, ITEM] for j in sorted(liked)),
        *(network.logits(row(liked), without(disliked, j))[0, ITEM] for j in sorted(disliked)),
    ]
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("activation", "n_layers", "input_scale", "n_neighbours"),
    list(product(ACTIVATIONS, [1, 3], ["none", "alpha", "history"], [0, 4])),
)
def test_subtracting_a_term_equals_really_leaving_it_out(
    activation, n_layers, input_scale, n_neighbours
):
    network = random_numpy_network(
        N_ITEMS,
        activation=activation,
        n_layers=n_layers,
        input_scale=input_scale,
        n_neighbours=n_neighbours,
    )
    liked = {0: 0.1, 3: 1.0, 5: 0.5, 7: 0.33, 11: 0.9}  # the item asked for is among them
    check(network, liked, {})
    check(network, liked, {2: 31.0, 6: 1.0, 9: 4.0})


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("liked", [{}, {3: 0.4}, {3: 0.4, 5: 0.01}])
def test_short_histories_are_left_out_exactly_too(input_scale, liked):
    check(random_numpy_network(N_ITEMS, input_scale=input_scale), liked, {})
    check(random_numpy_network(N_ITEMS, input_scale=input_scale), liked, {2: 7.0})


def test_one_strong_item_among_many_weak_ones_loses_no_digits():
    network = random_numpy_network(N_ITEMS, alpha=300.0, input_scale="history")
    check(network, {j: 1.0 if j == 4 else 1e-3 for j in range(N_ITEMS)}, {})


@pytest.mark.parametrize("n_neighbours", [0, 4])
def test_many_items_at_once_are_the_same_as_one_after_the_other(n_neighbours):
    network = random_numpy_network(n_items=N_ITEMS, n_neighbours=n_neighbours)
    liked, disliked = row({0: 0.4, 3: 1.0, 7: 0.2}), row({1: 5.0, 9: 2.0})
    items = np.array([5, 0, 11, 9])
    together = logits_without_each(network, liked, items, disliked)
    assert together.shape == (1 + 3 + 2, 4)
    for place, item in enumerate(items):
        alone = logits_without_each(network, liked, np.array([item]), disliked)
        np.testing.assert_allclose(together[:, [place]], alone, rtol=1e-6, atol=1e-6)


def test_with_a_trend_effects_are_the_same_and_the_score_has_it():
    """The trend is added whatever the history, so leaving an entry out does not change it."""
    plain = random_model()
    network, added = plain.scorer_.network, np.linspace(-2, 2, 20, dtype=np.float32)
    trendy = NumpyNetwork(network.config, {**network.weights, "trend": added})
    scorer = NetworkScorer(trendy, plain.scorer_.relative_rating)
    model = ImplicitCFNADE.from_parts(scorer, plain.catalogue_)
    for item in ("i0", "i15"):
        found, before = model.explain(HISTORY, item), plain.explain(HISTORY, item)
        assert found.score == pytest.approx(before.score + added[int(item[1:])], abs=1e-5)
        assert found.score == pytest.approx(score_of(model, HISTORY, item), abs=1e-5)
        effects = {effect.item: effect.score for effect in before.effects}
        for effect in found.effects:
            assert effect.score == pytest.approx(effects[effect.item], abs=1e-5)
            less = {k: v for k, v in HISTORY.items() if k != effect.item}
            difference = found.score - score_of(model, less, item)
            assert effect.score == pytest.approx(difference, abs=1e-5)


def with_repeats(plain: ImplicitCFNADE) -> ImplicitCFNADE:
    """The model with scores of items of the history."""
    network = plain.scorer_.network
    added = {
        "repeat_bias": np.linspace(-3, -1, 20, dtype=np.float32),
        "repeat_weight": np.array([0.7], dtype=np.float32),
    }
    repeating = NumpyNetwork(network.config, {**network.weights, **added})
    scorer = NetworkScorer(repeating, plain.scorer_.relative_rating)
    return ImplicitCFNADE.from_parts(scorer, plain.catalogue_)


def test_an_item_of_the_history_is_explained_by_its_count_and_how_often_people_come_back():
    model = with_repeats(random_model())
    model.calibrate(*hold_out(random_counts(), share=0.3, rng=0))
    found = model.explain(HISTORY, "i3", disliked=["i5"])
    score = score_of(model, HISTORY, "i3", ["i5"])
    assert found.in_history and found.probability is None
    assert found.score == pytest.approx(score, abs=1e-5)
    repeat = found.repeat
    assert repeat.count == 5 and repeat.above == 3 / 20
    assert repeat.from_count == pytest.approx(0.7 * np.log(6))
    assert repeat.from_count + repeat.from_item == pytest.approx(score, abs=1e-5)
    without = {item: count for item, count in HISTORY.items() if item != "i3"}
    for effect in found.effects:  # no other entry matters, and without its own it is a new item
        if effect.item == "i3":
            as_new = score_of(model, without, "i3", ["i5"])
            assert effect.score == pytest.approx(score - as_new, abs=1e-5)
        else:
            assert effect.score == 0
    new = model.explain(HISTORY, "i15")
    assert not new.in_history and new.repeat is None and new.probability is not None


def test_recommended_items_of_the_history_have_the_same_reasons():
    model = with_repeats(random_model())
    answers = model.answers_
    query = answers.query(HISTORY, 20, explain=True, filter_already_liked_items=False)
    (answer,) = answers.recommend([query])
    np.testing.assert_allclose(answer.effects.scores, answer.scores, atol=1e-5)
    assert set(answer.effects.repeats) == set(np.flatnonzero(answer.effects.in_history).tolist())
    told = answer.effects.explained(answer.columns.tolist().index(3), 3, lambda c: {"item": c})
    assert told["in_history"] and told["repeat"]["count"] == 5 and told["probability"] is None


def test_without_a_model_of_repeats_it_says_so():
    found = random_model().explain(HISTORY, "i3")
    assert found.in_history and found.repeat is None


def test_effects_name_what_an_entry_has_in_common_with_the_item():
    plain = random_model()
    columns = {"genre": Entries([3, 15, 7], ["Drama", "Drama", "War"], np.ones(3))}
    known = ItemFeatures.from_entries(20, columns, {"genre": "values"})
    model = ImplicitCFNADE.from_parts(plain.scorer_, replace(plain.catalogue_, features=known))
    shared = {effect.item: effect.shared for effect in model.explain(HISTORY, "i15").effects}
    assert shared == {"i3": {"genre": ["Drama"]}, "i0": {}, "i7": {}, "i12": {}}
    assert {str(effect.shared) for effect in plain.explain(HISTORY, "i15").effects} == {"{}"}
