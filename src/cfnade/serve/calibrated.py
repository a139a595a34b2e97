"""The value that people are shown for a recommendation: calibrated, where the model can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.recommender import ImplicitCFNADE


def is_calibrated(model: ImplicitCFNADE) -> bool:
    """Whether the model turns scores into honest probabilities."""
    return model.calibrator_ is not None


def calibrated(
    model: ImplicitCFNADE,
    history: Mapping[Any, float],
    disliked: Mapping[Any, float],
    items: Sequence[Any],
) -> NDArray[np.floating] | None:
    """Calibrated probabilities of some items, for a model that has a calibrator.

    Args:
        model: One that `is_calibrated`.
        history: Counts by item id.
        disliked: Confidences by item id.
        items: Ids of those asked for, (n,).

    Returns:
        (n,); None where there are dislikes, which no calibrator was fitted on.
    """
    if disliked:
        return None
    return model.probability(history, items=list(items))
