"""The factors of `implicit`'s gradient-trained models at several iterations of one fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cfnade.errors import TrainingError

Factors = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Of users, (n_users, k), and of items, (n_items, k)."""


def factors_on_the_way(
    name: str, model: Any, user_items: Any, stops: Sequence[int]
) -> list[Factors]:
    """Fit a model of `implicit` and keep its factors at each stop.

    Args:
        name: Of the model, for the message.
        model: Unfitted, set to as many iterations as the last stop.
        user_items: In the form that `implicit` takes, (n_users, n_items).
        stops: Iterations, ascending.

    Returns:
        The factors after each stop.

    Raises:
        TrainingError: If factors are not finite.
    """
    from implicit.recommender_base import ModelFitError

    kept: list[Factors] = []

    def keep(iteration: int, *ignored: Any) -> None:
        if iteration + 1 in stops:
            kept.append((model.user_factors.copy(), model.item_factors.copy()))

    try:
        with threadpool_limits(1, "blas"):
            model.fit(user_items, show_progress=False, callback=keep)
    except ModelFitError as error:
        raise TrainingError(
            f"{name} ended in NaN; lower the learning rate (now {model.learning_rate:g}) or raise "
            f"the regularization (now {model.regularization:g})"
        ) from error
    return kept
