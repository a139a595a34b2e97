"""Settings of the simulated streaming service, and the sizes it comes in."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from cfnade.errors import ConfigError


@dataclass(frozen=True)
class ServiceConfig:
    """What the simulated service is like; the defaults have the scale of the paper's data.

    Tastes and popularity are set so that the service is about as predictable as real ones: of
    popularity, a tuned matrix factorisation and the true preferences, the MPR is near 20, 6 and 4.
    """

    n_users: int = 444_480
    """Users (paper: 444,480)."""

    n_items: int = 17_348
    """Movies and shows (paper: 17,348)."""

    n_tastes: int = 20
    """Dimensions of the space of tastes. More make a user harder to know from a history."""

    taste_strength: float = 2.35
    """How much taste decides, as the standard deviation of an item's log-propensity over users."""

    popularity_exponent: float = 1.0
    """How fast popularity falls with an item's rank: `(rank + head) ** -exponent`."""

    popularity_head: float = 0.003
    """Share of the catalogue that is about equally popular before that fall sets in."""

    mean_history: float = 36.0
    """Items per user, on average."""

    history_spread: float = 1.1
    """How unequal the histories are: the standard deviation of the logarithm of their length."""

    min_history: int = 5
    """Items of the user with the fewest."""

    show_share: float = 0.25
    """Share of the items that are shows; the others are movies."""

    median_episodes: float = 20.0
    """Episodes of the median show."""

    rewatching: float = 0.4
    """Chance that someone who likes an episode in full watches it once more."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value) or value < 0:
                raise ConfigError(f"{field.name} must be finite and at least 0, got {value}")
        for name in ("n_users", "n_tastes", "popularity_head", "min_history"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("show_share", "popularity_head"):
            if getattr(self, name) > 1:
                raise ConfigError(f"{name} is a share, at most 1, got {getattr(self, name)}")
        if self.rewatching >= 1:
            raise ConfigError(f"rewatching is a chance below 1, got {self.rewatching}")
        if self.median_episodes < 2:
            raise ConfigError(f"median_episodes must be at least 2, got {self.median_episodes}")
        if not self.min_history <= self.mean_history <= self.n_items / 2:
            raise ConfigError(
                f"expected min_history <= mean_history <= n_items / 2, got {self.min_history}, "
                f"{self.mean_history} and {self.n_items / 2}; choose a mean_history in between"
            )

    @classmethod
    def sized(cls, size: str, **changes: Any) -> ServiceConfig:
        """One of the prepared sizes.

        Args:
            size: A key of `SIZES`.
            changes: Settings to change.

        Returns:
            The settings.

        Raises:
            ConfigError: If there is no such size, or a setting has no meaning.
        """
        if size not in SIZES:
            raise ConfigError(f"size {size!r} is not known; choose one of {', '.join(SIZES)}")
        return cls(**{**SIZES[size], **changes})


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "n_users": 300,
        "n_items": 120,
        "n_tastes": 4,
        "taste_strength": 3.0,
        "popularity_exponent": 1.5,
        "mean_history": 12.0,
    },
    "small": {
        "n_users": 5_000,
        "n_items": 1_000,
        "n_tastes": 8,
        "taste_strength": 2.8,
        "popularity_exponent": 1.45,
        "mean_history": 30.0,
    },
    "medium": {
        "n_users": 60_000,
        "n_items": 5_000,
        "n_tastes": 12,
        "taste_strength": 2.5,
        "popularity_exponent": 1.1,
    },
    "paper": {},
}
"""What differs from the defaults in each size. A history is a larger part of a small catalogue,
which flattens popularity, and fewer users tell less of their tastes: both are made up for here."""
