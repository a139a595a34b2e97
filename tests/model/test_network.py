"""What makes the model trustworthy: it is the paper's model, and a proper distribution."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.model.network import ACTIVATIONS, CFNADENetwork
from tests import reference

LITERAL = {"input_scale": "none", "alpha": 3.0}  # Eq. 9 as printed


def random_network(n_items: int = 4, n_hidden: int = 3, **settings: object) -> CFNADENetwork:
    """Every weight random, in float64."""
    config = ModelConfig(n_items=n_items, n_hidden=n_hidden, **{**LITERAL, **settings})
    network = CFNADENetwork(config).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0.0, 0.5, generator=generator)
    return network


def as_lists(network: CFNADENetwork) -> dict[str, list]:
    names = {"W": "like_weight", "A": "dislike_weight", "b": "hidden_bias",
             "V": "output_weight", "d": "output_bias"}  # fmt: skip
    return {letter: getattr(network, name).tolist() for letter, name in names.items()}


def confidence_of_likes(likes: np.ndarray, confidences: np.ndarray) -> csr_array:
    return csr_array(likes * confidences)


def confidences_of(likes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Above 1 where liked, exactly 1 where unobserved."""
    return np.where(likes > 0, 1.0 + 3.0 * rng.random(likes.shape), 1.0)


def test_probabilities_of_all_like_vectors_sum_to_one_for_every_ordering(rng):
    network = random_network()
    confidence_if_liked = 1.0 + 3.0 * rng.random(4)
    for ordering in permutations(range(4)):
        total = 0.0
        for likes in product([0.0, 1.0], repeat=4):
            like = np.array([likes])
            confidence = np.where(like > 0, confidence_if_liked, 1.0)
            joint = 1.0
            for position, item in enumerate(ordering):
                in_context = np.isin(np.arange(4), ordering[:position])
                context = confidence_of_likes(like * in_context, confidence)
                logit = network.logits(network.hidden(context, in_context))[0, item]
                p = torch.sigmoid(logit).item()
                joint *= p if like[0, item] else 1.0 - p
            expected = reference.joint_probability(
                ordering, like[0], confidence[0], **as_lists(network)
            )
            assert joint == pytest.approx(expected, rel=1e-12)
            total += joint
        assert total == pytest.approx(1.0, abs=1e-12)


def test_a_target_gets_no_gradient_from_targets_but_from_the_context(rng):
    network = random_network(n_items=6, n_hidden=4)
    in_context = np.array([True, True, False, True, False, False])
    like = np.ones((1, 6))
    context = confidence_of_likes(like * in_context, confidences_of(like, rng))
    for target in np.flatnonzero(~in_context):
        network.zero_grad()
        network.logits(network.hidden(context, in_context))[0, target].backward()
        gradient = network.like_weight.grad.abs().sum(dim=1).numpy()
        assert (gradient[~in_context] == 0).all()
        assert (gradient[in_context] > 0).all()
        assert (network.dislike_weight.grad.numpy()[~in_context] == 0).all()


def test_what_is_unobserved_in_the_context_enters_by_the_dislike_weight_alone(rng):
    network = random_network(n_items=6, n_hidden=4)
    in_context = np.array([True, True, False, True, False, False])
    like = np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    context = confidence_of_likes(like, confidences_of(like, rng))
    network.logits(network.hidden(context, in_context))[0, 5].backward()
    assert (network.like_weight.grad.abs().sum(dim=1) > 0).tolist() == [True] + [False] * 5
    by_dislike = network.dislike_weight.grad.abs().sum(dim=1).numpy()
    np.testing.assert_allclose(by_dislike[[0, 2, 4, 5]], 0.0, atol=1e-15)
    assert (by_dislike[[1, 3]] > 0).all()


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "identity"])
def test_sparse_hidden_layer_equals_the_equation_summed_over_all_items(rng, activation):
    network = random_network(n_items=9, n_hidden=5, activation=activation)
    likes = (rng.random((7, 9)) < 0.4).astype(float)
    confidences = confidences_of(likes, rng)
    in_context = rng.random(9) < 0.6
    context = confidence_of_likes(likes * in_context, confidences)
    actual = network.hidden(context, in_context).detach().numpy()
    weights = as_lists(network)
    for user in range(7):
        expected = reference.hidden(
            np.flatnonzero(in_context), likes[user], confidences[user],
            weights["W"], weights["A"], weights["b"],
            g=lambda x: ACTIVATIONS[activation](torch.tensor(x, dtype=torch.float64)).item(),
        )  # fmt: skip
        np.testing.assert_allclose(actual[user], expected, rtol=1e-12)


