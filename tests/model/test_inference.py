"""The numpy network is the paper's, written as loops; nothing here needs torch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating
from cfnade.model.config import ModelConfig
from cfnade.model.inference import (
    ACTIVATIONS,
    NetworkScorer,
    NumpyNetwork,
    direct_path,
    direct_weight,
    dislike_scale,
    full_dislike,
    input_weight,
    input_weights,
    rescaling_without,
    rows_between,
    with_values,
)
from tests import reference
from tests.networks import random_counts, random_numpy_network

N_ITEMS, ALPHA = 9, 3.0
LIKED = {1: 0.2, 4: 1.0, 7: 0.6}  # relative ratings
DISLIKED = {0: 5.0, 8: 1.5}  # confidences


def row(values: dict[int, float]) -> csr_array:
    dense = np.zeros((1, N_ITEMS))
    dense[0, list(values)] = list(values.values())
    return csr_array(dense)


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 300.0])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_logits_equal_the_equations_written_as_loops(rng, activation, input_scale, alpha, n_layers):
    network = random_numpy_network(
        N_ITEMS,
        alpha=alpha,
        input_scale=input_scale,
        n_layers=n_layers,
        activation=activation,
        n_neighbours=0,
    )
    weights = {name: weight.tolist() for name, weight in network.weights.items()}
    W, A, b = (weights[name] for name in ("like_weight", "dislike_weight", "hidden_bias"))
    V, d = weights["output_weight"], weights["output_bias"]
    watched = rng.random((10, N_ITEMS)) < 0.4
    watched[0], watched[1] = False, True  # an empty history, and one of everything
    ratings = np.where(watched, 1.0 - rng.random((10, N_ITEMS)), 0.0)
    ratings[4:][rng.random((6, N_ITEMS)) < 0.3] = -1.0  # some dislikes
    ratings[9] = np.minimum(ratings[9], 0.0)  # dislikes alone
    actual = network.logits(csr_array(ratings))
    assert actual.dtype == np.float32
    g, everything = reference.ACTIVATIONS[activation], range(N_ITEMS)
    for user, row_of_ratings in enumerate(ratings.tolist()):
        likes = [reference.like(rating) for rating in row_of_ratings]
        confidences = [reference.confidence(rating, alpha) for rating in row_of_ratings]
        disliked = [item for item in everything if row_of_ratings[item] < 0]
        h = reference.scaled_hidden(
            everything, likes, confidences, W, A, b, g, alpha, input_scale, disliked
        )
        for layer in range(n_layers - 1):
            U, c = weights[f"deep_weight.{layer}"], weights[f"deep_bias.{layer}"]
            h = reference.deeper(h, U, c, g)
        expected = [reference.logit(item, h, V, d) for item in everything]
        np.testing.assert_allclose(actual[user], expected, rtol=1e-4, atol=1e-4)


def test_a_dislike_enters_the_hidden_layer_as_the_equation_says():
    network = random_numpy_network(N_ITEMS, alpha=ALPHA, input_scale="none", n_neighbours=0)
    likes = [1 if item in LIKED else 0 for item in range(N_ITEMS)]
    confidences = [1.0 + ALPHA * LIKED.get(item, 0.0) for item in range(N_ITEMS)]
    for item, weight in DISLIKED.items():
        confidences[item] = weight
    W, A, b = (
        network.weights[name].tolist() for name in ("like_weight", "dislike_weight", "hidden_bias")
    )
    expected = reference.hidden(range(N_ITEMS), likes, confidences, W, A, b, g=math.tanh)
    actual = network.hidden(row(LIKED), row(DISLIKED))
    np.testing.assert_allclose(actual[0], expected, atol=1e-5)
    assert np.abs(actual - network.hidden(row(LIKED))).max() > 0.01


def test_input_scales_are_other_units_for_dislikes_as_well():
    literal = random_numpy_network(N_ITEMS, alpha=ALPHA, input_scale="none")
    scaled = random_numpy_network(N_ITEMS, alpha=ALPHA, input_scale="alpha")
    for name, weight in literal.weights.items():
        scaled.weights[name] = weight
    scaled.weights["like_weight"] = literal.weights["like_weight"] * (1 + ALPHA)
    scaled.weights["dislike_weight"] = literal.weights["dislike_weight"] * N_ITEMS
    scaled = type(scaled)(scaled.config, scaled.weights)
    np.testing.assert_allclose(
        scaled.logits(row(LIKED), row(DISLIKED)),
        literal.logits(row(LIKED), row(DISLIKED)),
        atol=1e-4,
    )


def test_a_dislike_leaves_the_weights_of_the_likes_as_they_are():
    network = random_numpy_network(N_ITEMS, alpha=ALPHA, input_scale="history")
    A = network.weights["dislike_weight"]
    expected = network.first_input(row(LIKED))[0]
    for item, weight in DISLIKED.items():
        expected = expected + (weight - 1.0) * A[item] / N_ITEMS
    np.testing.assert_allclose(
        network.first_input(row(LIKED), row(DISLIKED))[0], expected, atol=1e-5
    )


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_a_dislike_of_confidence_one_is_the_same_as_not_observed(input_scale):
    network = random_numpy_network(N_ITEMS, input_scale=input_scale)
    np.testing.assert_array_equal(
        network.logits(row(LIKED), row(dict.fromkeys(DISLIKED, 1.0))), network.logits(row(LIKED))
    )


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_a_full_dislike_weighs_as_much_as_the_surest_like_alone(input_scale):
    network = random_numpy_network(N_ITEMS, input_scale=input_scale)
    W, A = network.weights["like_weight"], network.weights["dislike_weight"]
    empty = network.first_input(csr_array((1, N_ITEMS)))[0]
    scale = dislike_scale(network.config)
    like = network.first_input(row({3: 1.0}))[0] - empty + scale * A[3]
    weight = full_dislike(network.config)
    dislike = network.first_input(csr_array((1, N_ITEMS)), row({3: weight}))[0] - empty
    strength = np.linalg.norm(like) / np.linalg.norm(W[3])
    assert np.linalg.norm(dislike + scale * A[3]) == pytest.approx(
        strength * np.linalg.norm(A[3]), rel=1e-4
    )


@pytest.mark.parametrize("n_users", [1, 12])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_a_rating_below_zero_is_a_full_dislike(rng, input_scale, n_users):
    network = random_numpy_network(N_ITEMS, alpha=ALPHA, input_scale=input_scale)
    known = rng.choice([-1.0, 0.0, 0.5, 1.0], size=(n_users, N_ITEMS))
    likes = csr_array(np.maximum(known, 0.0))
    full = csr_array(np.where(known < 0, full_dislike(network.config), 0.0))
    np.testing.assert_allclose(
        network.hidden(csr_array(known)), network.hidden(likes, full), atol=1e-5
    )
    np.testing.assert_allclose(
        network.logits(csr_array(known)), network.logits(likes, full), atol=1e-4
    )
    np.testing.assert_array_equal(network.direct(csr_array(known)), network.direct(likes))
    terms = network.direct_terms(csr_array(known))
    np.testing.assert_array_equal(terms.toarray(), network.direct(likes))


def test_ratings_and_a_separate_matrix_of_dislikes_add_up():
    network = random_numpy_network(N_ITEMS, alpha=ALPHA)
    full = full_dislike(network.config)
    np.testing.assert_allclose(
        network.hidden(row({**LIKED, 2: -1.0}), row(DISLIKED)),
        network.hidden(row(LIKED), row({**DISLIKED, 2: full})),
        atol=1e-5,
    )


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_likes_alone_have_the_weights_that_they_have_beside_dislikes(input_scale):
    config = ModelConfig(3, alpha=3.0, input_scale=input_scale)
    by_W, less_A = input_weights(CONTEXT, config)
    np.testing.assert_array_equal(by_W, input_weight(CONTEXT, config))
    assert less_A.tolist() == [dislike_scale(config)] * 3
    signed = csr_array(np.array([[4.0, -4.0, 2.0], [-2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    among, less_A = input_weights(signed, config)
    np.testing.assert_array_equal(among, [by_W[0], 0.0, by_W[1], 0.0, by_W[2]])
    scale = 1.0 if input_scale == "none" else 1.0 / 3.0
    full = 4.0 if input_scale == "none" else 1.0
    np.testing.assert_allclose(less_A, [scale, scale - full, scale, scale - full / 2, scale])


def test_a_scorer_reads_counts_below_zero_as_dislikes():
    network, counts = random_numpy_network(N_ITEMS), random_counts(12, N_ITEMS)
    ratings = RelativeRating().fit(counts)
    signed = counts.copy()
    signed.data[::3] *= -1.0
    expected = ratings.transform(counts)
    expected.data[::3] = -1.0
    scorer = NetworkScorer(network, ratings)
    np.testing.assert_array_equal(scorer.scores(signed), network.logits(expected))
    np.testing.assert_array_equal(scorer.hidden(signed), network.hidden(expected))
    network.weights["repeat_bias"] = np.arange(N_ITEMS, dtype=np.float32)
    network.weights["repeat_weight"] = np.array([2.0], dtype=np.float32)
    repeats = scorer.repeat_scores(signed)
    np.testing.assert_array_equal(repeats[::3], signed.indices[::3])
    np.testing.assert_array_equal(repeats[1::3], scorer.repeat_scores(counts)[1::3])


def test_the_direct_path_adds_the_neighbours_that_are_liked():
    network = random_numpy_network(N_ITEMS, n_neighbours=3)
    plain = replace(network.config, n_neighbours=0)
    names = ("neighbours", "neighbour_weight")
    others = {name: w for name, w in network.weights.items() if name not in names}
    ratings = random_counts(5, N_ITEMS)
    ratings.data = 1.0 / (1.0 + ratings.data)
    actual = network.logits(ratings) - NumpyNetwork(plain, others).logits(ratings)
    liked = ratings.toarray() > 0
    for user in range(5):
        for item in range(N_ITEMS):
            pairs = zip(*(network.weights[name][item] for name in names), strict=True)
            expected = sum(weight for neighbour, weight in pairs if liked[user, neighbour])
            assert actual[user, item] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("n_users", [0, 1, 2, 3, 4, 9])
def test_a_few_histories_and_many_have_the_logits_of_each_alone(rng, n_users):
    network = random_numpy_network(n_items=12, n_neighbours=2)
    ratings = csr_array(rng.random((n_users, 12)) * (rng.random((n_users, 12)) < 0.4))
    logits = network.logits(ratings)
    assert logits.shape == (n_users, 12) and logits.dtype == np.float32
    V, d = network.weights["output_weight"], network.weights["output_bias"]
    hidden = network.hidden(ratings)
    direct = (ratings.toarray() > 0).astype(np.float32) @ network.direct_weight.toarray()
    np.testing.assert_allclose(logits, hidden @ V.T + d + direct, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_users", [0, 1, 5])
def test_what_is_added_to_the_logits_is_the_product_with_the_likes(rng, n_users):
    neighbours = rng.integers(9, size=(9, 4))  # one may be there twice: both weights count
    weight = direct_weight(neighbours, rng.random((9, 4)).astype(np.float32))
    liked = csr_array(rng.random((n_users, 9)) * (rng.random((n_users, 9)) < 0.4))
    expected = (liked.toarray() > 0) @ weight.toarray()
    np.testing.assert_allclose(direct_path(liked, weight), expected, atol=1e-5)


@pytest.mark.parametrize("rows", [slice(0, 6), slice(0, 2), slice(2, 5), slice(3, 3), slice(5, 6)])
def test_rows_between_two_are_those_of_a_slice(rng, rows):
    matrix = csr_array(rng.random((6, 9)) * (rng.random((6, 9)) < 0.4))
    before, part = matrix.toarray(), rows_between(matrix, rows)
    assert part.shape == (rows.stop - rows.start, 9)
    np.testing.assert_array_equal(part.toarray(), before[rows])
    assert part.nnz == 0 or np.shares_memory(part.data, matrix.data)
    np.testing.assert_array_equal(matrix.toarray(), before)


def test_terms_of_the_direct_path_add_up_for_each_user(rng):
    network = random_numpy_network(n_items=12, n_neighbours=2)
    ratings = csr_array(rng.random((5, 12)) * (rng.random((5, 12)) < 0.4))
    terms = network.direct_terms(ratings)
    np.testing.assert_array_equal(terms.toarray(), network.direct(ratings))
    assert terms.nnz == sum(np.diff(network.direct_weight.indptr)[ratings.indices])
    without = random_numpy_network(n_items=12, n_neighbours=0).direct_terms(ratings)
    assert without.shape == (5, 12) and without.nnz == 0 and without.dtype == np.float32


def test_a_scorer_turns_counts_into_ratings_first():
    network, counts = random_numpy_network(N_ITEMS), random_counts(12, N_ITEMS)
    ratings = RelativeRating().fit(counts)
    np.testing.assert_array_equal(
        NetworkScorer(network, ratings).scores(counts), network.logits(ratings.transform(counts))
    )


CONTEXT = csr_array(np.array([[4.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))


@pytest.mark.parametrize(
    ("input_scale", "expected"),
    [
        ("none", [4.0, 2.0, 1.0]),
        ("alpha", [1.0, 0.5, 0.25]),
        ("history", [1.0 / 1.5**0.5, 0.5 / 1.5**0.5, 0.5]),
    ],
)
def test_confidences_enter_as_configured(input_scale, expected):
    config = ModelConfig(3, alpha=3.0, input_scale=input_scale)
    np.testing.assert_allclose(input_weight(CONTEXT, config), expected)


@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_leaving_an_item_out_rescales_the_others_as_a_new_sum_would(rng, input_scale):
    config = ModelConfig(5, alpha=3.0, input_scale=input_scale)
    confidences = 1.0 + 3.0 * rng.random(5)
    whole = input_weight(csr_array(confidences[None, :]), config)
    factors = rescaling_without(csr_array(confidences[None, :]), config)
    for left_out in range(5):
        rest = confidences.copy()
        rest[left_out] = 0.0
        expected = input_weight(csr_array(rest[None, :]), config)
        actual = factors[left_out] * np.delete(whole, left_out)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert rescaling_without(csr_array([[2.0, 0.0]]), config).tolist() == [0.0]


def test_other_values_leave_the_matrix_as_it_was():
    changed = with_values(CONTEXT, np.array([7.0, 8.0, 9.0]))
    assert changed.toarray().tolist() == [[7.0, 0.0, 8.0], [0.0, 0.0, 0.0], [0.0, 9.0, 0.0]]
    assert CONTEXT.data.tolist() == [4.0, 2.0, 1.0]
