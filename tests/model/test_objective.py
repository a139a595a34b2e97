from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.model import objective
from cfnade.model.objective import OutputLayer, soften_dislikes
from cfnade.model.ordering import Window, split_batch
from tests import reference
from tests.reference_torch import (
    as_lists,
    confidences_of,
    dense_cost,
    dense_hidden,
    dense_logits,
    one_pass,
    random_network,
)


def likes_of(rng, n_users=7, n_items=9, disliked=0.0):
    likes = (rng.random((n_users, n_items)) < 0.4).astype(float)
    return likes, confidences_of(likes, rng, disliked)


@pytest.mark.parametrize("disliked", [0.0, 0.5])
def test_loss_equals_equation_14_written_as_loops(rng, disliked):
    network = random_network(n_items=5)
    likes, confidences = likes_of(rng, 6, 5, disliked)
    for ordering, i in (([3, 0, 4, 1, 2], 3), ([0, 1, 2, 3, 4], 1), ([4, 2, 0, 1, 3], 5)):
        expected = np.mean(
            [
                reference.orderless_cost(ordering, i, likes[u], confidences[u], **as_lists(network))
                for u in range(6)
            ]
        )
        actual = one_pass(network, likes, confidences, ordering, i).loss
        assert actual == pytest.approx(expected, rel=1e-12)


def test_mean_over_all_orderings_and_positions_is_the_mean_ordered_cost(rng):
    """Eq. 14, with c and t of o_j, averages exactly to Eq. 11."""
    network = random_network(n_items=4)
    likes = np.array([[1.0, 0.0, 1.0, 0.0]])
    confidences = confidences_of(likes, rng)
    orderless, ordered = [], []
    for ordering in permutations(range(4)):
        ordered.append(
            reference.ordered_cost(ordering, likes[0], confidences[0], **as_lists(network))
        )
        orderless += [one_pass(network, likes, confidences, ordering, i).loss for i in range(1, 5)]
    assert np.mean(orderless) == pytest.approx(np.mean(ordered), rel=1e-12)


@pytest.mark.parametrize("disliked", [0.0, 0.5])
@pytest.mark.parametrize("rotation", [0, 4])  # the second one's targets go around the end
@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
def test_gradients_by_hand_equal_automatic_ones(rng, input_scale, n_layers, rotation, disliked):
    """Of every weight, through the output layer, the hidden layers and the input layer."""
    network = random_network(n_items=9, n_hidden=4, n_layers=n_layers, input_scale=input_scale)
    likes, confidences = likes_of(rng, disliked=disliked)
    likes[0] = 0.0  # dislikes alone, or nothing
    ordering, i = rng.permutation(9), 5
    actual = one_pass(network, likes, confidences, ordering, i, rotation)
    in_context = np.isin(np.arange(9), ordering[: i - 1])
    logits = dense_logits(network, dense_hidden(network, likes, confidences, in_context))
    loss = dense_cost(logits, likes, confidences, in_context)
    loss.backward()
    assert actual.loss == pytest.approx(loss.item(), rel=1e-12)
    names = {name for name, _ in network.named_parameters()}
    assert actual.gradients.keys() == names
    for name in names:
        torch.testing.assert_close(actual.gradients[name], network.get_parameter(name).grad)


@pytest.mark.parametrize("disliked", [0.0, 0.5])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_gradients_are_right_to_numerical_differences(rng, n_layers, disliked):
    network = random_network(n_items=5, n_hidden=3, n_layers=n_layers, input_scale="history")
    likes, confidences = likes_of(rng, 4, 5, disliked)
    split = (likes, confidences, [3, 0, 4, 1, 2], 3)
    gradients, step = one_pass(network, *split).gradients, 1e-6
    for name, weight in network.named_parameters():
        flat = weight.data.view(-1)
        for place in range(flat.numel()):
            losses = []
            for change in (step, -2 * step):
                flat[place] += change
                losses.append(one_pass(network, *split).loss)
            flat[place] += step
            slope = (losses[0] - losses[1]) / (2 * step)
            assert gradients[name].view(-1)[place].item() == pytest.approx(slope, abs=1e-7), name


