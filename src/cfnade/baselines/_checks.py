"""Checks on settings that several baselines share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cfnade.checks import check_number
from cfnade.errors import ConfigError, TrainingError


def check_above_zero(model: str, **settings: float) -> None:
    """Refuse settings that are not finite numbers above 0, by name."""
    for name, value in settings.items():
        if check_number(f"the {name} of {model}", value) <= 0:
            raise ConfigError(f"the {name} of {model} must be above 0, got {value}")


def check_at_least(model: str, least: float, **settings: float) -> None:
    """Refuse settings that are not finite numbers of at least so much, by name."""
    for name, value in settings.items():
        if check_number(f"the {name} of {model}", value) < least:
            raise ConfigError(f"the {name} of {model} must be at least {least}, got {value}")


def check_share(model: str, **settings: float) -> None:
    """Refuse settings that are not numbers of at least 0 and below 1, by name."""
    for name, value in settings.items():
        if not 0 <= check_number(f"the {name} of {model}", value) < 1:
            raise ConfigError(f"the {name} of {model} must be at least 0 and below 1, got {value}")


def check_stops(iterations: Sequence[int]) -> None:
    """Refuse stops that are not ascending from 1."""
    if not iterations or any(a >= b for a, b in pairwise([0, *iterations])):
        raise ConfigError(f"iterations must be at least 1 and ascending, got {list(iterations)}")


def check_dense_memory(model: str, n_items: int, max_memory_gb: float) -> None:
    """Refuse a catalogue whose items by items in float32 take more than so much memory.

    Raises:
        TrainingError: If they do.
    """
    needed_gb = 4 * n_items**2 / 1e9
    if needed_gb > max_memory_gb:
        raise TrainingError(
            f"{model} needs {needed_gb:.1f} GB for {n_items:,} items, above "
            f"max_memory_gb={max_memory_gb:g}; drop rare items, or raise it if there is "
            "that much memory"
        )
