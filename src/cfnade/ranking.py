"""The best items of each row of scores, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 64 * 2**20
"""Float32 scores that are held at once."""

Ranked: TypeAlias = tuple[NDArray[Any], NDArray[np.float32]]
"""Ids and scores, best first."""


def rows_per_block(n_columns: int) -> int:
    """Rows of scores that fit in a block, at least one."""
    return max(1, BLOCK_BYTES // (4 * max(n_columns, 1)))


def blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Cut rows into blocks whose scores stay within `BLOCK_BYTES`."""
    size = rows_per_block(n_columns)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def top_items(
    scores: NDArray[np.floating], n: int, allowed: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """The n best allowed items, best first; equal scores in the order of items.

    Args:
        scores: Of all items, (n_items,).
        n: At most so many; fewer if fewer are allowed.
        allowed: Items that may be recommended, (n_items,); all if None.

    Returns:
        Item columns, (at most n,).
    """
    columns = np.arange(scores.size) if allowed is None else np.flatnonzero(allowed)
    if 0 < n < columns.size:
        values = scores[columns]
        threshold = np.partition(values, columns.size - n)[columns.size - n]  # the n-th best
        columns = columns[values >= threshold]
    order = np.argsort(-scores[columns], kind="stable")
    return columns[order[:n]]


def stack(rows: list[Ranked], ids: NDArray[Any], n: int) -> Ranked:
    """Put the answers of many rows together, without padding.

    Args:
        rows: One answer for each row, of any length.
        ids: What the answers were taken from, for their type.
        n: Items asked for: the width where there are no rows at all.

    Returns:
        Two arrays (n_rows, n) if all answers have one length, else two object arrays (n_rows,)
        that hold one array for each row: `ids[row]` is right in both cases.
    """
    lengths = {len(scores) for _, scores in rows} or {n}
    stacked_ids: NDArray[Any]
    stacked_scores: NDArray[Any]
    if len(lengths) == 1:
        shape = (len(rows), lengths.pop())
        stacked_ids, stacked_scores = np.empty(shape, ids.dtype), np.empty(shape, np.float32)
    else:
        stacked_ids, stacked_scores = np.empty(len(rows), object), np.empty(len(rows), object)
    for row, (row_ids, row_scores) in enumerate(rows):
        stacked_ids[row], stacked_scores[row] = row_ids, row_scores
    return stacked_ids, stacked_scores
