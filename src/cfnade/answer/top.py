"""The best items of each row of scores."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_CHUNK = 64  # items

Ranked: TypeAlias = tuple[NDArray[Any], NDArray[np.float32]]
"""Ids and scores, best first."""


def top_items(scores: NDArray[np.floating], n: int) -> list[NDArray[np.int64]]:
    """Columns of at most n items of each row, best first; ties in the order of columns.

    Scores, (n_rows, n_items), are minus infinity for items that may not be recommended.
    """
    n_rows, n_items = scores.shape
    if n < 1 or n_rows == 0:
        return [np.empty(0, dtype=np.int64)] * n_rows
    threshold = _reached_by(scores, n)
    is_good = scores >= threshold[:, None]
    if np.isneginf(threshold).any():  # fewer than n are allowed
        is_good &= scores > -np.inf
    row, column = np.divmod(np.flatnonzero(is_good), n_items)  # quicker than in two dimensions
    order = np.lexsort((column, -scores[row, column], row))
    ends = np.cumsum(np.bincount(row, minlength=n_rows))
    return [part[:n] for part in np.split(column[order], ends[:-1])]


def _reached_by(scores: NDArray[np.floating], n: int) -> NDArray[np.floating]:
    """A score that at least n items of the row reach, and not many more, (n_rows,).

    Each row is split into chunks, neighbours into different ones, as good items are often
    adjacent. The best items of n chunks are n items, so at least n items reach the n-th best
    maximum of a chunk.
    """
    n_rows, n_items = scores.shape
    if n >= n_items:
        return np.full(n_rows, -np.inf, dtype=scores.dtype)
    n_chunks = n_items // _CHUNK
    best = scores
    if n_chunks > 2 * n:
        best = scores[:, : n_chunks * _CHUNK].reshape(n_rows, _CHUNK, n_chunks).max(axis=1)
    place = best.shape[1] - n
    return np.asarray(np.partition(best, place, axis=1)[:, place])


def stack(rows: list[Ranked], ids: NDArray[Any], n: int) -> Ranked:
    """Stack the answers of many rows, with ids of the type of `ids`, without padding.

    Returns:
        Two arrays (n_rows, n) if all answers have one length or there are none, else two object
        arrays (n_rows,) of arrays: `ids[row]` works in both cases.
    """
    lengths = {len(scores) for _, scores in rows} or {n}
    is_even = len(lengths) == 1
    shape = (len(rows), lengths.pop()) if is_even else (len(rows),)
    stacked_ids = np.empty(shape, ids.dtype if is_even else object)
    stacked_scores = np.empty(shape, np.float32 if is_even else object)
    for row, (row_ids, row_scores) in enumerate(rows):
        stacked_ids[row], stacked_scores[row] = row_ids, row_scores
    return stacked_ids, stacked_scores
