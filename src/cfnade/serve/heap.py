"""Gives memory back to the system after a model was loaded: loading takes more than serving."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Free what nobody uses, down to the system where the C library can (glibc)."""
    gc.collect()
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    """`malloc_trim`: freed arrays of megabytes stay with the process without it."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return lambda pad: None
    return trim
