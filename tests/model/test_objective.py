from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn import functional as F

from cfnade.model import objective
from cfnade.model.objective import OutputLayer, weighted_nll
from cfnade.model.ordering import Window, split_batch
from tests import reference
from tests.model.test_network import as_lists, confidences_of, random_network


def orderless_loss(network, likes, confidences, in_context):
    weights, targets = likes * confidences, np.flatnonzero(~in_context)
    hidden = network.hidden(csr_array(weights * in_context), in_context)
    target_likes = csr_array(weights[:, targets])
    return weighted_nll(network.logits(hidden, targets), target_likes, likes.shape[1])


def test_loss_equals_equation_14_written_as_loops(rng):
    network = random_network(n_items=5)
    likes = (rng.random((6, 5)) < 0.5).astype(float)
    confidences = confidences_of(likes, rng)
    ordering, i = [3, 0, 4, 1, 2], 3
    in_context = np.isin(np.arange(5), ordering[: i - 1])
    expected = np.mean(
        [
            reference.orderless_cost(ordering, i, likes[u], confidences[u], **as_lists(network))
            for u in range(6)
        ]
    )
    assert orderless_loss(network, likes, confidences, in_context).item() == pytest.approx(expected)


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
        for i in range(1, 5):
            in_context = np.isin(np.arange(4), ordering[: i - 1])
            orderless.append(orderless_loss(network, likes, confidences, in_context).item())
    assert np.mean(orderless) == pytest.approx(np.mean(ordered), rel=1e-12)


def test_gradient_of_the_loss_is_right_to_numerical_differences(rng):
    logits = torch.from_numpy(rng.normal(size=(3, 4))).requires_grad_()
    likes = csr_array(np.array([[0, 2.5, 0, 1.0], [0, 0, 0, 0], [4.0, 0, 0, 0]]))
    assert torch.autograd.gradcheck(lambda z: weighted_nll(z, likes, 9), (logits,))


def test_loss_equals_the_dense_weighted_cross_entropy(rng):
    logits = torch.from_numpy(rng.normal(size=(3, 4)))
    confidence = np.array([[0, 2.5, 0, 1.0], [0, 0, 0, 0], [4.0, 0, 0, 0]])
    like = torch.from_numpy((confidence > 0).astype(float))
    weight = torch.from_numpy(np.where(confidence > 0, confidence, 1.0))
    dense = F.binary_cross_entropy_with_logits(logits, like, weight, reduction="none")
    expected = 9 / 4 * dense.sum(dim=1).mean()
    torch.testing.assert_close(weighted_nll(logits, csr_array(confidence), 9), expected)


def test_loss_is_finite_for_extreme_logits():
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = weighted_nll(logits, csr_array(np.array([[0.0, 301.0]])), 2)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(logits.grad).all()


def test_no_target_is_refused():
    with pytest.raises(ValueError, match="at least one target item, got 0 of 7"):
        weighted_nll(torch.zeros(2, 0), csr_array((2, 0)), 7)


def batch_of(rng, n_users=7, n_items=9):
    likes = rng.random((n_users, n_items)) < 0.4
    return csr_array(np.where(likes, 1.0 + 3.0 * rng.random((n_users, n_items)), 0.0))


def automatic(network, hidden, window, target_likes):
    """The gradients of `weighted_nll` that torch finds by itself."""
    places = np.concatenate([np.arange(at.start, at.stop) for _, at in window.blocks()])
    hidden = hidden.clone().requires_grad_()
    network.zero_grad()
    loss = weighted_nll(network.logits(hidden, places), target_likes, window.n_items)
    loss.backward()
    return loss.item(), hidden.grad, network.output_weight.grad, network.output_bias.grad


@pytest.mark.parametrize("start", [0, 3, 7])  # the last one's targets go around the end
def test_gradients_by_hand_equal_automatic_ones(rng, start):
    network, window = random_network(n_items=9, n_hidden=4), Window(9, start, 4)
    _, target_likes = split_batch(batch_of(rng), window)
    hidden = torch.from_numpy(rng.normal(size=(7, 4)))
    output = OutputLayer(network.output_weight, network.output_bias)
    for other in (Window(9, start + 1, 8), Window(9, 0, 9)):  # buffers are used again
        output.gradient(hidden, other, split_batch(batch_of(rng), other)[1], 0.5)
    actual = output.gradient(hidden, window, target_likes)
    loss, by_hidden, by_weight, by_bias = automatic(network, hidden, window, target_likes)
    assert actual.loss == pytest.approx(loss)
    torch.testing.assert_close(actual.hidden, by_hidden)
    torch.testing.assert_close(actual.output_weight, by_weight)
    torch.testing.assert_close(actual.output_bias, by_bias)


@pytest.mark.parametrize("zero_share", [0.2, 0.5, 0.75])
def test_with_sampled_zeros_the_expected_gradient_is_the_exact_one(rng, zero_share):
    """Over all orders of the targets, which are equally likely, for one set of them."""
    network, batch = random_network(n_items=6, n_hidden=3), batch_of(rng, n_items=6)
    hidden = torch.from_numpy(rng.normal(size=(7, 3)))
    window = Window(6, 4, 4)
    V, d = network.output_weight.detach(), network.output_bias.detach()
    _, target_likes = split_batch(batch, window)
    loss, by_hidden, by_weight, by_bias = automatic(network, hidden, window, target_likes)
    places = [4, 5, 0, 1]
    sums = [
        0.0,
        torch.zeros_like(by_hidden),
        torch.zeros_like(by_weight),
        torch.zeros_like(by_bias),
    ]
    seen = list(permutations(places))
    for order in seen:
        moved = list(range(6))
        for place, item in zip(places, order, strict=True):
            moved[place] = item
        output = OutputLayer(V[moved], d[moved])
        _, likes = split_batch(csr_array(batch.toarray()[:, moved]), window)
        got = output.gradient(hidden, window, likes, zero_share)
        back = np.argsort(moved)
        sums[0] += got.loss / len(seen)
        sums[1] += got.hidden / len(seen)
        sums[2] += got.output_weight[back] / len(seen)
        sums[3] += got.output_bias[back] / len(seen)
    assert sums[0] == pytest.approx(loss)
    torch.testing.assert_close(sums[1], by_hidden)
    torch.testing.assert_close(sums[2], by_weight)
    torch.testing.assert_close(sums[3], by_bias)


def test_the_loss_is_looked_at_on_some_users_without_bias(rng, monkeypatch):
    network, window, batch = random_network(n_items=9), Window(9, 2, 5), batch_of(rng)
    hidden = torch.from_numpy(rng.normal(size=(7, network.config.n_hidden)))
    output = OutputLayer(network.output_weight, network.output_bias)
    _, likes = split_batch(batch, window)
    exact = output.gradient(hidden, window, likes).loss
    monkeypatch.setattr(objective, "_LOSS_USERS", 2)
    by_turns = [
        output.gradient(hidden[rows], window, likes[rows]).loss
        for rows in (np.roll(np.arange(7), k) for k in range(7))
    ]
    assert np.mean(by_turns) == pytest.approx(exact)
    assert np.std(by_turns) > 0
