"""One-class matrix factorisation with weighted or imputed unobserved pairs (Pan 2008, Yao 2014).

Unlike IMF, whose unobserved pairs all weigh 1 and have the value 0, their weight may depend on the
user or the item, or their value may be above 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from cfnade.baselines.support import Iterative, checked_histories, stretches
from cfnade.beyond.direct import likes_of
from cfnade.checks import check_above_zero, check_choice, check_share, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.threads import available_threads

Scheme: TypeAlias = Literal["uniform", "user", "item"]
"""How much an unobserved pair speaks against the item: the same everywhere, more for users with
many items, or more for items with few users."""

Vector: TypeAlias = NDArray[np.float32]

_ROWS = 256  # solved by one thread at a time
_FIRST_SPREAD = 0.1  # of the first factors, over the root of their number


def solve_rows(
    values: csr_array,
    others: NDArray[np.floating],
    row_weight: NDArray[np.floating],
    other_weight: NDArray[np.floating],
    penalty: NDArray[np.floating],
    *,
    weights: Vector | None = None,
    imputed: float = 0.0,
    n_threads: int | None = None,
) -> Vector:
    """The factors x of each row that minimise its squared error, given those of the others.

    `sum_known w (value - x . y)^2 + sum_unknown a b (imputed - x . y)^2 + penalty |x|^2`.

    Args:
        values: Of the known pairs; zeros may be among them, (n_rows, n_others).
        others: y, (n_others, factors); sums have their precision.
        row_weight: a, (n_rows,).
        other_weight: b, (n_others,).
        penalty: Above 0, (n_rows,).
        weights: w, in the order of `values.data`, (n_known,); None weighs all known pairs 1.
        imputed: Value of the unknown pairs.
        n_threads: None takes all.

    Returns:
        (n_rows, factors).
    """
    n_rows, (_, n_factors) = values.shape[0], others.shape
    gram = (others.T * other_weight) @ others  # of all pairs; a row takes back its known ones
    everything = imputed * (other_weight @ others)
    w = np.ones(values.nnz, dtype=np.float32) if weights is None else weights
    found = np.empty((n_rows, n_factors), dtype=np.float32)

    def solve(start: int) -> None:
        rows = range(start, min(start + _ROWS, n_rows))
        left = np.multiply.outer(row_weight[start : rows.stop], gram)  # (n, factors, factors)
        right = np.multiply.outer(row_weight[start : rows.stop], everything)
        left.reshape(len(rows), -1)[:, :: n_factors + 1] += penalty[start : rows.stop, None]
        for place, row in enumerate(rows):
            at = slice(values.indptr[row], values.indptr[row + 1])
            known = values.indices[at]
            y, unknown = others[known], row_weight[row] * other_weight[known]
            left[place] += (y.T * (w[at] - unknown)) @ y
            right[place] += (w[at] * values.data[at] - imputed * unknown) @ y
        found[start : rows.stop] = np.linalg.solve(left, right[:, :, None])[:, :, 0]

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(n_threads or available_threads()) as pool:
        for _ in pool.map(solve, range(0, n_rows, _ROWS)):
            pass
    return found


def first_factors(n_items: int, n_factors: int, seed: int) -> Vector:
    """Random factors to begin with, (n_items, n_factors)."""
    drawn = np.random.default_rng(seed).standard_normal((n_items, n_factors))
    return np.asarray(drawn * _FIRST_SPREAD / np.sqrt(n_factors), dtype=np.float32)


class _AlternatingMF(Iterative):
    """A factorisation of likes that is fitted by exact alternating least squares."""

    factors: int
    weight: float
    regularization: float
    random_state: int
    n_threads: int | None
    item_factors_: Vector

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations; see `Iterative`."""
        check_whole("factors", self.factors, 1)
        check_share(weight=self.weight)
        check_above_zero(weight=self.weight, regularization=self.regularization)
        likes = likes_of(as_count_matrix(counts))
        self._learn_weights(likes)
        liked_by, of_user, of_item = likes.T.tocsr(), self._of_users(likes), self._of_items()
        items = first_factors(likes.shape[1], self.factors, self.random_state)
        for stop, n_more in stretches(iterations):
            for _ in range(n_more):
                users = self._solve(likes, items, of_user, of_item)
                items = self._solve(liked_by, users, of_item, of_user)
            yield self.copy_at(stop, item_factors_=items)

    def scores(self, histories: CountMatrix) -> Vector:
        """Score every item for every history; see `Scorer`."""
        items = self.item_factors_
        likes = likes_of(checked_histories(histories, len(items)))
        users = self._solve(likes, items, self._of_users(likes), self._of_items())
        return np.asarray(users @ items.T)

    @abstractmethod
    def _learn_weights(self, likes: csr_array) -> None:
        """Keep what weights of unobserved pairs follow from."""

    @abstractmethod
    def _of_users(self, likes: csr_array) -> Vector:
        """What users contribute to the weights of unobserved pairs, (n_users,)."""

    @abstractmethod
    def _of_items(self) -> Vector:
        """What items contribute, (n_items,); a pair's weight is the product."""

    @abstractmethod
    def _solve(self, likes: csr_array, others: Vector, of_row: Vector, of_other: Vector) -> Vector:
        """Factors of the rows, given those of the others."""


