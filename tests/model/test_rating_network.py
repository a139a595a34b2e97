"""The model of Section 3: it is a proper distribution, and equals the paper's loops."""

from __future__ import annotations

import math
from itertools import permutations
from itertools import product as all_of

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.model.config import RatingConfig
from cfnade.model.rating_network import RatingNetwork, draw_split, rating_cost
from tests import reference


def random_rating_network(share=True, dtype=torch.float64, seed=0, **settings):
    config = RatingConfig(**{"n_columns": 3, "n_levels": 3, "n_hidden": 4, **settings})
    generator = torch.Generator().manual_seed(seed)
    network = RatingNetwork(config, share=share).to(dtype)
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0.0, 0.7, generator=generator)
    return network


def as_loops(network):
    """W, b, V and d as nested lists, by item and rating; with sharing summed by the definition."""
    C, K = network.config.n_columns, network.config.n_levels
    steps = {name: weight.detach().numpy() for name, weight in network.named_parameters()}
    tables = {
        "W": steps["input_weight"].reshape(C, K, -1).tolist(),
        "V": steps["output_weight"].reshape(C, K, -1).tolist(),
        "d": steps["output_bias"].reshape(C, K, 1).tolist(),
    }
    if network.share:
        tables = {name: reference.shared_between_ratings(each) for name, each in tables.items()}
    tables["d"] = [[k[0] for k in item] for item in tables["d"]]
    return {**tables, "b": steps["hidden_bias"].tolist()}


def batch_of(rows, n_columns=3):
    """Context and targets of rows of both, each {column: rating from 0}."""
    levels = np.zeros((2, len(rows), n_columns), dtype=np.uint8)
    for row, parts in enumerate(rows):
        for part, ratings in enumerate(parts):
            for column, rating in ratings.items():
                levels[part, row, column] = rating + 1
    return tuple(csr_array(part) for part in levels)


def levels_of(targets):
    """The true rating of each target, from 0."""
    return torch.from_numpy(targets.data.astype(np.int64) - 1)


@pytest.mark.parametrize("share", [True, False])
def test_probabilities_of_all_rating_vectors_sum_to_one_for_every_ordering(share):
    network = random_rating_network(share)
    loops = as_loops(network)
    for ordering in permutations(range(3)):
        total = 0.0
        for ratings in all_of(range(3), repeat=3):
            joint = 1.0
            for position, item in enumerate(ordering):
                context = {other: ratings[other] for other in ordering[:position]}
                batch = batch_of([(context, {item: ratings[item]})])
                p = torch.softmax(network(*batch), dim=1).detach()[0]
                joint *= float(p[ratings[item]])
            expected = reference.joint_rating_probability(ordering, ratings, **loops)
            assert joint == pytest.approx(expected, rel=1e-12)
            total += joint
        assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("share", [True, False])
def test_scores_equal_the_loops(share):
    network = random_rating_network(share, n_columns=5, n_levels=4)
    loops = as_loops(network)
    rows = [({0: 3, 4: 1}, {1: 2, 2: 0}), ({}, {4: 3}), ({1: 0, 2: 2, 3: 1}, {0: 0, 4: 3})]
    batch = batch_of(rows, 5)
    targets = [(row, item) for row, (_, found) in enumerate(rows) for item in sorted(found)]
    for found, (row, item) in zip(network(*batch).tolist(), targets, strict=True):
        context, _ = rows[row]
        h = reference.rating_hidden(context, context, loops["W"], loops["b"])
        assert found == pytest.approx(reference.rating_scores(item, h, loops["V"], loops["d"]))