def test_input_scale_alpha_is_the_same_model_in_other_units(rng):
    literal = random_network(n_items=9, n_hidden=5)
    scaled = random_network(n_items=9, n_hidden=5, input_scale="alpha")
    with torch.no_grad():
        scaled.like_weight.copy_(literal.like_weight * (1.0 + 3.0))
        scaled.dislike_weight.copy_(literal.dislike_weight * 9)
    likes = (rng.random((7, 9)) < 0.4).astype(float)
    in_context = rng.random(9) < 0.6
    context = confidence_of_likes(likes * in_context, confidences_of(likes, rng))
    torch.testing.assert_close(
        scaled.hidden(context, in_context), literal.hidden(context, in_context)
    )


def test_input_scale_history_divides_by_the_root_of_the_sum(rng):
    network = random_network(n_items=3, n_hidden=2, input_scale="history", activation="identity")
    with torch.no_grad():
        network.dislike_weight.zero_()
        network.hidden_bias.zero_()
    context = csr_array(np.array([[4.0, 2.0, 0.0], [0.0, 0.0, 4.0]]))  # c / (1 + alpha): 1, 0.5; 1
    hidden = network.hidden(context, np.ones(3, dtype=bool)).detach().numpy()
    W = network.like_weight.detach().numpy()
    np.testing.assert_allclose(hidden[0], (W[0] + 0.5 * W[1]) / np.sqrt(1.5))
    np.testing.assert_allclose(hidden[1], W[2])


@pytest.mark.parametrize("n_layers", [1, 3])
def test_gradients_are_right_to_numerical_differences(rng, n_layers):
    network = random_network(n_items=5, n_hidden=3, n_layers=n_layers, input_scale="history")
    likes = (rng.random((4, 5)) < 0.5).astype(float)
    in_context = np.array([True, False, True, True, False])
    context = confidence_of_likes(likes * in_context, confidences_of(likes, rng))
    names = [name for name, _ in network.named_parameters()]

    def logits(*weights: torch.Tensor) -> torch.Tensor:
        def body(module: CFNADENetwork) -> torch.Tensor:
            return module.logits(module.hidden(context, in_context), np.array([1, 4]))

        return torch.func.functional_call(
            _Forward(network, body),
            {f"network.{n}": w for n, w in zip(names, weights, strict=True)},
            (),
        )

    weights = tuple(w.detach().clone().requires_grad_() for w in network.parameters())
    assert torch.autograd.gradcheck(logits, weights)


class _Forward(torch.nn.Module):
    """Makes a function of the network's weights out of its methods."""

    def __init__(self, network: CFNADENetwork, body) -> None:
        super().__init__()
        self.network, self.body = network, body

    def forward(self) -> torch.Tensor:
        return self.body(self.network)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_numpy_inference_equals_the_torch_network(rng, n_layers, input_scale, activation):
    network = random_network(
        n_items=30, n_hidden=8, n_layers=n_layers, input_scale=input_scale, activation=activation
    ).float()
    ratings = csr_array(rng.random((12, 30)) * (rng.random((12, 30)) < 0.2))
    ratings = csr_array(np.vstack([ratings.toarray(), np.zeros((1, 30))]))  # an empty history
    weights = {name: w.detach().numpy() for name, w in network.named_parameters()}
    context = ratings.copy()
    context.data = (1.0 + network.config.alpha * context.data).astype(np.float32)
    expected = network.logits(network.hidden(context, np.ones(30, dtype=bool)))
    actual = NumpyNetwork(network.config, weights).logits(ratings)
    np.testing.assert_allclose(actual, expected.detach().numpy(), atol=1e-5)
    assert actual.dtype == np.float32
