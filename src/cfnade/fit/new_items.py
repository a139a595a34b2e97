"""Rows for items that a network has not seen: where their training starts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from cfnade.beyond.closed_form import likes_of
from cfnade.data.feedback import popularity_logit

START_NEIGHBOURS = 20
"""Known items most often found with a new one whose rows it starts from."""

_ROWS = 512  # new items whose co-occurrences are looked at at once


def with_new_items(
    weights: Mapping[str, NDArray[np.float32]], ratings: csr_array
) -> dict[str, NDArray[np.float32]]:
    """Add rows for new items, from which training starts.

    A new item starts where the known items stand that its watchers have most: its rows of W and
    V are the mean of theirs, weighted by the cosine of their watchers, and its bias theirs,
    moved by how much more watched it is. One without such items starts with zeros and the logit
    of its share of watchers. Rows of A are zeros: what is known answers as before.

    Args:
        weights: Of the known items, by name.
        ratings: With a stored value for each like of known and new items, (n_users, n_items).

    Returns:
        Weights of all items, by name.
    """
    W, V, d = weights["like_weight"], weights["output_weight"], weights["output_bias"]
    n_known, n_new = len(d), ratings.shape[1] - len(d)
    if n_new == 0:
        return dict(weights)
    near = _nearest_known(ratings, n_known)  # (n_new, n_known)
    popularity = popularity_logit(ratings)
    new = {
        "like_weight": near @ W,
        "dislike_weight": np.zeros((n_new, W.shape[1]), dtype=np.float32),
        "output_weight": near @ V,
        "output_bias": popularity[n_known:] + near @ (d - popularity[:n_known]),
    }
    return {**weights, **{n: np.concatenate([weights[n], rows]) for n, rows in new.items()}}


def _nearest_known(ratings: csr_array, n_known: int) -> csr_array:
    """Share of each known item in the start of each new one, sparse, (n_new, n_known)."""
    likes = likes_of(ratings)
    known, new = likes[:, :n_known], likes[:, n_known:].T.tocsr()
    norm = np.sqrt(np.maximum(np.bincount(known.indices, minlength=n_known), 1))
    blocks = []
    for start in range(0, new.shape[0], _ROWS):
        together = (new[start : start + _ROWS] @ known).tocsr()  # how many watchers two share
        together.data /= norm[together.indices]
        for row in range(together.shape[0]):
            cosine = together.data[together.indptr[row] : together.indptr[row + 1]]
            if cosine.size > START_NEIGHBOURS:
                cosine[np.argpartition(cosine, -START_NEIGHBOURS)[:-START_NEIGHBOURS]] = 0.0
            cosine /= max(cosine.sum(), np.finfo(np.float32).tiny)
        together.eliminate_zeros()
        blocks.append(together)
    return csr_array(vstack(blocks, format="csr", dtype=np.float32))
