"""One model of a comparison: how it is tuned on validation and fitted at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.metrics.search import OnTrial, Search, Trial, Validation, coordinate_search
from cfnade.scorer import Scorer

PATIENCE = 2  # stops without a lower MPR, after which a fit is not followed further

SearchBy = Callable[["Contender", Validation, int, OnTrial | None], Search]
"""A search of its own: contender, validation, most trials, and what to call after each."""


@dataclass(frozen=True)
class Contender:
    """A model with its settings and the grid that they are searched in.

    All contenders get the same search with the same number of trials. One without a grid has one
    trial.
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

    other_starts: Sequence[Mapping[str, Any]] = ()
    """Changes to `start` that are tried too; the search goes on from the best."""

    translate: Callable[[dict[str, Any], CountMatrix], dict[str, Any]] | None = None
    """Turns searched settings into those of the model, given the counts to fit on."""

    final: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the final fit alone."""

    search_by: SearchBy | None = None
    """Replaces the usual search."""

    def search(
        self, validation: Validation, *, max_trials: int, on_trial: OnTrial | None = None
    ) -> Search:
        """Choose settings on validation."""
        if self.search_by is not None:
            return self.search_by(self, validation, max_trials, on_trial)
        return coordinate_search(
            lambda settings: self._attempt(settings, validation),
            self.start,
            self.grid,
            max_trials=max_trials,
            on_trial=on_trial,
            other_starts=self.other_starts,
        )

    def fit(
        self, known: CountMatrix, settings: Mapping[str, Any], ratings: RelativeRating | None
    ) -> Scorer:
        """Fit with chosen settings on train and validation together."""
        fitted: Scorer = self.model({**settings, **self.final}, ratings).fit(known)
        return fitted

    def model(self, settings: Mapping[str, Any], ratings: RelativeRating | None) -> Any:
        """An unfitted model with these settings."""
        given = {"relative_rating": ratings} if self.uses_ratings else {}
        return self.make(**{**settings, **self.fixed, **given})

    def holding(self, **settings: Any) -> Contender:
        """The same with some settings held fixed."""
        grid = {name: values for name, values in self.grid.items() if name not in settings}
        return replace(self, start={**self.start, **settings}, grid=grid)

    def _attempt(self, settings: dict[str, Any], validation: Validation) -> Trial:
        if self.translate is not None:
            settings = self.translate(settings, validation.train)
        model = self.model(settings, validation.relative_rating)
        if not self.stops:
            return validation.trial(settings, model.fit(validation.train))
        trials: list[Trial] = []
        for fitted in model.fits(validation.train, self.stops):
            trials.append(validation.trial({**settings, "iterations": fitted.iterations}, fitted))
            best = min(trials, key=lambda trial: trial.cost)
            if all(trial is not best for trial in trials[-PATIENCE:]):
                break
        return replace(best, stops=tuple(trials))
