from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn import functional as F

from cfnade.model.objective import weighted_nll
from cfnade.model.ordering import split_batch
from tests import reference
from tests.model.test_network import as_lists, confidences_of, random_network


def orderless_loss(network, likes, confidences, in_context):
    context, target_likes = split_batch(csr_array(likes * confidences), in_context)
    logits = network.logits(network.hidden(context, in_context), np.flatnonzero(~in_context))
    return weighted_nll(logits, target_likes, likes.shape[1])


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
