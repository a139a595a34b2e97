"""Checks of arguments: each refuses a bad value by name."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cfnade.errors import ConfigError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def check_number(name: str, value: Any) -> float:
    """Return a finite number.

    Raises:
        ConfigError: If the value is anything else.
    """
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except (OverflowError, TypeError):  # an integer of hundreds of digits, a complex number
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{name} must be a finite number, got {value!r:.200}")
    return number


def check_bool(name: str, value: Any) -> None:
    """Refuse what is neither true nor false: Python takes the text "no" as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name} must be true or false, got {value!r}")


def check_whole(name: str, value: int, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse what is not one of the choices."""
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_above_zero(**settings: float) -> None:
    """Refuse settings that are not finite numbers above 0."""
    for name, value in settings.items():
        if check_number(name, value) <= 0:
            raise ConfigError(f"{name} must be above 0, got {value}")


def check_at_least(least: float, **settings: float) -> None:
    """Refuse settings that are not finite numbers of at least `least`."""
    for name, value in settings.items():
        if check_number(name, value) < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")


def check_share(**settings: float) -> None:
    """Refuse settings that are not numbers of at least 0 and below 1."""
    for name, value in settings.items():
        if not 0 <= check_number(name, value) < 1:
            raise ConfigError(f"{name} must be at least 0 and below 1, got {value}")


def check_bytes(name: str, size: str | float) -> int:
    """Return the bytes of a size such as `4GB`, `512 MiB` or 2e9.

    Raises:
        ConfigError: If it is not a size.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", str(size).lower())
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or number <= 0:
        raise ConfigError(f"{name} must be a size such as 4GB or 512MiB, got {size!r}")
    return int(number * (_BINARY if match[3] else _UNITS)[match[2]])


def is_utf8(name: str) -> bool:
    """Whether a name is text; Python keeps bytes of other names as lone surrogates."""
    return not any("\ud800" <= sign <= "\udfff" for sign in name)
