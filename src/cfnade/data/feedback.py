"""From relative ratings to what the model reads: like and confidence (Eq. 5 and 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.errors import ConfigError


def check_number(name: str, value: Any) -> float:
    """Give back a finite number, and refuse anything else by name."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not np.isfinite(value):
        raise ConfigError(f"{name} must be finite: a number, got {value!r}")
    return float(value)


def check_alpha(alpha: float) -> None:
    """Refuse a rate of confidence that is not a finite number of at least 0."""
    if check_number("alpha", alpha) < 0:
        raise ConfigError(f"alpha must be finite and at least 0, got {alpha}")


def confidence(relative_rating: NDArray[np.floating], alpha: float) -> NDArray[np.float32]:
    """How sure we are of a like (Eq. 6): `1 + alpha * relative_rating`.

    Only observed pairs are stored anywhere in this package, and those are exactly the likes
    (Eq. 5: like = 1 where the rating is above 0). What is not stored has like 0 and, as its
    rating is 0, a confidence of exactly 1.

    Args:
        relative_rating: In (0, 1] for observed pairs, any shape.
        alpha: Rate of confidence.

    Returns:
        At least 1, the same shape.

    Raises:
        ConfigError: If alpha is negative or not finite.
    """
    check_alpha(alpha)
    return (1.0 + alpha * relative_rating).astype(np.float32)
