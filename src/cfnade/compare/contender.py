"""One model of a comparison: how it is tuned on validation and fitted at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.metrics.search import OnTrial, Search, Trial, Validation, coordinate_search
from cfnade.scorer import Scorer

# A fit with several stops ends early after two that lower its cost by less than 0.3 %, or when its
# cost is 20 % above that of the best trial after as many stops, three or more.
PATIENCE, SETTLED, BEHIND, LEAST_STOPS = 2, 0.997, 1.2, 3

SearchBy = Callable[["Contender", Validation, int, float, OnTrial | None], Search]
"""A custom search: contender, validation, most trials, seconds, and a callback for each trial."""


@dataclass(frozen=True)
class Edge:
    """A chosen value at an end of its grid, where the search could not go on."""

    setting: str
    value: float
    end: Literal["smallest", "largest"]

    def __str__(self) -> str:
        return f"{self.setting}={self.value:g} is the {self.end} value tried"


@dataclass(frozen=True)
class Contender:
    """A model with its settings and the grid that they are searched in.

    All contenders get the same search with the same time and number of trials. One without a grid
    has one trial.
    """

    make: Callable[..., Any]
    """Makes an unfitted model from settings."""

    start: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the first trial; those that are not in the grid stay."""

    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values of each searched setting in order; settings searched first come first."""

    stops: Sequence[int] = ()
    """Iterations at which each fit is judged; none for models without iterations."""

    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not reported as chosen, such as the seed."""

    uses_ratings: bool = False
    """Whether the model takes `relative_rating`."""

    uses_ids: bool = False
    """Whether the model takes `Interactions`, not counts alone."""

    uses_times: bool = False
    """Whether these come with the times of their events."""

    only_targets: bool = False
    """Whether the model sees events of the kind to predict alone."""

    uses_items: bool = False
    """Whether the model takes `items`, what is known about them."""

    gets_recency: bool = True
    """Whether the comparison adds recency to the model if there are times."""

    is_slow: bool = False
    """Whether one trial may take longer than a search should. Slow models are searched first, and
    the others may take as long."""

    shared: Mapping[str, Callable[[CountMatrix], Any]] = field(default_factory=dict)
    """Arguments of the model that are the same for all trials, made once from the counts."""

    bounded: Sequence[str] = ()
    """Searched settings whose grid ends where the possible values do."""

    other_starts: Sequence[Mapping[str, Any]] = ()
    """Changes to `start` that are tried too; the search goes on from the best."""

    translate: Callable[[dict[str, Any], CountMatrix], dict[str, Any]] | None = None
    """Turns searched settings into those of the model, given the counts to fit on."""

    final: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the final fit alone."""

    search_by: SearchBy | None = None
    """Replaces the usual search."""

    def search(
        self,
        validation: Validation,
        *,
        max_trials: int,
        seconds: float = math.inf,
        on_trial: OnTrial | None = None,
    ) -> Search:
        """Choose settings on validation.

        After `seconds` no trial is started, and fits with several stops end at the next one; the
        first trial is always finished.
        """
        if self.search_by is not None:
            return self.search_by(self, validation, max_trials, seconds, on_trial)
        deadline = time.perf_counter() + seconds
        tried: list[Trial] = []
        data, train = validation.train_data, validation.train
        if self.uses_ids and data is not None:
            train = self.training_data(data)

        @cache
        def given() -> dict[str, Any]:
            return {name: make(validation.train) for name, make in self.shared.items()}

        def attempt(settings: dict[str, Any]) -> Trial:
            if self.translate is not None:
                settings = self.translate(settings, validation.train)
            model = self.model(settings, validation.ratings, **given())
            if not self.stops:
                return validation.trial(settings, model.fit(train))
            best = min(tried, key=lambda trial: trial.cost, default=None)
            stops: list[Trial] = []
            for fitted in model.fits(train, self.stops):
                reached = {**settings, "iterations": fitted.iterations}
                stops.append(validation.trial(reached, fitted))
                is_late = best is not None and time.perf_counter() > deadline
                if is_late or _has_settled(stops) or (best and _is_behind(stops, best.stops)):
                    break
            lowest = min(stops, key=lambda stop: stop.cost)
            tried.append(replace(lowest, stops=tuple(stops), n_looks=len(stops)))
            return tried[-1]

        return coordinate_search(
            attempt,
            self.start,
            self.grid,
            max_trials=max_trials,
            seconds=seconds,
            on_trial=on_trial,
            other_starts=self.other_starts,
        )

    def fit(
        self, known: Interactions, settings: Mapping[str, Any], ratings: RelativeRating | None
    ) -> Scorer:
        """Fit with chosen settings on train and validation together."""
        model = self.model({**settings, **self.final}, ratings)
        fitted: Scorer = model.fit(self.training_data(known))
        return fitted

    def training_data(self, data: Interactions) -> Interactions | CountMatrix:
        """The part of the data that the model is fitted on."""
        if not self.uses_ids:
            return data.counts
        if self.only_targets and data.log is not None and data.target_event is not None:
            weights = {kind: float(kind == data.target_event) for kind in data.log.kinds}
            data = data.weighed(weights, data.target_event)
        if self.uses_times or data.log is None:
            return data
        log = replace(data.log, time=None, clock=None) if data.log.kinds else None
        return replace(data, log=log)

    def model(
        self, settings: Mapping[str, Any], ratings: RelativeRating | None, **given: Any
    ) -> Any:
        """An unfitted model with these settings and further arguments."""
        if self.uses_ratings:
            given["relative_rating"] = ratings
        return self.make(**{**settings, **self.fixed, **given})

    def edges(self, chosen: Mapping[str, Any]) -> list[Edge]:
        """Chosen numbers at an end of their grid, except where no other value is possible."""
        found = []
        for name, values in self.grid.items():
            is_scale = len(values) > 2 and all(type(value) in (int, float) for value in values)
            if is_scale and name in chosen and chosen[name] != 0 and name not in self.bounded:
                if chosen[name] == min(values):
                    found.append(Edge(name, chosen[name], "smallest"))
                if chosen[name] == max(values):
                    found.append(Edge(name, chosen[name], "largest"))
        reached = chosen.get("iterations")
        if self.stops and reached == self.stops[0] > 1:
            found.append(Edge("iterations", reached, "smallest"))
        if self.stops and reached == self.stops[-1]:
            found.append(Edge("iterations", reached, "largest"))
        return found

    def holding(self, **settings: Any) -> Contender:
        """The same with some settings held fixed."""
        grid = {name: values for name, values in self.grid.items() if name not in settings}
        return replace(self, start={**self.start, **settings}, grid=grid)


def _has_settled(stops: Sequence[Trial]) -> bool:
    before = _lowest(stops[:-PATIENCE])
    return before < math.inf and _lowest(stops) >= SETTLED * before


def _is_behind(stops: Sequence[Trial], best: Sequence[Trial]) -> bool:
    return len(stops) >= LEAST_STOPS and _lowest(stops) > BEHIND * _lowest(best[: len(stops)])


def _lowest(stops: Sequence[Trial]) -> float:
    return min((stop.cost for stop in stops), default=math.inf)
