"""iALS with frequency-scaled regularisation (Rendle et al. 2021), by `irspack`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cfnade.baselines.support import Iterative, checked_histories, library, rated_or_one, stretches
from cfnade.checks import check_above_zero, check_at_least, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import TrainingError
from cfnade.threads import available_threads

_FIRST_SPREAD = 0.1  # of the first factors, over the root of their number, as Rendle et al.


@dataclass(eq=False)
class IALS(Iterative):
    """Scores `x_u . y_i`, each factor regularised by how much data it has.

    The loss ("Revisiting the Performance of iALS on Item Recommendation Benchmarks") is

    `sum_observed w (1 - x_u . y_i)^2 + alpha0 sum_all (x_u . y_i)^2
    + regularization * (sum_u (n_u + alpha0 n_items)^nu |x_u|^2
    + sum_i (n_i + alpha0 n_users)^nu |y_i|^2)`

    with n_u, n_i the numbers of items of a user and of users of an item. The weight w is 1, or the
    relative rating with `weigh_counts`. `alpha0` plays the role of IMF's 1 / alpha. With `nu=1` a
    factor's penalty grows with its data, so frequent and rare items are smoothed alike; with 0 it
    is IMF's.

    Training uses conjugate gradients (3 steps); scoring solves each user's problem exactly, given
    the item factors. An empty history scores 0 for every item. The same `random_state` gives the
    same factors on any number of threads, up to rounding.

    Args:
        factors: Length of the factors.
        alpha0: Weight of every pair, observed or not, above 0.
        regularization: L2 penalty, above 0.
        nu: Power of the frequency in the penalty, 0 to 1.
        weigh_counts: Weigh an observed pair by its relative rating, not by 1.
        iterations: Alternations between users and items.
        relative_rating: A fitted one to use; None fits one on the training counts.
        random_state: Seed of the first factors.
        n_threads: For `irspack`; None uses all available ones.

    Attributes:
        relative_rating_: The one in use.
        item_factors_: (n_items, factors).
    """

    factors: int = 128
    alpha0: float = 0.1
    regularization: float = 0.01
    nu: float = 1.0
    weigh_counts: bool = False
    iterations: int = 12
    relative_rating: RelativeRating | None = None
    random_state: int = 0
    n_threads: int | None = None
    relative_rating_: RelativeRating = field(init=False, repr=False)
    item_factors_: NDArray[np.float32] = field(init=False, repr=False)

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations; see `Iterative`."""
        check_whole("factors", self.factors, 1)
        check_above_zero(alpha0=self.alpha0, regularization=self.regularization)
        check_at_least(0, nu=self.nu)
        counts = as_count_matrix(counts)
        relative_rating = self.relative_rating or RelativeRating().fit(counts)
        weights = rated_or_one(counts, relative_rating, weigh_counts=self.weigh_counts)
        ials = self._irspack(weights, "CG")
        for stop, n_more in stretches(iterations):
            with threadpool_limits(1, "blas"):  # irspack itself runs rows in parallel
                for _ in range(n_more):
                    ials.run_epoch()
            factors = np.array(ials.get_item_embedding(), dtype=np.float32)
            if not np.isfinite(factors).all():
                raise TrainingError(
                    f"iALS with {self.factors} factors ended in NaN; raise the regularization "
                    f"(now {self.regularization:g})"
                )
            yield self.copy_at(stop, relative_rating_=relative_rating, item_factors_=factors)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        items = self.item_factors_
        histories = checked_histories(histories, len(items))
        if histories.shape[0] == 0:
            return np.zeros(histories.shape, dtype=np.float32)
        weights = rated_or_one(histories, self.relative_rating_, weigh_counts=self.weigh_counts)
        ials = self._irspack(weights, "CHOLESKY")
        ials.trainer.core_trainer.item = items
        with threadpool_limits(1, "blas"):
            users = ials.compute_user_embedding(weights)
        return np.asarray(users @ items.T, dtype=np.float32)

    def _irspack(self, weights: Any, solver: str) -> Any:
        """Irspack's model: `CG` takes 3 steps of conjugate gradients, `CHOLESKY` is exact."""
        ials = library("irspack.recommenders.ials", "the iALS baseline").IALSRecommender(
            weights,
            n_components=self.factors,
            alpha0=self.alpha0,
            reg=self.regularization,
            nu=self.nu,
            init_std=_FIRST_SPREAD,
            solver_type=solver,
            max_cg_steps=3,
            random_seed=self.random_state,
            n_threads=self.n_threads or available_threads(),
        )
        ials.start_learning()
        return ials
