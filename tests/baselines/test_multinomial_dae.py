from __future__ import annotations

import numpy as np
import pytest

from cfnade.baselines import MultinomialDAE
from cfnade.errors import ConfigError, TrainingError

SETTINGS = {"n_hidden": 5, "batch_size": 60, "learning_rate": 0.01, "n_threads": 1}


def literal_scores(likes: np.ndarray, weights: tuple[np.ndarray, ...]) -> np.ndarray:
    W, b, V, d = weights
    scores = []
    for row in likes:
        x = row / np.sqrt(row.sum()) if row.any() else row
        hidden = [np.tanh(sum(x[i] * W[i, k] for i in range(20)) + b[k]) for k in range(len(b))]
        scores.append([V[i] @ hidden + d[i] for i in range(20)])
    return np.array(scores)


def literal_loss(likes: np.ndarray, weights: tuple[np.ndarray, ...]) -> float:
    logits = literal_scores(likes, weights)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -float((likes * log_probs).sum(axis=1).mean())


def test_scores_are_those_of_the_formula(counts) -> None:
    model = MultinomialDAE(**SETTINGS, iterations=3).fit(counts)
    likes = (counts.toarray() > 0).astype(float)
    expected = literal_scores(likes, model.weights_)
    np.testing.assert_allclose(model.scores(counts), expected, rtol=1e-4, atol=1e-5)


def test_a_step_goes_down_the_multinomial_loss(counts) -> None:
    # Adam's first step moves each weight by the learning rate against the sign of its gradient.
    likes = (counts.toarray() > 0).astype(float)
    settings = {**SETTINGS, "dropout": 0.0}
    after = MultinomialDAE(**settings, iterations=1).fit(counts).weights_
    tiny = MultinomialDAE(**{**settings, "learning_rate": 1e-12}, iterations=1)
    before = tiny.fit(counts).weights_  # as good as the first weights
    for which, place in ((0, (3, 1)), (1, (2,)), (2, (7, 4)), (3, (11,))):
        ahead, behind = [[w.astype(float) for w in before] for _ in range(2)]
        ahead[which][place] += 1e-4
        behind[which][place] -= 1e-4
        slope = (literal_loss(likes, ahead) - literal_loss(likes, behind)) / 2e-4
        moved = after[which][place] - before[which][place]
        assert moved == pytest.approx(-0.01 * np.sign(slope), rel=1e-3)


def test_training_lowers_the_loss(counts) -> None:
    likes = (counts.toarray() > 0).astype(float)
    early, late = MultinomialDAE(**SETTINGS).fits(counts, [1, 100])
    assert literal_loss(likes, late.weights_) < literal_loss(likes, early.weights_) - 0.5


def test_stopping_on_the_way_equals_training_for_as_long(counts) -> None:
    settings = {**SETTINGS, "batch_size": 16}
    for model in MultinomialDAE(**settings).fits(counts, [2, 5]):
        alone = MultinomialDAE(**settings, iterations=model.iterations).fit(counts)
        np.testing.assert_array_equal(model.scores(counts), alone.scores(counts))


def test_a_loss_that_is_not_finite_stops_with_what_to_change(counts) -> None:
    with pytest.raises(TrainingError, match="no longer finite; lower the learning rate"):
        MultinomialDAE(**{**SETTINGS, "learning_rate": 1e38}, iterations=5).fit(counts)


def test_invalid_settings_are_refused(counts) -> None:
    with pytest.raises(ConfigError, match="dropout must be at least 0 and below 1"):
        MultinomialDAE(dropout=1.0).fit(counts)
    with pytest.raises(ConfigError, match="n_hidden must be a whole number of at least 1, got 0"):
        MultinomialDAE(n_hidden=0).fit(counts)
