from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.pairs import rows_of
from cfnade.errors import ArtifactError, TrainingError
from cfnade.model.config import RatingConfig, TrainingConfig
from cfnade.model.rating_training import RatingRun
from cfnade.model.training import Look, run_epochs

TRAINING = TrainingConfig(learning_rate=0.02, schedule="linear", batch_size=16, max_epochs=6)
MODEL = RatingConfig(n_columns=12, n_levels=4, n_hidden=8)


@pytest.fixture
def levels(rng):
    """Sixty rows of two tastes: the first group rates the first columns highly, and vice versa."""
    rows, columns = np.indices((60, 12))
    agree = (rows % 2) == (columns < 6)
    ratings = np.where(agree, 4, 1) - (rng.random((60, 12)) < 0.2) * np.where(agree, 1, -1)
    return csr_array((ratings * (rng.random((60, 12)) < 0.7)).astype(np.uint8))


def weights_of(trained):
    return trained.network.weights


@pytest.mark.parametrize("share", [True, False])
def test_it_learns_what_rows_have_in_common(levels, share):
    training = replace(TRAINING, max_epochs=60)
    trained = run_epochs(RatingRun(MODEL, training, levels, share=share))
    network = trained.network
    known = csr_array(np.array([[4, 4, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0]], dtype=np.uint8))
    columns = np.array([3, 9])
    scores = network.scores(network.hidden(known), np.zeros(2, dtype=int), columns)
    assert scores[0].argmax() >= 2 and scores[1].argmax() <= 1
    assert trained.epochs[-1].loss < 0.7 * trained.epochs[0].loss


@pytest.mark.parametrize("share", [True, False])
def test_the_trained_network_scores_in_numpy_as_in_torch(levels, share):
    run = RatingRun(MODEL, TRAINING, levels, share=share)
    network = run_epochs(run).network
    known, asked = levels[[0, 1]], levels[[2, 3]]
    scores = network.scores(network.hidden(known), rows_of(asked), asked.indices)
    in_torch = run.network(known, asked).detach().numpy()
    np.testing.assert_allclose(scores, in_torch, rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_weights(levels):
    first, again = (run_epochs(RatingRun(MODEL, TRAINING, levels)) for _ in range(2))
    other = run_epochs(RatingRun(MODEL, replace(TRAINING, seed=1), levels))
    for name, weight in weights_of(first).items():
        np.testing.assert_array_equal(weight, weights_of(again)[name])
    assert (weights_of(first)["input_weight"] != weights_of(other)["input_weight"]).any()


def test_a_resumed_run_ends_like_an_uninterrupted_one(levels, tmp_path):
    whole = run_epochs(RatingRun(MODEL, TRAINING, levels))

    def stop(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_epochs(RatingRun(MODEL, TRAINING, levels), checkpoint=tmp_path, on_epoch=stop)
    run = RatingRun(MODEL, TRAINING, levels)
    resumed = run_epochs(run, checkpoint=tmp_path, resume=True)
    for name, weight in weights_of(whole).items():
        np.testing.assert_array_equal(weight, weights_of(resumed)[name])
    with pytest.raises(ArtifactError, match="other ordinal_weight"):
        other = RatingRun(MODEL, TRAINING, levels, ordinal_weight=0.5)
        run_epochs(other, checkpoint=tmp_path, resume=True)


def test_early_stopping_keeps_the_best_epoch(levels):
    costs = iter([3.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    training = replace(TRAINING, validate_every=1, patience=2)
    run = RatingRun(MODEL, training, levels)
    trained = run_epochs(run, validate=lambda network: Look(None, next(costs)))
    assert (trained.best_epoch, len(trained.epochs)) == (2, 4)


def test_biases_do_not_decay_and_matrices_do(levels):
    strong = replace(TRAINING, weight_decay=100.0, max_epochs=40)
    weights = weights_of(run_epochs(RatingRun(MODEL, strong, levels)))
    assert np.abs(weights["input_weight"]).max() < 0.05
    assert np.abs(weights["output_bias"]).max() > 0.5


def test_a_loss_that_is_not_finite_ends_in_one_line(levels):
    training = replace(TRAINING, learning_rate=1e38)
    with pytest.raises(TrainingError, match="try a smaller learning rate"):
        run_epochs(RatingRun(MODEL, training, levels))
