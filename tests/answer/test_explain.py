from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from cfnade import DataError
from tests.networks import random_model

HISTORY = {"i3": 5, "i0": 1, "i7": 2, "i12": 9}


def logit_and_probability(model, history, item, disliked=None):
    ids, probabilities = model.recommend_for(
        history, n=20, disliked=disliked, filter_already_liked_items=False
    )
    probability = float(probabilities[ids.tolist().index(item)])
    return np.log(probability / (1 - probability)), probability


@pytest.mark.parametrize(
    "settings", [{}, {"n_neighbours": 0, "input_scale": "none", "n_layers": 2}]
)
def test_effects_equal_really_leaving_the_entry_out(settings):
    model = random_model(**settings)
    disliked = {"i5": 8.0, "i9": 2.0}
    explanation = model.explain(HISTORY, "i15", disliked=disliked)
    logit, probability = logit_and_probability(model, HISTORY, "i15", disliked)
    assert explanation.item == "i15"
    assert explanation.probability == pytest.approx(probability, abs=1e-6)
    assert explanation.logit == pytest.approx(logit, abs=1e-4)
    assert {e.item for e in explanation.effects if e.is_liked} == set(HISTORY)
    assert {e.item for e in explanation.effects if not e.is_liked} == set(disliked)
    for effect in explanation.effects:
        less = {k: v for k, v in HISTORY.items() if k != effect.item}
        fewer = {k: v for k, v in disliked.items() if k != effect.item}
        without = logit_and_probability(model, less, "i15", fewer)
        assert effect.logit == pytest.approx(logit - without[0], abs=1e-4)
        assert effect.probability == pytest.approx(probability - without[1], abs=1e-5)


def test_the_largest_effects_come_first_and_because_has_the_likes_that_speak_for_it():
    model = random_model()
    for item in ("i1", "i2", "i15"):
        explanation = model.explain(HISTORY, item, disliked=["i5"])
        sizes = [abs(effect.logit) for effect in explanation.effects]
        assert sizes == sorted(sizes, reverse=True)
        for_it = [e for e in explanation.effects if e.is_liked and e.logit > 0]
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
