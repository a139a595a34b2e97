"""Choosing settings on validation: one search for every model, so that none is favoured."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import TrainingError
from cfnade.metrics.evaluate import evaluate
from cfnade.metrics.formulas import cost_of
from cfnade.scorer import Scorer

if TYPE_CHECKING:
    from cfnade.answer.probability import Calibrator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Validation:
    """All that settings may be chosen on. There is no test part in it, so none can leak in."""

    train: CountMatrix
    """Counts to fit on, (n_users, n_items)."""

    held_out: CountMatrix
    """Counts to judge on, (n_users, n_items)."""

    relative_rating: RelativeRating | None = None
    """Fitted distributions that every model must use; None lets each fit them on `train`."""

    def mpr(self, scorer: Scorer) -> float:
        """MPR of a model fitted on `train`, in percent."""
        return self.metrics(scorer, ("mpr",))["mpr"]

    def metrics(
        self, scorer: Scorer, names: Sequence[str] = ("mpr", "ndcg@100", "recall@20", "ndcg@20")
    ) -> dict[str, float]:
        """Several metrics of a model fitted on `train`, for hardly more than the cost of one."""
        ratings = self.relative_rating or RelativeRating().fit(self.train)
        relevance = ratings.transform(self.held_out)
        return evaluate(
            scorer, self.train, self.held_out, relevance, metrics=names, n_bootstrap=0
        ).metrics

    def trial(self, settings: dict[str, Any], scorer: Scorer) -> Trial:
        """What settings came to, from the model fitted with them on `train`."""
        metrics = self.metrics(scorer)
        return Trial(settings, metrics["mpr"], metrics)


@dataclass(frozen=True)
class Trial:
    """One choice of settings and what it came to."""

    settings: dict[str, Any]
    """Chosen, and found on the way, such as the number of epochs."""

    cost: float
    """On validation, the lowest is the best: MPR in percent in a comparison, what `choose_by` says
    within a fit."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Several, on validation, if they were looked at."""

    stops: tuple[Trial, ...] = field(default=(), repr=False)
    """All that were judged along the fit, if it was judged on its way."""

    calibrator: Calibrator | None = field(default=None, repr=False)
    """What makes probabilities of the scores, fitted on validation; None if there are none."""


@dataclass(frozen=True)
class Search:
    """All choices that were tried."""

    trials: list[Trial] = field(repr=False)
    """In the order they were tried."""

    seconds: float
    """All of them took."""

    @property
    def best(self) -> Trial:
        """The one of least cost."""
        return min(self.trials, key=lambda trial: trial.cost)

    def best_by(self, metric: str) -> Trial:
        """The one that is best by a metric, of all that were judged, on their way or at last.

        Trials that were judged by MPR alone stand back; if all were, it is `best`.
        """
        judged = [each for trial in self.trials for each in (trial.stops or (trial,))]
        judged = [each for each in judged if metric in each.metrics]
        return min(
            judged, key=lambda each: cost_of(metric, each.metrics[metric]), default=self.best
        )


OnTrial = Callable[[int, int, Trial], None]
"""Called after each trial with how many are done, how many there can be at most, and the trial."""


def coordinate_search(
    attempt: Callable[[dict[str, Any]], Trial],
    start: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    *,
    max_trials: int,
    on_trial: OnTrial | None = None,
    other_starts: Sequence[Mapping[str, Any]] = (),
) -> Search:
    """Walk along one setting at a time, as long as it gets better, until no step helps.

    Args:
        attempt: Fits with some settings and judges on validation.
        start: First settings; each in its row of the grid.
        grid: Values of each setting in order, in the order in which settings are walked along.
        max_trials: Stop after so many.
        on_trial: Called after each.
        other_starts: Changes to `start` that are tried as well; the walk begins at the best.

    Returns:
        What was tried.
    """
    started = time.perf_counter()
    trials: dict[tuple[int, ...], Trial] = {}
    names = list(grid)

    def cost_at(place: tuple[int, ...]) -> float:
        if place not in trials:
            if len(trials) >= max_trials:
                return math.inf
            chosen = {name: grid[name][index] for name, index in zip(names, place, strict=True)}
            try:
                trials[place] = attempt({**start, **chosen})
            except TrainingError as error:
                logger.warning("a trial failed and counts as the worst: %s", error)
                trials[place] = Trial({**start, **chosen}, math.inf)
            if on_trial is not None:
                on_trial(len(trials), max_trials, trials[place])
        return trials[place].cost

    starts = [{**start, **changes} for changes in ({}, *other_starts)]
    places = [tuple(list(grid[n]).index(first[n]) for n in names) for first in starts]
    place = min(places, key=cost_at)
    is_better_somewhere = True
    while is_better_somewhere:
        is_better_somewhere = False
        for axis, name in enumerate(names):
            for step in (1, -1):
                here = place
                while 0 <= here[axis] + step < len(grid[name]):
                    there = (*here[:axis], here[axis] + step, *here[axis + 1 :])
                    if cost_at(there) >= cost_at(here):
                        break
                    here = there
                if here != place:
                    place, is_better_somewhere = here, True
                    break  # it got better in this direction; the other is where it came from
    search = Search(list(trials.values()), time.perf_counter() - started)
    if math.isinf(search.best.cost):
        raise TrainingError(f"none of {len(trials)} settings could be fitted; see the log for why")
    return search
