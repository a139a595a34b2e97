from __future__ import annotations

import pytest

from cfnade.errors import ConfigError
from cfnade.model.config import ModelConfig, TrainingConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [("learning_rate", 0.0), ("batch_size", 0), ("context_share", 1.0),
     ("optimizer", "lbfgs"), ("item_l2", -1.0), ("patience", 0),
     ("schedule", "cosine"), ("bias_start", "mean"), ("item_mean", 1), ("max_epochs", 2.5),
     ("validate_every", None), ("batch_size", None), ("item_l2", None), ("seed", -1)],
)  # fmt: skip
def test_training_settings_without_meaning_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=field):
        TrainingConfig(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_hidden", 0), ("n_layers", 0), ("activation", "sin"), ("alpha", -1), ("input_scale", "x"),
     ("n_items", 0), ("n_hidden", 2.5), ("n_neighbours", -1), ("alpha", 1e300)],
)  # fmt: skip
def test_model_settings_without_meaning_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=field):
        ModelConfig(**{"n_items": 3, field: value})


def test_an_epoch_has_as_many_updates_as_batches():
    training = TrainingConfig(batch_size=16)
    assert [training.updates_per_epoch(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_epochs_are_validated_regularly_and_the_last_of_a_schedule_always():
    def looks(**settings) -> list[int]:
        training = TrainingConfig(max_epochs=7, **settings)
        return [epoch for epoch in range(1, 8) if training.is_validated(epoch)]

    assert looks(validate_every=3) == [3, 6]
    assert looks(validate_every=3, schedule="linear") == [3, 6, 7]
    assert looks(validate_every=10) == [7]  # or there would be none
