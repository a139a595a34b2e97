"""Items that are alike by what is known about them: weighted features and nearest items.

A feature weighs by how rare it is (the logarithm of items over items with it). A column of the
table weighs by how rare its values are, not by how many an item has: ten tags count as one brand
of the same rarity.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, vstack

from cfnade.data.item_features import ItemFeatures
from cfnade.threads import available_threads

_ROWS = 256  # items compared with all others at once
_MOST_PRODUCTS = 1_000_000_000  # in a comparison of all items: some ten seconds


def weighted_rows(features: ItemFeatures, columns: Mapping[str, float]) -> csr_array:
    """Features as rows of length 1, float32, (n_items, n_features); zeros if nothing is known.

    Features of a single item, or of all items, say nothing about others and get no weight.
    `columns` has weights of columns; others weigh 1.
    """
    rows = csr_array(features.matrix, dtype=np.float32, copy=True)
    n_items, n_features = rows.shape
    n_with = np.bincount(rows.indices, minlength=n_features)
    is_used = (n_with > 1) & (n_with < n_items)
    rarity = np.where(is_used, np.log(n_items / np.maximum(n_with, 1)), 0.0)
    rarity *= np.array([columns.get(name, 1.0) for name in features.columns])[features.column]
    rows.data *= rarity[rows.indices].astype(np.float32)
    rows.eliminate_zeros()
    item = np.repeat(np.arange(n_items), np.diff(rows.indptr))
    group = item * len(features.columns) + features.column[rows.indices]  # item and column
    _, group, size = np.unique(group, return_inverse=True, return_counts=True)
    rows.data /= np.sqrt(size[group]).astype(np.float32)
    length = np.sqrt(np.bincount(item, rows.data.astype(np.float64) ** 2, minlength=n_items))
    rows.data /= length[item].astype(np.float32)
    return rows


def nearest(
    rows: csr_array,
    asked: NDArray[np.integer],
    is_known: NDArray[np.bool_],
    n: int,
    n_threads: int | None = None,
) -> csr_array:
    """The items most like each asked one, with their cosines.

    Args:
        rows: From `weighted_rows`, (n_items, n_features).
        asked: Items, (n_asked,).
        is_known: Items that may be found, (n_items,).
        n: Most items for each.
        n_threads: None takes all.

    Returns:
        Cosines above 0, sparse, (n_asked, n_items); never of an item with itself.
    """
    known = csr_array(diags_array(is_known.astype(np.float32)) @ rows)
    known.eliminate_zeros()
    by_feature = _without_the_most_common(rows, known).T.tocsr()

    def find(start: int) -> csr_array:
        some = asked[start : start + _ROWS]
        cosines = csr_array(rows[some] @ by_feature)
        for row, item in enumerate(some.tolist()):
            part = slice(cosines.indptr[row], cosines.indptr[row + 1])
            values = cosines.data[part]
            values[cosines.indices[part] == item] = 0.0
            if values.size > n:
                values[np.argpartition(values, -n)[:-n]] = 0.0
        cosines.eliminate_zeros()
        return cosines

    starts = range(0, len(asked), _ROWS)
    with ThreadPoolExecutor(n_threads or available_threads()) as threads:
        found = list(threads.map(find, starts))
    if not found:
        return csr_array((0, rows.shape[0]), dtype=np.float32)
    return csr_array(vstack(found, format="csr", dtype=np.float32))


def _without_the_most_common(rows: csr_array, known: csr_array) -> csr_array:
    """Leave out features that most items share, if comparing them would take too long.

    Two items that share such a feature alone are hardly alike.
    """
    n_features = rows.shape[1]
    n_rows, n_known = (np.bincount(x.indices, minlength=n_features) for x in (rows, known))
    products = n_rows.astype(np.float64) * n_known
    order = np.argsort(products)
    is_kept = np.zeros(n_features, dtype=np.bool_)
    is_kept[order[np.cumsum(products[order]) <= _MOST_PRODUCTS]] = True
    if is_kept.all():
        return known
    kept = known.copy()
    kept.data[~is_kept[kept.indices]] = 0.0
    kept.eliminate_zeros()
    return kept