@dataclass(eq=False)
class WeightedALS(_AlternatingMF):
    """Scores `x_u . y_i`; unobserved pairs are dislikes with a weight of their own.

    wALS of "One-Class Collaborative Filtering" (Pan et al., ICDM 2008). The loss is
    `sum_ui w (like - x_u . y_i)^2 + regularization * w (|x_u|^2 + |y_i|^2)` over all pairs, with
    w = 1 for likes. The mean of w over unobserved pairs is about `weight`; by `scheme` it is the
    same for all, grows with the number of items of the user, or falls with the number of users of
    the item (in proportion to the users without it). Counts are not used, as in the paper.

    Each step solves its least-squares problems exactly, as scoring does for any history. An empty
    history scores 0 for every item.

    Args:
        factors: Length of the factors.
        weight: Of an unobserved pair, above 0 and below 1.
        scheme: `uniform`, `user` or `item`.
        regularization: L2 penalty, above 0, in units of the weights of the row.
        iterations: Alternations between users and items.
        random_state: Seed of the first factors.
        n_threads: None uses all available ones.

    Attributes:
        item_factors_: (n_items, factors).
    """

    factors: int = 64
    weight: float = 0.03
    scheme: Scheme = "uniform"
    regularization: float = 0.01
    iterations: int = 10
    random_state: int = 0
    n_threads: int | None = None
    item_factors_: Vector = field(init=False, repr=False)
    _mean_length: float = field(init=False, repr=False)
    _missing: Vector = field(init=False, repr=False)

    def _learn_weights(self, likes: csr_array) -> None:
        check_choice("scheme", self.scheme, get_args(Scheme))
        n_users, n_items = likes.shape
        self._mean_length = max(likes.nnz / max(n_users, 1), 1e-9)
        missing = n_users - np.bincount(likes.indices, minlength=n_items)
        self._missing = (missing / max(missing.mean(), 1e-9)).astype(np.float32)

    def _of_users(self, likes: csr_array) -> Vector:
        lengths = np.diff(likes.indptr) / self._mean_length
        by_user = lengths if self.scheme == "user" else np.ones(likes.shape[0])
        return np.minimum(self.weight * by_user, 1.0).astype(np.float32)

    def _of_items(self) -> Vector:
        return self._missing if self.scheme == "item" else np.ones_like(self._missing)

    def _solve(self, likes: csr_array, others: Vector, of_row: Vector, of_other: Vector) -> Vector:
        unobserved = of_row * (of_other.sum() - likes @ of_other)
        penalty = self.regularization * (np.diff(likes.indptr) + unobserved) + 1e-9
        return solve_rows(
            likes, others, of_row, of_other, penalty.astype(np.float32), n_threads=self.n_threads
        )


@dataclass(eq=False)
class ImputedALS(_AlternatingMF):
    """Scores `x_u . y_i`; unobserved pairs have a small weight and a value above 0.

    The combination of weighting and imputation in "Dual-Regularized One-Class Collaborative
    Filtering" (Yao et al., CIKM 2014), without its regularisation by networks of users and items,
    which needs data of another kind. The loss is
    `sum_observed (1 - x_u . y_i)^2 + weight * sum_unobserved (imputed - x_u . y_i)^2
    + regularization * (sum_u |x_u|^2 + sum_i |y_i|^2)`.
    With `imputed=0` that is IMF on likes alone. Counts are not used.

    Args:
        factors: Length of the factors.
        weight: Of an unobserved pair, above 0 and below 1.
        imputed: Its value, at least 0 and below 1, the value of a like.
        regularization: L2 penalty, above 0.
        iterations: Alternations between users and items.
        random_state: Seed of the first factors.
        n_threads: None uses all available ones.

    Attributes:
        item_factors_: (n_items, factors).
    """

    factors: int = 64
    weight: float = 0.03
    imputed: float = 0.01
    regularization: float = 3.0
    iterations: int = 10
    random_state: int = 0
    n_threads: int | None = None
    item_factors_: Vector = field(init=False, repr=False)
    _n_items: int = field(init=False, repr=False)

    def _learn_weights(self, likes: csr_array) -> None:
        check_share(imputed=self.imputed)
        self._n_items = likes.shape[1]

    def _of_users(self, likes: csr_array) -> Vector:
        return np.full(likes.shape[0], self.weight, dtype=np.float32)

    def _of_items(self) -> Vector:
        return np.ones(self._n_items, dtype=np.float32)

    def _solve(self, likes: csr_array, others: Vector, of_row: Vector, of_other: Vector) -> Vector:
        penalty = np.full(likes.shape[0], self.regularization, dtype=np.float32)
        return solve_rows(
            likes,
            others,
            of_row,
            of_other,
            penalty,
            imputed=self.imputed,
            n_threads=self.n_threads,
        )
