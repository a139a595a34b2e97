from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import softmax

from cfnade.errors import ArtifactError
from cfnade.model.config import RatingConfig
from cfnade.model.rating_inference import NumpyRatingNetwork, table_rows
from tests import reference


def random_numpy_rating_network(seed=0, **settings):
    """A network of which every weight matters."""
    rng = np.random.default_rng(seed)
    config = RatingConfig(**{"n_columns": 5, "n_levels": 3, "n_hidden": 4, **settings})
    shapes = config.weight_shapes()
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return NumpyRatingNetwork(config, weights)


def by_item(network, name):
    table = network.weights[name]
    return table.reshape(network.config.n_columns, network.config.n_levels, -1).tolist()


def test_scores_equal_the_loops():
    network = random_numpy_rating_network()
    levels = csr_array(np.array([[1, 0, 3, 0, 2], [0, 0, 0, 0, 0]], dtype=np.uint8))
    W, V = by_item(network, "input_weight"), by_item(network, "output_weight")
    d = [[k[0] for k in item] for item in by_item(network, "output_bias")]
    rows, columns = np.array([0, 0, 1]), np.array([1, 3, 3])
    scores = network.scores(network.hidden(levels), rows, columns)
    for found, row, item in zip(scores.tolist(), rows, columns, strict=True):
        ratings = {0: 0, 2: 2, 4: 1} if row == 0 else {}
        h = reference.rating_hidden(ratings, ratings, W, network.weights["hidden_bias"].tolist())
        assert found == pytest.approx(reference.rating_scores(item, h, V, d), rel=1e-5)


@pytest.mark.parametrize("settings", [{}, {"n_layers": 3}, {"n_factors": 2}])
def test_it_predicts_as_torch_does(settings):
    torch = pytest.importorskip("torch")
    from cfnade.model.rating_network import RatingNetwork

    network = random_numpy_rating_network(**settings)
    in_torch = RatingNetwork(network.config, share=False)
    in_torch.load_state_dict({n: torch.from_numpy(w) for n, w in network.weights.items()})
    known = csr_array(np.array([[2, 3, 0, 0, 1], [0, 0, 1, 0, 0]], dtype=np.uint8))
    targets = csr_array(np.array([[0, 0, 1, 1, 0], [1, 0, 0, 0, 2]], dtype=np.uint8))
    expected = in_torch(known, targets)
    scores = network.scores(network.hidden(known), np.array([0, 0, 1, 1]), targets.indices)
    np.testing.assert_allclose(scores, expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_with_sharing_a_rating_adds_up_the_rows_of_all_lower_ratings():
    levels = csr_array(np.array([[0, 3, 1]], dtype=np.uint8))
    assert table_rows(levels, 4).indices.tolist() == [4 + 2, 8]
    assert table_rows(levels, 4, share=True).indices.tolist() == [4, 5, 6, 8]


def test_a_new_column_is_folded_in(rng):
    """Ratings that follow the hidden layer are predicted for rows that were not rated."""
    network = random_numpy_rating_network()
    hidden = rng.normal(size=(400, 4)).astype(np.float32)
    levels = 1 + (hidden[:, 0] > -0.5).astype(int) + (hidden[:, 0] > 0.5)
    scores = network.folded_in(hidden[:300], levels[:300], hidden[300:])
    assert (1 + scores.argmax(axis=1) == levels[300:]).mean() > 0.85
    few = softmax(network.folded_in(hidden[:1], levels[:1], hidden[300:]), axis=1)
    mean = network.mean_column
    everybody = softmax(hidden[300:] @ mean[:, :-1].T + mean[:, -1], axis=1)
    assert np.abs(few - everybody).max() < 0.5


def test_weights_of_another_shape_are_refused():
    network = random_numpy_rating_network()
    weights = {**network.weights, "hidden_bias": np.zeros(3, dtype=np.float32)}
    with pytest.raises(ArtifactError, match="hidden_bias must be float32 of shape"):
        NumpyRatingNetwork(network.config, weights)
