"""What CF-NADE's default has beside its network: a factorisation and the direct path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.baselines.imf import IMF
from cfnade.baselines.support import Iterative
from cfnade.beyond.direct import NeighbourRegression
from cfnade.checks import check_at_least
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings
from cfnade.model.inference import direct_path, direct_weight

_SPREAD_USERS = 200  # whose scores of the factorisation are scaled to a spread of 1


def neighbour_weights(counts: CountMatrix, n_threads: int | None = None) -> csr_array:
    """B of the direct path as a default fit has it, (n_items, n_items)."""
    counts = as_count_matrix(counts)
    plan = FitPlan.of(counts, FitSettings())
    l2 = plan.readout.or_usual().direct_l2
    if plan.direct is None or l2 is None:  # too many items
        return csr_array((counts.shape[1], counts.shape[1]), dtype=np.float32)
    regression = NeighbourRegression(
        counts, plan.direct.n_candidates, plan.direct.max_users, n_threads
    )
    return direct_weight(*regression.neighbours(l2, regression.n_candidates))


@dataclass(eq=False)
class WithoutNetwork(Iterative):
    """Scores `x_u . y_i + direct_gain * x B`: IMF, which CF-NADE starts from, and its direct path.

    It shows how much of CF-NADE's accuracy needs no network. IMF's scores are scaled to a spread
    of 1. With `direct_gain=0` it ranks as IMF does.

    Args:
        factors: As for `IMF`, like the four below.
        alpha: Rate of confidence.
        regularization: L2 penalty, above 0.
        iterations: Alternations between users and items.
        relative_rating: A fitted one to use; None fits one on the training counts.
        random_state: Seed of the first factors.
        n_threads: None uses all available ones.
        direct_gain: Strength of the direct path.
        neighbours: B, (n_items, n_items), if it is known; None finds it.

    Attributes:
        imf_: The fitted factorisation.
        neighbours_: B in use.
    """

    factors: int = 256
    alpha: float = 30.0
    regularization: float = 100.0
    iterations: int = 15
    relative_rating: RelativeRating | None = None
    random_state: int = 0
    n_threads: int | None = None
    direct_gain: float = 8.0
    neighbours: csr_array | None = field(default=None, repr=False)
    imf_: IMF = field(init=False, repr=False)
    neighbours_: csr_array = field(init=False, repr=False)
    _spread: float = field(init=False, repr=False)

    @property
    def relative_rating_(self) -> RelativeRating:
        """That of the factorisation."""
        return self.imf_.relative_rating_

    @relative_rating_.setter
    def relative_rating_(self, ratings: RelativeRating) -> None:
        self.imf_ = copy(self.imf_)  # copies of this model share it
        self.imf_.relative_rating_ = ratings

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations; see `Iterative`."""
        check_at_least(0, direct_gain=self.direct_gain)
        counts = as_count_matrix(counts)
        neighbours = self.neighbours
        if neighbours is None:
            neighbours = neighbour_weights(counts, self.n_threads)
        imf = IMF(
            self.factors,
            self.alpha,
            self.regularization,
            relative_rating=self.relative_rating,
            random_state=self.random_state,
            n_threads=self.n_threads,
        )
        some = counts[:: max(1, counts.shape[0] // _SPREAD_USERS)]
        for fitted in imf.fits(counts, iterations):
            spread = max(float(fitted.scores(some).std(axis=1).mean()), 1e-9)
            learned = {"imf_": fitted, "neighbours_": neighbours, "_spread": spread}
            yield self.copy_at(fitted.iterations, **learned)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        scores = self.imf_.scores(histories) / np.float32(self._spread)
        direct = direct_path(as_count_matrix(histories), self.neighbours_)
        return np.asarray(scores + np.float32(self.direct_gain) * direct, dtype=np.float32)
