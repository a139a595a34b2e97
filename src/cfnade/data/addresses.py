"""Addresses of the pages and pictures of items, safe to put on a web page."""

from __future__ import annotations

import re
from collections.abc import Iterable

LINK, IMAGE = KINDS = ("link", "image")
"""What an address of an item leads to: its page, or a picture of it."""

_LONGEST = 2_000
_HOST = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?"  # as a content policy can name it
_REST = r"[/?#][^\s\x00-\x20\x7f\"'<>\\^`{|}]*"
_ADDRESS = re.compile(f"(https?://{_HOST})(?:{_REST})?", re.IGNORECASE)


def safe_address(text: str) -> str | None:
    """An address of http or https, without a user or password; None if it is anything else."""
    found = text.strip()
    return found if len(found) <= _LONGEST and _ADDRESS.fullmatch(found) else None


def origins(addresses: Iterable[str]) -> set[str]:
    """Schemes and hosts of safe addresses, such as `https://example.com`."""
    found = map(_ADDRESS.fullmatch, addresses)
    return {match[1].lower() for match in found if match}
