"""What lists of recommendations are like apart from accuracy: coverage, novelty, diversity.

None of these sees a model's own vectors: items are compared by who has them in the training data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.checks import check_whole
from cfnade.data.interactions import CountMatrix
from cfnade.errors import DataError
from cfnade.metrics.formulas import Candidates
from cfnade.scorer import Scorer, blocks

N_LISTED = 20
"""Items of a list, by default."""


@dataclass(frozen=True)
class ListQuality:
    """Figures of the lists of many users; each higher is more, none is better by itself."""

    n: int
    """Most items of a list."""
    coverage: float
    """Share of the catalogue that is in anybody's list."""
    gini: float
    """How unequally often items are listed: 0 if all equally, near 1 if few make up all lists."""
    novelty: float
    """Mean self-information of the listed items in bits: 3 if an eighth of the users has one."""
    diversity: float
    """Mean dissimilarity of two items of a list, 1 minus their cosine of co-occurrence."""


def judge_lists(lists: csr_array, known: CountMatrix, n: int) -> ListQuality:
    """All figures of some lists.

    Args:
        lists: A stored value for each listed item, (n_lists, n_items).
        known: Counts of the training data, (n_users, n_items).
        n: Most items of a list, for the record.
    """
    if lists.shape[1] != known.shape[1]:
        raise DataError(
            f"lists are of {lists.shape[1]} items, the training data of {known.shape[1]}; both "
            "need the same items in the same order"
        )
    n_listed = np.bincount(lists.indices, minlength=lists.shape[1])
    return ListQuality(
        n, coverage(n_listed), gini(n_listed), novelty(lists, known), diversity(lists, known)
    )


def top_lists(
    scorer: Scorer,
    histories: CountMatrix,
    n: int = N_LISTED,
    *,
    candidates: Candidates = "unseen",
    exclude: CountMatrix | None = None,
) -> csr_array:
    """The n best items of each history, scored in blocks; a stored 1 for each, (n_users, n_items).

    Arguments are those of `evaluate`. Of equal scores at the end of a list, any may be in it.
    """
    check_whole("the number of items", n, 1)
    n_users, n_items = histories.shape
    rows, columns = [], []
    for block in blocks(n_users, n_items):
        known = histories[block]
        scores = np.array(scorer.scores(known), dtype=np.float64)  # (n_block, n_items), a copy
        if candidates == "unseen":
            left_out = known if exclude is None else exclude[block]
            row = np.repeat(np.arange(left_out.shape[0]), np.diff(left_out.indptr))
            scores[row, left_out.indices] = -np.inf
        place = max(n_items - n, 0)
        best = np.argpartition(scores, place, axis=1)[:, place:]
        row, at = np.nonzero(np.take_along_axis(scores, best, axis=1) > -np.inf)
        rows.append(row + block.start)
        columns.append(best[row, at])
    row, column = np.concatenate(rows), np.concatenate(columns)
    return csr_array((np.ones(row.size), (row, column)), shape=histories.shape)


def coverage(n_listed: NDArray[np.integer]) -> float:
    """Share of the items that are listed at least once, from how often each is, (n_items,)."""
    return float(np.count_nonzero(n_listed) / n_listed.size)


def gini(n_listed: NDArray[np.integer]) -> float:
    """Gini coefficient of how often each item is listed, (n_items,).

    With the items in ascending order, x_1 <= ... <= x_n, it is
    `sum over k of (2 k - n - 1) x_k / (n sum of x)`.
    """
    x, n = np.sort(n_listed), n_listed.size
    return float(((2 * np.arange(1, n + 1) - n - 1) @ x) / (n * max(x.sum(), 1)))


def novelty(lists: csr_array, known: CountMatrix) -> float:
    """Mean self-information of the items of a list, averaged over lists, in bits.

    An item that u of U users have has `log2(U / u)`; one that nobody has counts as one user's.
    Users without any item do not count. Empty lists are left out. Arguments as for `judge_lists`.
    """
    n_users = np.count_nonzero(np.diff(known.indptr))
    n_watchers = np.bincount(known.indices, minlength=known.shape[1])
    information = np.log2(n_users / np.maximum(n_watchers, 1))
    lengths = np.diff(lists.indptr)
    total = np.bincount(_list_of(lists), information[lists.indices], minlength=lengths.size)
    return _mean(total[lengths > 0] / lengths[lengths > 0])


def diversity(lists: csr_array, known: CountMatrix) -> float:
    """Mean dissimilarity of two different items of a list, averaged over lists of two and more.

    Items i and j that u_i and u_j users have, u_ij of them both, have the cosine
    `u_ij / sqrt(u_i u_j)`, or 0 if nobody has one of them; their dissimilarity is 1 minus that.
    Over a list of n items, all n^2 cosines add up to the squared length of the sum of the items'
    unit vectors, which takes one product instead of n^2. Arguments as for `judge_lists`.
    """
    lists = lists[np.diff(lists.indptr) > 1]
    n_watchers = np.bincount(known.indices, minlength=known.shape[1])
    unit = csr_array(
        (1.0 / np.sqrt(n_watchers[known.indices]), known.indices, known.indptr), known.shape
    ).T.tocsr()  # (n_items, n_users): each row has length 1, or 0 for an item that nobody has
    means = []
    for rows in blocks(lists.shape[0], known.shape[0]):
        part = lists[rows]
        n = np.diff(part.indptr)
        sums = part @ unit  # (n_lists, n_users)
        squares = np.bincount(_list_of(sums), sums.data**2, minlength=n.size)
        with_itself = np.bincount(_list_of(part), n_watchers[part.indices] > 0, minlength=n.size)
        means.append(1.0 - (squares - with_itself) / (n * (n - 1)))
    return _mean(np.concatenate([np.empty(0), *means]))


def _list_of(lists: csr_array) -> NDArray[np.int64]:
    """The row of each stored value."""
    return np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))


def _mean(values: NDArray[np.float64]) -> float:
    """0 of nothing."""
    return float(values.mean()) if values.size else 0.0