def test_a_dislike_costs_the_root_of_its_confidence():
    targets = csr_array(np.array([[31.0, -31.0, 0.0], [-4.0, 0.0, 1.0]], dtype=np.float32))
    softened = soften_dislikes(targets)
    expected = np.array([[31.0, -(31.0**0.5), 0.0], [-2.0, 0.0, 1.0]], dtype=np.float32)
    np.testing.assert_array_equal(softened.toarray(), expected)
    assert softened.dtype == np.float32 and targets.data.min() == -31.0
    likes = csr_array([[31.0, 2.0]])
    assert soften_dislikes(likes) is likes


@pytest.mark.parametrize("start", [0, 3, 7])
def test_buffers_are_used_again_without_a_trace(rng, start):
    network, window = random_network(n_items=9, n_hidden=4), Window(9, start, 4)
    hidden = torch.from_numpy(rng.normal(size=(7, 4)))
    batches = [csr_array(np.multiply(*likes_of(rng))) for _ in range(3)]
    used = OutputLayer(network.output_weight, network.output_bias)
    for other, batch in zip((Window(9, start + 1, 8), Window(9, 0, 9)), batches, strict=False):
        used.gradient(hidden, other, split_batch(batch, other)[1])
    fresh = OutputLayer(network.output_weight, network.output_bias)
    _, target_likes = split_batch(batches[2], window)
    actual, expected = (layer.gradient(hidden, window, target_likes) for layer in (used, fresh))
    assert actual.loss == expected.loss
    torch.testing.assert_close(actual.hidden, expected.hidden)
    targets = (start + np.arange(4)) % 9  # the other rows do not count
    for name in ("output_weight", "output_bias"):
        torch.testing.assert_close(getattr(actual, name)[targets], getattr(expected, name)[targets])


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_bfloat16_products_are_those_of_float32_up_to_rounding(rng, scale):
    network, window = random_network(n_items=40, n_hidden=16).float(), Window(40, 30, 20)
    hidden = torch.from_numpy(rng.normal(size=(50, 16))).float()
    likes, confidences = likes_of(rng, 50, 40)
    _, target_likes = split_batch(csr_array((likes * confidences).astype(np.float32)), window)
    exact, rounded = (
        OutputLayer(network.output_weight, network.output_bias, precision).gradient(
            hidden, window, target_likes, scale
        )
        for precision in ("float32", "bfloat16")
    )
    assert rounded.loss == pytest.approx(exact.loss, rel=0.02)
    for name in ("hidden", "output_weight", "output_bias"):
        expected, found = getattr(exact, name), getattr(rounded, name)
        assert found.dtype == torch.float32
        assert 0 < (found - expected).norm() < 0.02 * expected.norm(), name


def test_loss_and_gradients_are_finite_for_extreme_logits():
    output = OutputLayer(torch.tensor([[1e4], [-1e4], [1e4]]), torch.zeros(3))
    likes = csr_array(np.array([[0.0, 301.0, 301.0]], dtype=np.float32))
    found = output.gradient(torch.ones(1, 1), Window(3, 0, 3), likes)
    assert found.loss == pytest.approx(1e4 + 301 * 1e4)
    for gradient in (found.hidden, found.output_weight, found.output_bias):
        assert torch.isfinite(gradient).all()
    torch.testing.assert_close(found.output_bias, torch.tensor([1.0, -301.0, 0.0]))


def test_the_loss_is_estimated_on_some_users_without_bias(rng, monkeypatch):
    network, window = random_network(n_items=9), Window(9, 2, 5)
    hidden = torch.from_numpy(rng.normal(size=(7, network.config.n_hidden)))
    output = OutputLayer(network.output_weight, network.output_bias)
    _, likes = split_batch(csr_array(np.multiply(*likes_of(rng))), window)
    exact = output.gradient(hidden, window, likes).loss
    monkeypatch.setattr(objective, "_LOSS_USERS", 2)
    by_turns = [
        output.gradient(hidden[rows], window, likes[rows]).loss
        for rows in (np.roll(np.arange(7), k) for k in range(7))
    ]
    assert np.mean(by_turns) == pytest.approx(exact)
    assert np.std(by_turns) > 0
