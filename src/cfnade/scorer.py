"""The `Scorer` protocol of every model, and blocks of rows to score at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cfnade.data.interactions import CountMatrix


BLOCK_BYTES = 16 * 2**20
"""Float32 scores to hold at once: they fit into a large cache."""


class Scorer(Protocol):
    """Ranks all items for any histories, of known or new users alike."""

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; higher means recommended earlier.

        Args:
            histories: Counts, sparse, (n_users, n_items); a row may be empty.

        Returns:
            Finite scores, comparable within a row, (n_users, n_items).
        """
        ...


def rows_per_block(n_columns: int, block_bytes: int | None = None) -> int:
    """Rows of scores that fit in a block, at least one; `BLOCK_BYTES` by default."""
    return max(1, (block_bytes or BLOCK_BYTES) // (4 * max(n_columns, 1)))


def blocks(n_rows: int, n_columns: int, block_bytes: int | None = None) -> Iterator[slice]:
    """Cut rows into blocks whose scores stay within `block_bytes`, at least one row each."""
    size = rows_per_block(n_columns, block_bytes)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))
