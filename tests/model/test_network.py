"""What makes the model trustworthy: it is the paper's model, and a proper distribution."""

from __future__ import annotations

from itertools import permutations
from itertools import product as all_of

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.data.ratings import confidence
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.model.network import ACTIVATIONS, CFNADENetwork, InputLayer, product, product_by_column
from cfnade.model.ordering import Window, split_batch
from cfnade.storage.encoding import weight_shapes, wrong_weights
from tests import reference
from tests.reference_torch import (
    as_lists,
    confidences_of,
    dense_hidden,
    dense_logits,
    like_probabilities,
    one_pass,
    random_network,
    signed,
)


def test_probabilities_of_all_like_vectors_sum_to_one_for_every_ordering(rng):
    network = random_network()
    confidence_if_liked = 1.0 + 3.0 * rng.random(4)
    for ordering in permutations(range(4)):
        total = 0.0
        for likes in all_of([0.0, 1.0], repeat=4):
            like = np.array([likes])
            confidence = np.where(like > 0, confidence_if_liked, 1.0)
            joint = 1.0
            for position, item in enumerate(ordering):
                p = like_probabilities(network, like, confidence, ordering, position + 1)[item]
                joint *= p if like[0, item] else 1.0 - p
            expected = reference.joint_probability(
                ordering, like[0], confidence[0], **as_lists(network)
            )
            assert joint == pytest.approx(expected, rel=1e-12)
            total += joint
        assert total == pytest.approx(1.0, abs=1e-12)


def test_a_target_gets_no_gradient_from_targets_but_from_the_context(rng):
    network = random_network(n_items=6, n_hidden=4)
    window = Window(6, 5, 3)  # the targets go around the end: 5, 0, 1
    is_target = np.array([True, True, False, False, False, True])
    like = np.ones((1, 6))
    context, _ = split_batch(csr_array(like * confidences_of(like, rng)), window)
    layer = InputLayer(network.like_weight, network.dislike_weight, network.config)
    for target in np.flatnonzero(is_target):
        entered = layer.forward(context, window).requires_grad_()
        logit = network.hidden_of(entered)[0] @ network.output_weight[target]
        logit.backward()
        gradients = layer.gradient(entered.grad)
        by_like = gradients["like_weight"].abs().sum(dim=1).numpy()
        assert (by_like[is_target] == 0).all()
        assert (by_like[~is_target] > 0).all()
        assert (gradients["dislike_weight"].numpy()[is_target] == 0).all()


def test_a_like_of_a_target_changes_no_prediction(rng):
    network = random_network(n_items=6, n_hidden=4)
    likes = np.array([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]])
    confidences = confidences_of(likes, rng)
    hidden = one_pass(network, likes, confidences, range(6), 3).hidden
    for target in (2, 3, 5):
        other = likes.copy()
        other[0, target] = 1.0 - other[0, target]
        torch.testing.assert_close(
            one_pass(network, other, confidences, range(6), 3).hidden, hidden, rtol=0, atol=0
        )


def test_what_is_unobserved_in_the_context_enters_by_the_dislike_weight_alone(rng):
    network = random_network(n_items=6, n_hidden=4)
    like = np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    gradients = one_pass(network, like, confidences_of(like, rng), [0, 1, 3, 2, 4, 5], 4).gradients
    by_like = gradients["like_weight"].abs().sum(dim=1)
    assert (by_like > 0).tolist() == [True] + [False] * 5
    by_dislike = gradients["dislike_weight"].abs().sum(dim=1).numpy()
    np.testing.assert_allclose(by_dislike[[0, 2, 4, 5]], 0.0, atol=1e-15)
    assert (by_dislike[[1, 3]] > 0).all()