def test_further_layers_equal_the_loops():
    network = random_rating_network(n_layers=2)
    loops = as_loops(network)
    batch = batch_of([({0: 1, 1: 2}, {2: 0})])
    h = reference.rating_hidden([0, 1], {0: 1, 1: 2}, loops["W"], loops["b"])
    U, b = network.deep_weight_0.tolist(), network.deep_bias_0.tolist()
    h = reference.deeper(h, U, b, math.tanh)
    expected = reference.rating_scores(2, h, loops["V"], loops["d"])
    assert network(*batch)[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("share", [True, False])
def test_the_low_rank_version_equals_the_product_of_its_factors(share):
    network = random_rating_network(share, n_factors=2)
    whole = random_rating_network(share)
    with torch.no_grad():
        whole.input_weight.copy_(network.input_weight @ network.input_mix)
        whole.output_weight.copy_(network.output_weight @ network.output_mix.T)
        whole.output_bias.copy_(network.output_bias)
        whole.hidden_bias.copy_(network.hidden_bias)
    batch = batch_of([({0: 1, 1: 2}, {2: 0}), ({2: 0}, {0: 1, 1: 1})])
    torch.testing.assert_close(network(*batch), whole(*batch))


def test_sharing_between_ratings_is_a_cumulative_sum_of_the_weights():
    network = random_rating_network(share=True)
    plain = random_rating_network(share=False)
    with torch.no_grad():
        for name in ("input_weight", "output_weight", "output_bias"):
            steps = network.get_parameter(name).view(3, 3, -1)
            plain.get_parameter(name).copy_(
                torch.cumsum(steps, 1).view_as(plain.get_parameter(name))
            )
        plain.hidden_bias.copy_(network.hidden_bias)
    batch = batch_of([({0: 1, 1: 2}, {2: 0}), ({2: 0}, {0: 1, 1: 1})])
    torch.testing.assert_close(network(*batch), plain(*batch))


@pytest.mark.parametrize(
    ("share", "settings"),
    [(True, {}), (False, {}), (True, {"n_layers": 2}), (True, {"n_factors": 2})],
)
@pytest.mark.parametrize("ordinal_weight", [0.0, 0.6, 1.0])
def test_gradients_equal_numerical_differences(share, settings, ordinal_weight):
    network = random_rating_network(share, **settings)
    batch = batch_of([({0: 1, 1: 2}, {2: 0}), ({2: 0}, {0: 1, 1: 1}), ({}, {1: 2})])
    names = [name for name, _ in network.named_parameters()]

    def loss(*weights):
        scores = torch.func.functional_call(network, dict(zip(names, weights, strict=True)), batch)
        return rating_cost(scores, levels_of(batch[1]), ordinal_weight).sum()

    weights = [weight.detach().clone().requires_grad_() for weight in network.parameters()]
    assert torch.autograd.gradcheck(loss, weights)


def test_the_ordinal_cost_is_that_of_two_lists(rng):
    scores = rng.normal(size=(20, 5))
    true = rng.integers(5, size=20)
    lists = [reference.ordinal_cost(s, t) for s, t in zip(scores.tolist(), true, strict=True)]
    likelihood = [
        -math.log(reference.rating_probabilities(s)[t])
        for s, t in zip(scores.tolist(), true, strict=True)
    ]
    args = torch.from_numpy(scores), torch.from_numpy(true)
    assert rating_cost(*args, 1.0).tolist() == pytest.approx(lists)
    assert rating_cost(*args, 0.0).tolist() == pytest.approx(likelihood)
    mixed = 0.25 * np.array(lists) + 0.75 * np.array(likelihood)
    assert rating_cost(*args, 0.25).tolist() == pytest.approx(mixed.tolist())


def test_the_cost_of_a_split_averages_to_the_likelihood_over_all_orderings():
    loops = as_loops(random_rating_network())
    ratings = (2, 0, 1)
    orderings = list(permutations(range(3)))
    ordered = [
        -math.log(reference.joint_rating_probability(o, ratings, **loops)) for o in orderings
    ]
    splits = [
        reference.orderless_rating_cost(o, i, ratings, **loops)
        for o in orderings
        for i in range(1, 4)
    ]
    assert np.mean(splits) == pytest.approx(np.mean(ordered))


def test_a_drawn_batch_is_such_a_split(rng):
    """The network's cost of a drawn batch equals the loops for the split that was drawn."""
    network = random_rating_network()
    loops = as_loops(network)
    levels = csr_array(np.array([[3, 1, 2], [1, 0, 2], [0, 2, 0]], dtype=np.uint8))
    for _ in range(20):
        context, targets, weight = draw_split(levels, rng)
        cost = rating_cost(network(context, targets), levels_of(targets), 0.0)
        total = float((torch.from_numpy(weight) * cost).sum().detach())
        expected = 0.0
        for row in range(3):
            rated = np.flatnonzero(levels.toarray()[row]).tolist()
            asked = targets[[row]].indices.tolist()
            known = [item for item in rated if item not in asked]
            numbered = {item: place for place, item in enumerate(rated)}
            part = {
                "W": [loops["W"][item] for item in rated],
                "V": [loops["V"][item] for item in rated],
                "d": [loops["d"][item] for item in rated],
            }
            ratings = [int(levels.toarray()[row, item]) - 1 for item in rated]
            ordering = [numbered[item] for item in [*known, *asked]]
            expected += reference.orderless_rating_cost(
                ordering, len(known) + 1, ratings, **part, b=loops["b"]
            )
        assert total == pytest.approx(expected, rel=1e-5)


def test_the_number_of_ratings_in_the_context_is_uniform_and_the_rest_are_targets(rng):
    levels = csr_array(np.array([[1, 2, 0, 3, 1]], dtype=np.uint8))
    sizes = []
    for _ in range(2000):
        context, targets, weight = draw_split(levels, rng)
        assert (context + targets - levels).nnz == 0
        assert context.nnz + targets.nnz == 4
        assert weight == pytest.approx(4 / targets.nnz)
        sizes.append(context.nnz)
    assert np.bincount(sizes) / 2000 == pytest.approx([0.25] * 4, abs=0.05)


def test_the_first_bias_is_the_log_of_the_frequencies():
    levels = csr_array(np.array([[1, 3], [1, 3], [2, 0]] * 1000, dtype=np.uint8))
    for share in (True, False):
        network = random_rating_network(share, n_columns=2)
        network.start_bias(levels)
        bias = np.array(as_loops(network)["d"])
        assert np.exp(bias[0]) == pytest.approx([2 / 3, 1 / 3, 0.0], abs=0.01)
        np.testing.assert_allclose(np.exp(bias).sum(axis=1), 1.0)
