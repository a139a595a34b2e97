"""Similar items and similar users: cosines between learnt vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.filters import Ranked, top_items
from cfnade.data.interactions import CountMatrix
from cfnade.scorer import blocks

_BELOW_ONE = np.nextafter(np.float32(1.0), np.float32(0.0))


class ItemSimilarity:
    """Cosines between the items' output weights (V), minus their mean.

    Two items are similar if the network recommends them to the same people. A vector added to
    every row of V changes all scores of a user alike and no ranking, so the mean is removed.
    """

    def __init__(
        self, output_weight: NDArray[np.float32], features: csr_array | None = None
    ) -> None:
        """V, (n_items, n_hidden), and features for `between`, (n_items, n_features)."""
        self.output_weight = output_weight
        self.features = features
        self.mean: NDArray[np.float32] = output_weight.mean(axis=0)
        # In blocks, to avoid a second copy of V, which workers share on disk.
        parts = [output_weight[rows] for rows in blocks(*output_weight.shape)]
        norms = [np.linalg.norm(part - self.mean, axis=1) for part in parts]
        self.norms = _above_zero(np.concatenate(norms))

    def of(self, columns: NDArray[np.integer]) -> NDArray[np.float32]:
        """Similarity of some items, (n_asked,), to all, in [-1, 1], (n_asked, n_items).

        It is 1 for the item itself and less for all others, even for copies of it.
        """
        asked = self.output_weight[columns] - self.mean  # (n_asked, n_hidden)
        asked /= self.norms[columns, None]
        cosines = asked @ self.output_weight.T - (asked @ self.mean)[:, None]
        similarity = np.clip(cosines / self.norms, -1.0, _BELOW_ONE)
        similarity[np.arange(len(columns)), columns] = 1.0
        return np.asarray(similarity, dtype=np.float32)

    def between(
        self, columns: NDArray[np.integer], others: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """Similarity of some items to others, at most about 1, (n, n_others).

        With features it is the mean of two cosines: of the weights and of the features.
        """
        one, other = ((self.output_weight[c] - self.mean) for c in (columns, others))
        cosines = _unit(one) @ _unit(other).T
        if self.features is None:
            return np.asarray(cosines)
        known, others_known = (_unit_rows(self.features[c]) for c in (columns, others))
        shared = (known @ others_known.T).toarray()
        return np.asarray(0.5 * (cosines + shared), dtype=np.float32)


def similar_histories(
    hidden: Callable[[CountMatrix], NDArray[np.float32]],
    asked: CountMatrix,
    among: CountMatrix,
    n: int,
) -> list[Ranked]:
    """Find the n histories of `among` most like each of `asked`, by cosines of hidden layers.

    Both are counts, (n_asked, n_items) and (n_users, n_items). `hidden` computes hidden layers.

    Returns:
        For each of `asked`, rows of `among` and similarities, best first.
    """
    directions = _unit(hidden(asked))  # (n_asked, n_hidden)
    nobody = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
    best: list[list[Ranked]] = [[nobody] for _ in directions]
    for rows in blocks(among.shape[0], sum(directions.shape)):
        similarity = directions @ _unit(hidden(among[rows])).T  # (n_asked, n_rows)
        for found, scores, top in zip(best, similarity, top_items(similarity, n), strict=True):
            found.append((top + rows.start, scores[top]))
    ranked = []
    for found in best:
        users, scores = map(np.concatenate, zip(*found, strict=True))
        (top,) = top_items(scores[None], n)
        ranked.append((users[top], np.clip(scores[top], -1.0, 1.0)))
    return ranked


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row of zeros stays."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / _above_zero(norms), dtype=np.float32)


def _unit_rows(rows: csr_array) -> csr_array:
    """Sparse rows scaled to length 1; a row of zeros stays."""
    norms = _above_zero(np.sqrt(rows.multiply(rows).sum(axis=1)))  # (n_rows,)
    scaled = rows.data / np.repeat(norms, np.diff(rows.indptr))
    return csr_array((scaled, rows.indices, rows.indptr), shape=rows.shape)


def _above_zero(norms: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(norms > 0, norms, np.float32(1.0))
