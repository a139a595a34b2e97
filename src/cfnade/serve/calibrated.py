"""The value that people are shown for a recommendation: calibrated, where the model can."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.errors import CfnadeError
from cfnade.recommender import ImplicitCFNADE


def is_calibrated(model: ImplicitCFNADE) -> bool:
    """Whether the model turns scores into honest probabilities: it is asked for one."""
    probability: Any = getattr(model, "probability", None)
    if probability is None:
        return False
    try:
        probability({}, items=model.catalogue_.ids[:1].tolist())
    except CfnadeError:  # it has no calibrator
        return False
    return True


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
        (n,); None where there are dislikes and the model calibrates none.
    """
    probability: Any = model.probability  # type: ignore[attr-defined]
    if not disliked:
        return np.asarray(probability(history, items=list(items)))
    if "disliked" not in inspect.signature(probability).parameters:
        return None
    return np.asarray(probability(history, items=list(items), disliked=disliked))
