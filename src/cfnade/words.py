"""Numbers with their nouns, as messages and tables have them."""

from __future__ import annotations


def n_of(n: int, noun: str) -> str:
    """`1 user`, `1,234 users`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
