"""How each baseline is tuned: the settings that matter, where the search starts and may go.

All of them are walked along by the same search as IMF, EASE and CF-NADE, with as many trials. The
grids are wide enough that the best value is seldom at an end, and starts are where the methods'
own papers, or ml-1m and lastfm-2k, would have them. Iterations are judged along one fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from cfnade.baselines import (
    BPR,
    EDLAE,
    IALS,
    SLIM,
    ItemKNN,
    LogisticMF,
    LRec,
    MultinomialDAE,
)
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.metrics.search import OnTrial, Search, Trial, Validation, coordinate_search
from cfnade.scorer import Scorer

_NO_BETTER = 2
"""Stops without a better MPR after which a fit is not followed further."""


WEAK_START = {"strength": 3.0}
"""Of IMF and iALS for few users, whom what suits thousands makes all alike: the search begins there
if it is better."""


class Stopped(Scorer, Protocol):
    """A model at some iteration of its fit."""

    iterations: int


def best_stop(fits: Iterable[Stopped], settings: dict[str, Any], validation: Validation) -> Trial:
    """Follow a fit as long as its MPR gets better.

    Args:
        fits: The model at each stop.
        settings: It was made with.
        validation: To judge on.

    Returns:
        The best stop, its iterations among the settings, with all stops beside it.
    """
    stops: list[Trial] = []
    n_since_best = 0
    for fitted in fits:
        stops.append(validation.trial({**settings, "iterations": fitted.iterations}, fitted))
        best = min(stops, key=lambda trial: trial.cost)
        n_since_best = 0 if best is stops[-1] else n_since_best + 1
        if n_since_best >= _NO_BETTER:
            break
    return replace(best, stops=tuple(stops))


@dataclass(frozen=True)
class GridContender:
    """A baseline that is made from settings, searched along a grid."""

    make: Callable[..., Any]
    """Gives an unfitted model from settings."""

    start: Mapping[str, Any]
    """First settings."""

    grid: Mapping[str, Sequence[Any]]
    """Values of each setting in order; those walked along first come first."""

    stops: Sequence[int] = ()
    """Iterations at which each fit is judged on its way; none for models without any."""

    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not searched, such as the seed."""

    uses_ratings: bool = False
    """Whether it weighs counts, and so takes `relative_rating`."""

    other_starts: Sequence[Mapping[str, Any]] = ()
    """Changes to `start` that are tried as well; the walk begins at the best."""

    translate: Callable[[dict[str, Any], CountMatrix], dict[str, Any]] | None = None
    """Turns what is walked along into what the model takes, given the counts to fit on."""

    def search(
        self, validation: Validation, *, max_trials: int, on_trial: OnTrial | None = None
    ) -> Search:
        """Choose the settings in the grid and, along each fit, the iterations."""

        def attempt(settings: dict[str, Any]) -> Trial:
            if self.translate is not None:
                settings = self.translate(settings, validation.train)
            model = self._model(settings, validation.relative_rating)
            if not self.stops:
                return validation.trial(settings, model.fit(validation.train))
            return best_stop(model.fits(validation.train, self.stops), settings, validation)

        return coordinate_search(
            attempt,
            self.start,
            self.grid,
            max_trials=max_trials,
            on_trial=on_trial,
            other_starts=self.other_starts,
        )

    def fit(
        self, known: CountMatrix, settings: dict[str, Any], relative_rating: RelativeRating | None
    ) -> Scorer:
        """Fit on everything that may be known."""
        fitted: Scorer = self._model(settings, relative_rating).fit(known)
        return fitted

    def _model(self, settings: dict[str, Any], relative_rating: RelativeRating | None) -> Any:
        ratings = {"relative_rating": relative_rating} if self.uses_ratings else {}
        return self.make(**self.fixed, **settings, **ratings)


def ials(seed: int) -> GridContender:
    """IALS: penalty, weight of the unobserved, power of frequency, weights, factors.

    The best penalty depends on the other settings as IMF's does on alpha: what is walked along is
    `strength`, in the same units as IMF's, see `ials_regularization`.
    """
    return GridContender(
        IALS,
        {"factors": 128, "alpha0": 0.03, "strength": 14.0, "nu": 1.0, "weigh_counts": True},
        {
            "strength": (3.0, 5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 60.0, 90.0, 130.0, 200.0),
            "alpha0": (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0),
            "nu": (0.0, 0.5, 1.0),
            "weigh_counts": (False, True),
            "factors": (32, 64, 128, 256, 512),
        },
        translate=ials_regularization,
        stops=(2, 4, 8, 12, 20, 30, 50),
        other_starts=(WEAK_START,),
        fixed={"random_state": seed},
        uses_ratings=True,
    )


