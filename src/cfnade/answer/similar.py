"""Which items and which users are alike: cosines over what the network has learnt."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.top import Ranked, top_items
from cfnade.data.interactions import CountMatrix
from cfnade.scorer import blocks

_BELOW_ONE = np.nextafter(np.float32(1.0), np.float32(0.0))


class ItemSimilarity:
    """Cosines between the items' output weights (V), less their mean.

    Two items are alike if the network recommends them to the same people. A vector added to
    every row of V adds one number to all scores of a user and changes no ranking; taking the
    mean out leaves what tells items apart.
    """

    def __init__(self, output_weight: NDArray[np.float32]) -> None:
        self.output_weight = output_weight
        self.mean: NDArray[np.float32] = output_weight.mean(axis=0)
        # One block at a time: no second copy of V, which workers may share on disk.
        n_items, n_hidden = output_weight.shape
        norms = [
            np.linalg.norm(output_weight[rows] - self.mean, axis=1)
            for rows in blocks(n_items, n_hidden)
        ]
        self.norms = _above_zero(np.concatenate(norms))

    def of(self, columns: NDArray[np.integer]) -> NDArray[np.float32]:
        """Similarity of some items to all.

        Args:
            columns: Of the items asked about, (n_asked,).

        Returns:
            In [-1, 1], 1 for the item itself and below 1 for all others, so that it comes first
            even among copies of it, (n_asked, n_items).
        """
        asked = self.output_weight[columns] - self.mean  # (n_asked, n_hidden)
        asked /= self.norms[columns, None]
        cosines = asked @ self.output_weight.T - (asked @ self.mean)[:, None]
        similarity = np.clip(cosines / self.norms, -1.0, _BELOW_ONE)
        similarity[np.arange(len(columns)), columns] = 1.0
        return np.asarray(similarity, dtype=np.float32)


def similar_histories(
    hidden: Callable[[CountMatrix], NDArray[np.float32]],
    asked: CountMatrix,
    among: CountMatrix,
    n: int,
) -> list[Ranked]:
    """The histories most like some given ones: cosines over the hidden layer.

    Args:
        hidden: Hidden layer of each history.
        asked: Counts of those asked about, (n_asked, n_items).
        among: Counts of those to search, (n_users, n_items); a block of them at a time.
        n: At most so many.

    Returns:
        For each one asked about, rows of `among` and their similarities, best first.
    """
    directions = _unit(hidden(asked))  # (n_asked, n_hidden)
    width = sum(directions.shape)
    best: list[list[Ranked]] = [[] for _ in range(asked.shape[0])]
    for rows in blocks(among.shape[0], width):
        similarity = directions @ _unit(hidden(among[rows])).T  # (n_asked, n_rows)
        for found, scores, top in zip(best, similarity, top_items(similarity, n), strict=True):
            found.append((top + rows.start, scores[top]))
    ranked = []
    for found in best:
        users = np.concatenate([np.empty(0, dtype=np.int64), *(rows for rows, _ in found)])
        scores = np.concatenate([np.empty(0, dtype=np.float32), *(s for _, s in found)])
        (top,) = top_items(scores[None], n)
        ranked.append((users[top], np.clip(scores[top], -1.0, 1.0)))
    return ranked


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each row with length 1; a row of zeros stays one."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / _above_zero(norms), dtype=np.float32)


def _above_zero(norms: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(norms > 0, norms, np.float32(1.0))
