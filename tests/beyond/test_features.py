"""What features say about items, against literal sums."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond.content import weighted_rows
from cfnade.beyond.direct import LEAST_WATCHERS, likes_of
from cfnade.beyond.features import (
    LEAST_POPULAR,
    FeatureModel,
    FeatureStrengths,
    with_levels,
    with_more_items,
)
from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.errors import ConfigError
from cfnade.model.inference import NumpyNetwork
from tests.networks import random_counts, random_numpy_network

N_ITEMS = 20
N_WATCHERS = np.array([0, 0, 1, 2] + [40] * 16)


def tags(rng, n_items=N_ITEMS, n_tags=6) -> ItemFeatures:
    """Two tags for each item but the first."""
    pairs = [(item, tag) for item in range(1, n_items) for tag in rng.choice(n_tags, 2, False)]
    items, numbers = zip(*pairs, strict=True)
    entries = Entries(items, [f"t{number}" for number in numbers], np.ones(len(items)))
    return ItemFeatures.from_entries(n_items, {"tag": entries}, {"tag": "values"})


def network_with_mean(rng, **settings) -> NumpyNetwork:
    network = random_numpy_network(N_ITEMS, **settings)
    mean = rng.normal(size=network.config.n_hidden).astype(np.float32)
    return NumpyNetwork(network.config, {**network.weights, "mean_hidden": mean})


def ratings_without_cold(rng) -> csr_array:
    """Relative ratings of items with watchers."""
    dense = random_counts(8, N_ITEMS).toarray()
    dense[:, N_WATCHERS == 0] = 0.0
    return csr_array(np.minimum(dense, 4) / 4)


def test_predictions_are_a_ridge_regression_on_items_with_watchers(rng):
    features = tags(rng)
    targets = rng.normal(size=(N_ITEMS, 3)).astype(np.float32)
    X = weighted_rows(features, {}).toarray().astype(float)
    weight = np.sqrt(N_WATCHERS)
    weight = weight / weight.mean()
    mean = (weight[:, None] * targets).sum(axis=0) / weight.sum()
    D = np.diag(weight)
    M = np.linalg.solve(X.T @ D @ X + 2.0 * np.eye(X.shape[1]), X.T @ D @ (targets - mean))
    found = FeatureModel(features, N_WATCHERS).predicted(targets, 2.0)
    np.testing.assert_allclose(found, X @ M + mean, atol=0.02)
    some = FeatureModel(features, N_WATCHERS, asked=np.array([0, 7])).predicted(targets, 2.0)
    np.testing.assert_allclose(some, found[[0, 7]], atol=1e-6)


def test_the_mean_of_items_alike_weighs_them_by_the_cube_of_the_cosine(rng):
    features = tags(rng)
    X = weighted_rows(features, {}).toarray().astype(float)
    weight = np.sqrt(N_WATCHERS) / np.sqrt(N_WATCHERS).mean()
    cosine = np.where((N_WATCHERS > 0) & ~np.eye(N_ITEMS, dtype=bool), X @ X.T, 0.0)
    share = weight * cosine**3
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-12)
    found = FeatureModel(features, N_WATCHERS).like_mean.toarray()
    np.testing.assert_allclose(found, share, atol=1e-5)


def test_an_item_without_watchers_has_the_predicted_row_and_one_with_many_its_own(rng):
    model = FeatureModel(tags(rng), N_WATCHERS)
    own, predicted = np.zeros((2, N_ITEMS, 3), dtype=np.float32)
    predicted[:] = 1.0
    share = model.blend(own, predicted, half=2.0)[:, 0]
    np.testing.assert_array_equal(share, model.share(2.0))
    np.testing.assert_allclose(share[:5], [1.0, 1.0, 2 / 3, 1 / 2, 2 / 42], atol=1e-6)
    nobody = np.zeros(N_ITEMS, dtype=int)
    nobody[0] = 40  # without a feature
    assert FeatureModel(tags(rng), nobody).blend(own, predicted, half=2.0)[0, 0] == 0.0


def test_levels_are_shrunk_to_their_mean():
    rows = np.array([[1.0, 2.0], [3.0, 6.0]], dtype=np.float32)
    assert FeatureModel.shrunk(rows, 0.5).tolist() == [[1.0, 3.0], [3.0, 5.0]]


def test_a_level_is_the_score_for_the_mean_hidden_layer(rng):
    network = network_with_mean(rng, n_neighbours=0)
    found = with_levels(network.weights["output_weight"], network.bias, network.mean_hidden)
    expected = network.bias + network.weights["output_weight"] @ network.mean_hidden
    np.testing.assert_allclose(found[:, -1], expected, atol=1e-6)


@pytest.mark.parametrize("input_scale", ["history", "alpha", "none"])
def test_more_items_change_no_score_of_known_ones(rng, input_scale):
    network = random_numpy_network(12, input_scale=input_scale, alpha=3.0)
    more = with_more_items(network, N_ITEMS)
    ratings = csr_array(np.minimum(random_counts(8, 12).toarray(), 4) / 4)
    longer = csr_array((ratings.data, ratings.indices, ratings.indptr), (8, N_ITEMS))
    np.testing.assert_allclose(more.logits(longer)[:, :12], network.logits(ratings), atol=1e-4)
    assert with_more_items(network, 12) is network


@pytest.mark.parametrize("input_scale", ["history", "alpha", "none"])
def test_items_without_watchers_do_not_change_the_hidden_layer(rng, input_scale):
    network = network_with_mean(rng, input_scale=input_scale, alpha=3.0)
    ratings = ratings_without_cold(rng)
    found = FeatureModel(tags(rng), N_WATCHERS).with_inputs(network, FeatureStrengths(half=0.0))
    np.testing.assert_allclose(found.hidden(ratings), network.hidden(ratings), atol=1e-4)
    is_cold = N_WATCHERS == 0
    for name in ("like_weight", "dislike_weight"):
        is_same = (found.weights[name] == network.weights[name]).all(axis=1)
        assert (is_same == ~is_cold).all()


def test_an_item_is_unknown_if_it_shares_nothing_with_an_item_that_has_watchers():
    values = [(0, "a"), (1, "b"), (2, "b"), (3, "a"), (4, "c"), (5, "d"), (6, "a")]
    items, tag = zip(*values, strict=True)
    entries = {"tag": Entries(items, tag, np.ones(len(items)))}
    features = ItemFeatures.from_entries(8, entries, {"tag": "values"})
    n_watchers = np.array([0, 0, 0, 5, 9, 0, 0, 0])  # one item with an a, and one with a c
    found = FeatureModel(features, n_watchers).is_unknown
    assert np.flatnonzero(found).tolist() == [1, 2, 5, 7]


def test_like_weights_are_blended_by_the_number_of_watchers(rng):
    network, model = network_with_mean(rng), FeatureModel(tags(rng), N_WATCHERS)
    W = network.weights["like_weight"]
    found = model.with_inputs(network, FeatureStrengths(l2=2.0, half=8.0)).weights["like_weight"]
    np.testing.assert_allclose(found, model.blend(W, model.predicted(W, 2.0), 8.0), atol=1e-6)


@pytest.mark.parametrize("n_neighbours", [0, 3])
def test_scores_are_those_of_the_parts(rng, n_neighbours):
    """A network with features scores as the sums that strengths are judged by."""
    network, features = network_with_mean(rng, n_neighbours=n_neighbours), tags(rng)
    strengths = FeatureStrengths(l2=2.0, level=0.75, half=8.0, like_gain=0.5)
    model, ratings = FeatureModel(features, N_WATCHERS), ratings_without_cold(rng)
    own = with_levels(network.weights["output_weight"], network.bias, network.mean_hidden)
    rows = model.blend(own, model.shrunk(model.predicted(own, 2.0), 0.75), 8.0)
    hidden = network.hidden(ratings) - network.mean_hidden
    rows[0, -1] = np.quantile(rows[N_WATCHERS > 0, -1], LEAST_POPULAR)  # nothing is known about it
    expected = hidden @ rows[:, :-1].T + rows[:, -1]
    if n_neighbours:
        first, like = model.direct_scores(network, ratings)
        expected = expected + first + np.float32(0.5) * model.share(8.0) * like
    found = model.with_outputs(network, strengths).logits(ratings)
    not_own = ~(likes_of(ratings).toarray() > 0)  # an item is no neighbour of its own
    np.testing.assert_allclose(found[not_own], expected[not_own], atol=2e-4)


def test_the_direct_path_of_an_item_with_few_watchers_is_that_of_items_alike(rng):
    network = network_with_mean(rng)
    model, ratings = FeatureModel(tags(rng), N_WATCHERS), ratings_without_cold(rng)
    own = network.direct(ratings)
    first, like = model.direct_scores(network, ratings)
    few = np.flatnonzero(N_WATCHERS < LEAST_WATCHERS)
    np.testing.assert_allclose(first[:, few], own @ model.like_mean.toarray()[few].T, atol=1e-5)
    others = np.flatnonzero(N_WATCHERS >= LEAST_WATCHERS)
    np.testing.assert_array_equal(first[:, others], own[:, others])
    np.testing.assert_allclose(
        like, likes_of(ratings).toarray() @ model.like.toarray().T, atol=1e-5
    )


def test_items_that_may_not_change_keep_their_weights(rng):
    network = network_with_mean(rng)
    only = N_WATCHERS == 0
    model = FeatureModel(tags(rng), N_WATCHERS)
    added = model.with_inputs(network, FeatureStrengths(), is_changed=only)
    added = model.with_outputs(added, FeatureStrengths(), is_changed=only, gets_neighbours=only)
    ratings = ratings_without_cold(rng)
    kept = np.flatnonzero(~only)
    np.testing.assert_allclose(
        added.logits(ratings)[:, kept], network.logits(ratings)[:, kept], atol=1e-4
    )


def test_strengths_are_read_again_and_bad_ones_refused():
    given = {"l2": 0.5, "level": 0.5, "half": 2.0, "like_gain": 0.0, "columns": {"tag": 0.3}}
    assert FeatureStrengths.of(given) == FeatureStrengths(0.5, 0.5, 2.0, 0.0, {"tag": 0.3})
    for bad in (
        {"l2": 0},
        {"half": -1},
        {"level": "much"},
        {"columns": {"tag": -1}},
        {"columns": 3},
        {"more": 1},
        5,
    ):
        with pytest.raises(ConfigError):
            FeatureStrengths.of(bad)
