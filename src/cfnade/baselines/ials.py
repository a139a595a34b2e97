"""iALS with frequency-scaled regularisation: IMF as it should be tuned (Rendle et al. 2021).

A thin layer over the solver of `irspack`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cfnade.baselines._checks import check_above_zero, check_at_least, check_stops
from cfnade.baselines._histories import checked_histories, plain_csr
from cfnade.baselines._irspack import irspack_module
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import TrainingError
from cfnade.threads import available_threads

_FIRST_SPREAD = 0.1  # of the first factors, over the root of their number, as Rendle et al.


class IALS:
    """Scores `x_u . y_i`, each factor regularised by how much it was seen.

    The loss ("Revisiting the Performance of iALS on Item Recommendation Benchmarks") is

    `sum_observed w (1 - x_u . y_i)^2 + alpha0 sum_all (x_u . y_i)^2
    + regularization * (sum_u (n_u + alpha0 n_items)^nu |x_u|^2
    + sum_i (n_i + alpha0 n_users)^nu |y_i|^2)`

    with n_u, n_i the numbers of items of a user and of users of an item. The weight w is 1, or the
    relative rating with `weigh_counts`. Beyond how IMF weighs pairs (`alpha0` is about 1 / alpha)
    what is new is the power nu: with 1 a factor's penalty grows with its data, so that frequent
    and rare items are smoothed alike; with 0 it is IMF's.

    Training uses conjugate gradients (3 steps); scoring solves each user's problem exactly, given
    the item factors, so that known and new users are treated alike. An empty history scores 0
    for every item. The same `random_state` gives the same factors on any number of threads, up
    to rounding: threads add up in whatever order they come.

    Args:
        factors: Length of the factors.
        alpha0: Weight of every pair, observed or not, above 0.
        regularization: Strength of the L2 penalty, above 0.
        nu: Power of the frequency in the penalty, 0 ... 1.
        weigh_counts: Weigh an observed pair by its relative rating, not by 1.
        iterations: Alternations between users and items.
        relative_rating: A fitted one to use as it is; None fits one on the training counts.
        random_state: Seed of the first factors.
        n_threads: For `irspack`; None takes what is available.

    Attributes:
        relative_rating_: The one in use.
        item_factors_: (n_items, factors).
    """

    relative_rating_: RelativeRating
    item_factors_: NDArray[np.float32]

    def __init__(
        self,
        factors: int = 128,
        alpha0: float = 0.1,
        regularization: float = 0.01,
        nu: float = 1.0,
        weigh_counts: bool = False,
        iterations: int = 12,
        relative_rating: RelativeRating | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        self.factors = factors
        self.alpha0 = alpha0
        self.regularization = regularization
        self.nu = nu
        self.weigh_counts = weigh_counts
        self.iterations = iterations
        self.relative_rating = relative_rating
        self.random_state = random_state
        self.n_threads = n_threads

    def fit(self, counts: CountMatrix) -> IALS:
        """Learn the item factors.

        Args:
            counts: Sparse, (n_users, n_items).

        Returns:
            Itself.

        Raises:
            ConfigError: If a setting has no meaning.
            MissingExtraError: If `irspack` is not installed.
            TrainingError: If the factors are not finite.
        """
        for fitted in self.fits(counts, [self.iterations]):
            self.__dict__.update(fitted.__dict__)
        return self

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[IALS]:
        """Fit once and stop at several iterations on the way: tuning them costs one fit.

        Args:
            counts: Sparse, (n_users, n_items).
            iterations: Where to stop, ascending; replaces the one of the constructor.

        Yields:
            A fitted model of its own for each stop, equal to one fitted for as long.

        Raises:
            ConfigError, MissingExtraError, TrainingError: As in `fit`.
        """
        check_at_least("iALS", 1, factors=self.factors)
        check_above_zero("iALS", alpha0=self.alpha0, regularization=self.regularization)
        check_at_least("iALS", 0, nu=self.nu)
        check_stops(iterations)
        counts = as_count_matrix(counts)
        relative_rating = self.relative_rating
        if relative_rating is None:
            relative_rating = RelativeRating().fit(counts)
        trainer = self._trainer(self._weights(counts, relative_rating))
        done = 0
        for stop in iterations:
            with threadpool_limits(1, "blas"):  # irspack itself runs rows in parallel
                for _ in range(stop - done):
                    trainer.run_epoch()
            done = stop
            fitted = copy.copy(self)
            fitted.iterations = stop
            fitted.relative_rating_ = relative_rating
            fitted.item_factors_ = np.array(trainer.core_trainer.item, dtype=np.float32)
            if not np.isfinite(fitted.item_factors_).all():
                raise TrainingError(
                    f"iALS with {self.factors} factors ended in NaN; raise the regularization "
                    f"(now {self.regularization:g})"
                )
            yield fitted

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        items = self.item_factors_
        histories = checked_histories(histories, len(items))
        weights = self._weights(histories, self.relative_rating_)
        if histories.shape[0] == 0:
            return np.zeros(histories.shape, dtype=np.float32)
        trainer = self._trainer(weights)
        trainer.core_trainer.item = items
        with threadpool_limits(1, "blas"):
            users = trainer.transform_user(weights)
        return np.asarray(users @ items.T, dtype=np.float32)

    def _weights(self, counts: CountMatrix, relative_rating: RelativeRating) -> Any:
        """The weight w of each observed pair."""
        ratings = relative_rating.transform(counts)
        return plain_csr(ratings, ratings.data if self.weigh_counts else 1.0)

    def _trainer(self, weights: Any) -> Any:
        """Irspack's trainer: conjugate gradients in training, exact when it scores."""
        ials = irspack_module("recommenders.ials", "the iALS baseline")
        n_threads = available_threads() if self.n_threads is None else self.n_threads
        trainer = ials.IALSTrainer(
            weights,
            n_components=self.factors,
            alpha0=self.alpha0,
            reg=self.regularization,
            nu=self.nu,
            init_std=_FIRST_SPREAD,
            solver_type=ials.SolverType.CG,
            max_cg_steps=3,
            ialspp_subspace_dimension=64,
            loss_type=ials.LossType.IALSPP,
            random_seed=self.random_state,
            n_threads=n_threads,
            prediction_time_max_cg_steps=3,
            prediction_time_ialspp_iteration=1,
        )
        trainer.prediction_time_solver_config = (
            ials.IALSSolverConfigBuilder()
            .set_n_threads(n_threads)
            .set_solver_type(ials.SolverType.CHOLESKY)
            .build()
        )
        return trainer