def ials_regularization(settings: dict[str, Any], counts: CountMatrix) -> dict[str, Any]:
    """What iALS takes, in place of the strength.

    Such that the mean penalty of a factor is `strength * sqrt(alpha0)`: with `nu=0` and
    `alpha0 = 1 / alpha`, it is IMF's regularisation of `strength * sqrt(alpha)`, divided by alpha
    as the whole loss is. So the strength means the same whatever nu and alpha0 are (Rendle
    et al. 2021 scale theirs to the like end).
    """
    alpha0, nu = settings["alpha0"], settings["nu"]
    n_users, n_items = counts.shape
    of_users = np.diff(counts.indptr) + alpha0 * n_items
    of_items = np.bincount(counts.indices, minlength=n_items) + alpha0 * n_users
    mean = float(np.mean(np.concatenate([of_users, of_items]) ** nu))
    others = {name: value for name, value in settings.items() if name != "strength"}
    penalty = settings["strength"] * math.sqrt(alpha0) / mean
    return {**others, "regularization": float(f"{penalty:.4g}")}


def edlae(seed: int) -> GridContender:
    """EDLAE: the two parts of its penalty."""
    return GridContender(
        EDLAE,
        {"regularization": 300.0, "dropout": 0.5},
        {
            "regularization": (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4),
            "dropout": (0.0, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.98),
        },
    )


def slim(seed: int) -> GridContender:
    """SLIM: its two penalties."""
    return GridContender(
        SLIM,
        {"l1": 1.0, "l2": 100.0},
        {
            "l2": (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3),
            "l1": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        },
    )


def lrec(seed: int) -> GridContender:
    """LRec: its penalty and its loss.

    The curvature of the logistic loss is about the share of likes times that of the squared one,
    so its penalty is that share of the strength that is walked along.
    """

    def with_regularization(settings: dict[str, Any], counts: CountMatrix) -> dict[str, Any]:
        strength = settings["strength"]
        if settings["loss"] == "logistic":
            strength *= counts.nnz / (counts.shape[0] * counts.shape[1])
        return {"regularization": float(f"{strength:.4g}"), "loss": settings["loss"]}

    return GridContender(
        LRec,
        {"strength": 300.0, "loss": "squared"},
        {
            "strength": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4),
            "loss": ("squared", "logistic"),
        },
        translate=with_regularization,
    )


def item_knn(seed: int) -> GridContender:
    """Item kNN: the kind of similarity, how many neighbours, whether counts weigh."""
    return GridContender(
        ItemKNN,
        {"neighbours": 200, "similarity": "cosine", "weigh_counts": False},
        {
            "similarity": ("bm25", "cosine", "tfidf"),
            "neighbours": (20, 50, 100, 200, 500, 1000, 2000),
            "weigh_counts": (False, True),
        },
        uses_ratings=True,
    )


def logistic_mf(seed: int) -> GridContender:
    """Logistic MF: penalty, weight of the observed, factors."""
    return GridContender(
        LogisticMF,
        {"factors": 64, "alpha": 3.0, "regularization": 3.0},
        {
            "regularization": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
            "alpha": (0.3, 1.0, 3.0, 10.0, 30.0),
            "factors": (16, 32, 64, 128, 256),
        },
        stops=(5, 10, 20, 40, 80),
        fixed={"random_state": seed},
        uses_ratings=True,
    )


def bpr(seed: int) -> GridContender:
    """BPR: step size, penalty, factors."""
    return GridContender(
        BPR,
        {"factors": 64, "learning_rate": 0.05, "regularization": 0.01},
        {
            "regularization": (1e-3, 3e-3, 0.01, 0.03, 0.1),
            "learning_rate": (0.01, 0.02, 0.05, 0.1, 0.2),
            "factors": (16, 32, 64, 128),
        },
        stops=(5, 10, 20, 40, 80, 160),
        fixed={"random_state": seed},
    )


def multinomial_dae(seed: int) -> GridContender:
    """Mult-DAE: width, dropout, weight decay."""
    return GridContender(
        MultinomialDAE,
        {"n_hidden": 200, "dropout": 0.5, "weight_decay": 0.0},
        {
            "dropout": (0.2, 0.35, 0.5, 0.65, 0.8),
            "n_hidden": (50, 100, 200, 400),
            "weight_decay": (0.0, 1e-5, 1e-4, 1e-3),
        },
        stops=(5, 10, 15, 20, 30, 40, 60, 80, 120),
        fixed={"random_state": seed},
    )


BASELINES: dict[str, Callable[[int], GridContender]] = {
    "ials": ials,
    "edlae": edlae,
    "slim": slim,
    "lrec": lrec,
    "knn": item_knn,
    "logistic-mf": logistic_mf,
    "bpr": bpr,
    "mult-dae": multinomial_dae,
}
"""By the name used in commands; each takes a seed."""