@pytest.mark.parametrize("disliked", [0.0, 0.5])
@pytest.mark.parametrize("rotation", [0, 5])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_sparse_hidden_layer_equals_the_equation_summed_over_all_items(
    rng, activation, rotation, disliked
):
    network = random_network(n_items=9, n_hidden=5, activation=activation)
    likes = (rng.random((7, 9)) < 0.4).astype(float)
    likes[0] = 0.0  # an empty history, or dislikes alone
    confidences = confidences_of(likes, rng, disliked)
    ordering = rng.permutation(9)
    actual = one_pass(network, likes, confidences, ordering, 6, rotation).hidden
    weights = as_lists(network)
    for user in range(7):
        expected = reference.hidden(
            ordering[:5], likes[user], confidences[user],
            weights["W"], weights["A"], weights["b"],
            g=lambda x: ACTIVATIONS[activation](torch.tensor(x, dtype=torch.float64)).item(),
        )  # fmt: skip
        np.testing.assert_allclose(actual[user], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("disliked", [0.0, 0.5])
@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_the_dense_oracle_is_the_sparse_network(rng, input_scale, n_layers, disliked):
    network = random_network(n_items=9, n_hidden=5, input_scale=input_scale, n_layers=n_layers)
    likes = (rng.random((7, 9)) < 0.4).astype(float)
    confidences, ordering = confidences_of(likes, rng, disliked), rng.permutation(9)
    for i in (1, 4, 9):
        in_context = np.isin(np.arange(9), ordering[: i - 1])
        torch.testing.assert_close(
            one_pass(network, likes, confidences, ordering, i).hidden,
            dense_hidden(network, likes, confidences, in_context).detach(),
        )


def test_input_scale_alpha_is_the_same_model_in_other_units(rng):
    literal = random_network(n_items=9, n_hidden=5)
    scaled = random_network(n_items=9, n_hidden=5, input_scale="alpha")
    with torch.no_grad():
        scaled.like_weight.copy_(literal.like_weight * (1.0 + 3.0))
        scaled.dislike_weight.copy_(literal.dislike_weight * 9)
    likes = (rng.random((7, 9)) < 0.4).astype(float)
    split = (likes, confidences_of(likes, rng), rng.permutation(9), 6)
    torch.testing.assert_close(one_pass(scaled, *split).hidden, one_pass(literal, *split).hidden)


def test_input_scale_history_divides_by_the_root_of_the_sum():
    network = random_network(n_items=3, n_hidden=2, input_scale="history", activation="identity")
    with torch.no_grad():
        network.dislike_weight.zero_()
        network.hidden_bias.zero_()
    context = csr_array(np.array([[4.0, 2.0, 0.0], [0.0, 4.0, 0.0]]))  # c / (1 + alpha): 1, 0.5; 1
    layer = InputLayer(network.like_weight, network.dislike_weight, network.config)
    entered = layer.forward(context, Window(3, 2, 1)).numpy()
    W = network.like_weight.detach().numpy()
    np.testing.assert_allclose(entered[0], (W[0] + 0.5 * W[1]) / np.sqrt(1.5))
    np.testing.assert_allclose(entered[1], W[1])


@pytest.mark.parametrize("disliked", [0.0, 0.5])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("window", [Window(9, 2, 4), Window(9, 7, 4), Window(9, 0, 9)])
def test_what_enters_and_its_gradients_equal_automatic_ones(rng, input_scale, window, disliked):
    network = random_network(n_items=9, n_hidden=4, input_scale=input_scale, activation="identity")
    likes = (rng.random((6, 9)) < 0.4).astype(float)
    likes[0] = 0.0  # an empty history, or dislikes alone
    confidences = confidences_of(likes, rng, disliked)
    batch = signed(likes, confidences)
    by_input = torch.from_numpy(rng.normal(size=(6, 4)))
    in_context = window.target_number(np.arange(9)) >= window.n_targets

    plain = dense_hidden(network, likes, confidences, in_context)
    plain.backward(by_input)
    layer = InputLayer(network.like_weight, network.dislike_weight, network.config)
    other = Window(9, 5, 3)  # buffers are used again
    layer.forward(split_batch(batch, other)[0], other)
    layer.gradient(by_input + 1.0)
    entered = layer.forward(split_batch(batch, window)[0], window)
    gradients = layer.gradient(by_input)
    torch.testing.assert_close(entered + network.hidden_bias, plain)
    rows = torch.from_numpy(in_context)  # the others do not count
    for name, gradient in gradients.items():
        expected = network.get_parameter(name).grad
        torch.testing.assert_close(gradient[rows], expected[rows])
        assert not expected[~rows].any()


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 300.0])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_numpy_inference_equals_the_torch_network(rng, activation, input_scale, alpha, n_layers):
    """All items are the context then. An extra item that nobody knows of is the target."""
    config = ModelConfig(25, 6, n_layers, activation, alpha, input_scale)
    network = CFNADENetwork(config)
    generator = torch.Generator().manual_seed(1)
    # Unbounded activations multiply a confidence of 301 up: such weights are small when trained.
    std = 0.3 if input_scale != "none" else 0.3 / (1.0 + alpha)
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0.0, std, generator=generator)
    weights = {name: weight.detach().numpy() for name, weight in network.named_parameters()}
    assert wrong_weights(config, weights) is None
    assert set(weights) == set(weight_shapes(config))

    watched = rng.random((12, 25)) < 0.3
    watched[0], watched[1] = False, True  # an empty history, and one of everything
    ratings = np.where(watched, 1.0 - rng.random((12, 25)), 0.0)
    ratings[5:][rng.random((7, 25)) < 0.2] = -1.0  # some dislikes
    ratings[11] = np.minimum(ratings[11], 0.0)  # dislikes alone
    context = np.zeros((12, 26), dtype=np.float32)
    context[:, :25][ratings != 0] = confidence(ratings[ratings != 0], alpha)
    W, A = (
        torch.cat([network.get_parameter(name).detach(), torch.ones(1, 6)])
        for name in ("like_weight", "dislike_weight")
    )
    entered = InputLayer(W, A, config).forward(csr_array(context), Window(26, 25, 1))
    expected = dense_logits(network, network.hidden_of(entered)).detach().numpy()
    actual = NumpyNetwork(config, weights).logits(csr_array(ratings))
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert actual.dtype == np.float32


def test_products_equal_the_dense_ones(rng):
    matrix = csr_array(rng.random((5, 7)) * (rng.random((5, 7)) < 0.4))
    matrix = csr_array(np.vstack([matrix.toarray(), np.zeros((1, 7))]))  # an empty row
    by_row, by_column = torch.from_numpy(rng.random((7, 3))), torch.from_numpy(rng.random((6, 3)))
    dense = torch.from_numpy(matrix.toarray())
    torch.testing.assert_close(product(matrix, by_row), dense @ by_row)
    used, rows = product_by_column(matrix, by_column)
    whole = torch.zeros(7, 3, dtype=torch.float64)
    whole[used] = rows
    torch.testing.assert_close(whole, dense.T @ by_column)
    assert (np.diff(matrix.tocsc().indptr)[used] > 0).all()


def test_nothing_at_all_is_a_product_too():
    empty = csr_array((2, 4))
    assert product(empty, torch.ones(4, 3)).abs().sum() == 0
    used, rows = product_by_column(empty, torch.ones(2, 3))
    assert len(used) == len(rows) == 0
