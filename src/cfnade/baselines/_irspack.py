"""How the baselines that `irspack` does reach it."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from cfnade.errors import MissingExtraError


def irspack_module(name: str, purpose: str) -> Any:
    """Import a module of irspack.

    Args:
        name: Without `irspack.`.
        purpose: Who needs it, for the message.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # irspack writes its pydantic models the old way
            return importlib.import_module(f"irspack.{name}")
    except ImportError as error:
        raise MissingExtraError("irspack", "bench", purpose) from error
