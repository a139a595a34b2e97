"""The search over settings on validation: one for every model, so that none is favoured."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import without_overlap
from cfnade.errors import TrainingError
from cfnade.metrics.evaluate import evaluate, read_histories, relevance_of
from cfnade.metrics.formulas import Candidates, cost_by, metrics_to_choose
from cfnade.scorer import Scorer

logger = logging.getLogger(__name__)

JUDGED_BY = ("mpr", "ndcg@100", "recall@20", "ndcg@20")
"""Metrics of a trial, beside those that it is chosen by."""


@dataclass(frozen=True)
class Validation:
    """What settings are chosen on. It has no test part, so none can leak in."""

    train: CountMatrix
    """Counts to fit on, (n_users, n_items)."""

    held_out: CountMatrix
    """Counts to judge on, (n_users, n_items)."""

    relative_rating: RelativeRating | None = None
    """Fitted distributions that every model must use; None lets each fit them on `train`."""

    train_data: Interactions | None = None
    """`train` with its ids and event log, for models that know times or kinds of events."""

    candidates: Candidates = "unseen"
    """Rank items that are not in the user's history, or all items, as the test does."""

    exclude: CountMatrix | None = None
    """Pairs to leave out instead of those of the histories, (n_users, n_items)."""

    choose_by: str | None = None
    """Metric that everything is chosen by; None weighs MPR and nDCG@100 alike."""

    @cached_property
    def new_pairs(self) -> CountMatrix:
        """The pairs of `held_out` that are not in `train`, (n_users, n_items)."""
        return without_overlap(self.train, self.held_out)

    @cached_property
    def ratings(self) -> RelativeRating:
        """The given distributions, or those of `train`."""
        return self.relative_rating or RelativeRating().fit(self.train)

    def metrics(self, scorer: Scorer) -> dict[str, float]:
        """MPR in percent, and some other metrics, of a model fitted on `train`."""
        relevance = relevance_of(self.held_out, self.train_data, self.ratings)
        data = self.train_data
        return evaluate(
            scorer,
            self.train if data is None else read_histories(scorer, data),
            self.held_out,
            relevance,
            metrics=tuple(dict.fromkeys((*JUDGED_BY, *metrics_to_choose(self.choose_by)))),
            candidates=self.candidates,
            exclude=self.exclude,
            n_bootstrap=0,
        ).metrics

    def trial(self, settings: dict[str, Any], scorer: Scorer) -> Trial:
        """Judge a model that was fitted with these settings on `train`."""
        metrics = self.metrics(scorer)
        return Trial(settings, cost_by(metrics, self.choose_by), metrics)


@dataclass(frozen=True)
class Trial:
    """One choice of settings and its result."""

    settings: dict[str, Any]
    """Chosen, or found by the fit, such as the number of epochs."""

    cost: float
    """On validation, lower is better: `cost_by` in a comparison."""

    metrics: dict[str, float] = field(default_factory=dict)
    """On validation; may be empty."""

    stops: tuple[Trial, ...] = field(default=(), repr=False)
    """One for each iteration at which the fit was judged."""

    n_looks: int = 1
    """How often it was judged on validation."""

    extra: Any = field(default=None, repr=False)
    """Whatever the attempt wants to pass on; the search ignores it."""


@dataclass(frozen=True)
class Search:
    """All trials of a search."""

    trials: list[Trial] = field(repr=False)
    """In order."""

    seconds: float
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """The values of the grid that the best trial had."""

    stopped_by: Literal["time", "trials"] | None = None
    """What ended it; None if no step on the grid was better."""

    @property
    def n_looks(self) -> int:
        """How often a model was judged on validation."""
        return sum(trial.n_looks for trial in self.trials)

    @property
    def best(self) -> Trial:
        """The trial with the lowest cost."""
        return min(self.trials, key=lambda trial: trial.cost)


OnTrial = Callable[[int, int, Trial], None]
"""Called after each trial with the number done, the most there can be, and the trial."""


def coordinate_search(
    attempt: Callable[[dict[str, Any]], Trial],
    start: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    *,
    max_trials: int,
    seconds: float = math.inf,
    on_trial: OnTrial | None = None,
    other_starts: Sequence[Mapping[str, Any]] = (),
) -> Search:
    """Change one setting at a time, as long as the cost falls, until no step lowers it.

    Args:
        attempt: Fits with some settings and judges on validation.
        start: First settings; each in its row of the grid.
        grid: Values of each setting in order; settings are searched in this order.
        max_trials: Stop after this many.
        seconds: Start no trial after this time, once one has succeeded.
        on_trial: Called after each trial.
        other_starts: Changes to `start` that are tried too; the search goes on from the best.
    """
    started = time.perf_counter()
    stopped_by: Literal["time", "trials"] | None = None
    trials: dict[tuple[int, ...], Trial] = {}
    names = list(grid)

    def values_at(place: tuple[int, ...]) -> dict[str, Any]:
        return {name: grid[name][index] for name, index in zip(names, place, strict=True)}

    def cost_at(place: tuple[int, ...]) -> float:
        nonlocal stopped_by
        if place not in trials:
            is_late = time.perf_counter() - started >= seconds
            has_succeeded = any(math.isfinite(trial.cost) for trial in trials.values())
            if len(trials) >= max_trials or (is_late and has_succeeded):
                stopped_by = "trials" if len(trials) >= max_trials else "time"
                return math.inf
            settings = {**start, **values_at(place)}
            try:
                trials[place] = attempt(settings)
            except TrainingError as error:
                logger.warning("a trial failed and counts as the worst: %s", error)
                trials[place] = Trial(settings, math.inf, n_looks=0)
            if on_trial is not None:
                on_trial(len(trials), max_trials, trials[place])
        return trials[place].cost

    starts = [{**start, **changes} for changes in ({}, *other_starts)]
    places = [tuple(list(grid[n]).index(first[n]) for n in names) for first in starts]
    place = min(places, key=cost_at)
    has_moved = True
    while has_moved:
        has_moved = False
        for axis, name in enumerate(names):
            for step in (1, -1):
                here = place
                while 0 <= here[axis] + step < len(grid[name]):
                    there = (*here[:axis], here[axis] + step, *here[axis + 1 :])
                    if not cost_at(there) < cost_at(here):  # a NaN is no gain
                        break
                    here = there
                if here != place:
                    place, has_moved = here, True
                    break  # it came from the other direction
    lowest = min(trials, key=lambda each: trials[each].cost)
    seconds_used = time.perf_counter() - started
    search = Search(list(trials.values()), seconds_used, values_at(lowest), stopped_by)
    if math.isinf(search.best.cost):
        raise TrainingError(f"none of {len(trials)} settings could be fitted; see the log for why")
    return search
