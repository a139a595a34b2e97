"""One-class matrix factorisation with sampled negatives (Pan et al. 2008)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.baselines.support import Iterative, checked_histories, stretches
from cfnade.baselines.weighted_als import Scheme, Vector, first_factors, solve_rows
from cfnade.beyond.direct import likes_of
from cfnade.checks import check_above_zero, check_choice, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix


@dataclass(eq=False)
class SampledALS(Iterative):
    """Scores the mean of `x_u . y_i` over several factorisations, each with negatives of its own.

    sALS-ENS of "One-Class Collaborative Filtering" (Pan et al., ICDM 2008). Each member draws
    unobserved pairs, `negatives` for each like, and minimises
    `sum (like - x_u . y_i)^2 + regularization * (sum_u n_u |x_u|^2 + sum_i n_i |y_i|^2)` over likes
    and drawn pairs, n_u and n_i of them in a row. By `scheme` all pairs are as likely to be drawn,
    or those of users with many items, or those of items with few users. A pair that is drawn twice
    or liked is skipped. Counts are not used, as in the paper.

    Any history, known or new, gets the vector that minimises the same loss with the drawn pairs at
    their expected weights. An empty history scores 0 for every item.

    Args:
        factors: Length of the factors.
        negatives: Drawn pairs for each like, above 0.
        scheme: `uniform`, `user` or `item`.
        regularization: L2 penalty, above 0, times the number of pairs of the row.
        members: Factorisations.
        iterations: Alternations between users and items.
        random_state: Seed of the first factors and of the drawn pairs.
        n_threads: None uses all available ones.

    Attributes:
        item_factors_: (members, n_items, factors).
    """

    factors: int = 32
    negatives: float = 3.0
    scheme: Scheme = "user"
    regularization: float = 0.05
    members: int = 3
    iterations: int = 8
    random_state: int = 0
    n_threads: int | None = None
    item_factors_: Vector = field(init=False, repr=False)
    _per_user: float = field(init=False, repr=False)
    _of_item: Vector = field(init=False, repr=False)

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations; see `Iterative`."""
        check_whole("factors", self.factors, 1)
        check_whole("members", self.members, 1)
        check_choice("scheme", self.scheme, get_args(Scheme))
        check_above_zero(negatives=self.negatives, regularization=self.regularization)
        likes = likes_of(as_count_matrix(counts))
        n_users, n_items = likes.shape
        self._per_user, of_item = self.negatives * likes.nnz / max(n_users, 1), np.ones(n_items)
        if self.scheme == "item":
            of_item = 1.0 / np.maximum(np.bincount(likes.indices, minlength=n_items), 1)
        self._of_item = (of_item / of_item.mean()).astype(np.float32)
        seeds = np.random.SeedSequence(self.random_state).generate_state(self.members)
        drawn = [self._with_negatives(likes, int(seed)) for seed in seeds]
        turned = [pairs.T.tocsr() for pairs in drawn]
        items = [first_factors(n_items, self.factors, int(seed)) for seed in seeds]
        for stop, n_more in stretches(iterations):
            for member in range(self.members):
                for _ in range(n_more):
                    users = self._solve(drawn[member], items[member])
                    items[member] = self._solve(turned[member], users)
            yield self.copy_at(stop, item_factors_=np.stack(items))

    def scores(self, histories: CountMatrix) -> Vector:
        """Score every item for every history; see `Scorer`."""
        likes = likes_of(checked_histories(histories, self.item_factors_.shape[1]))
        n_users, n_items = likes.shape
        n_likes = np.diff(likes.indptr)
        of_user, of_item = self._expected_weights(n_likes)
        n_negatives = of_user * (of_item.sum() - likes @ of_item)
        penalty = (self.regularization * (n_likes + n_negatives) + 1e-9).astype(np.float32)
        total = np.zeros((n_users, n_items), dtype=np.float32)
        for items in self.item_factors_:
            users = solve_rows(likes, items, of_user, of_item, penalty, n_threads=self.n_threads)
            total += users @ items.T
        return np.asarray(total / len(self.item_factors_), dtype=np.float32)

    def _expected(self, n_likes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Pairs that are drawn for users with so many likes, (n_users,)."""
        if self.scheme == "user":
            return np.asarray(self.negatives * n_likes, dtype=np.float64)
        return np.full(n_likes.size, self._per_user)

    def _expected_weights(self, n_likes: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """How likely pairs of users and items are to be drawn: (n_users,) times (n_items,)."""
        of_item, n_items = self._of_item, self._of_item.size
        if self.scheme == "item":  # the same for all users
            of_user = np.ones(n_likes.size, np.float32)
            return of_user, -np.expm1(-np.float32(self._per_user / n_items) * of_item)
        return -np.expm1(-self._expected(n_likes) / n_items).astype(np.float32), of_item

    def _with_negatives(self, likes: csr_array, seed: int) -> csr_array:
        """The likes, and drawn pairs with the value 0, (n_users, n_items)."""
        rng, (n_users, n_items) = np.random.default_rng(seed), likes.shape
        n_likes = np.diff(likes.indptr)
        n_drawn = rng.poisson(self._expected(n_likes))
        drawn = np.repeat(np.arange(n_users), n_drawn) * n_items
        drawn += rng.choice(n_items, drawn.size, p=self._of_item / self._of_item.sum(dtype=float))
        liked = np.repeat(np.arange(n_users), n_likes) * n_items + likes.indices
        negative = np.setdiff1d(drawn, liked)
        pairs = np.concatenate([liked, negative])
        values = np.repeat(np.array([1, 0], np.float32), [liked.size, negative.size])
        order = np.argsort(pairs)
        users, items = np.divmod(pairs[order], n_items)
        indptr = np.concatenate([[0], np.bincount(users, minlength=n_users).cumsum()])
        return csr_array((values[order], items, indptr), shape=likes.shape)

    def _solve(self, pairs: csr_array, others: Vector) -> Vector:
        """Factors of the rows from their pairs alone."""
        n_rows, n_others = pairs.shape
        penalty = (self.regularization * np.diff(pairs.indptr) + 1e-9).astype(np.float32)
        nothing, any_other = np.zeros(n_rows, np.float32), np.ones(n_others, np.float32)
        return solve_rows(pairs, others, nothing, any_other, penalty, n_threads=self.n_threads)
