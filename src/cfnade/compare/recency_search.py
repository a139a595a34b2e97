"""Recency for any model of a comparison: the same search that CF-NADE's readout has."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.beyond.readout import NO_READOUT, Readout, find_readout
from cfnade.beyond.recency import half_lives, log_watchers, recent_counts, trend
from cfnade.data.events import EventLog
from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.fit.judge import TOLERATED
from cfnade.metrics.evaluate import KnownScores, evaluate, relevance_of
from cfnade.metrics.formulas import cost_by, cost_of, metrics_to_choose
from cfnade.metrics.search import Validation
from cfnade.scorer import Scorer, blocks

SPREAD = 2.0
"""Usual spread of one user's logits: the strengths to try are made for such scores."""


@dataclass(frozen=True)
class WithRecency:
    """A model whose histories decay and whose scores get the trend of each item."""

    model: Any
    readout: Readout
    added: NDArray[np.float32]
    """The trend, on the scale of the model's scores, (n_items,)."""

    def histories(self, data: Interactions) -> CountMatrix:
        """Counts of which recent events are the larger part, (n_users, n_items)."""
        log, half_life = data.log, self.readout.history_half_life
        if log is None or not half_life:
            return data.counts
        return recent_counts(log, data.counts.shape, half_life, data.event_weights)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """The model's scores and the trend, (n_users, n_items)."""
        return np.asarray(self.model.scores(histories) + self.added, dtype=np.float32)


@dataclass(frozen=True)
class Recency:
    """The half-lives and strengths found for a model."""

    readout: Readout
    scale: float
    """Of the model's scores, over those of a network."""

    n_looks: int
    """Evaluations on validation that finding them took."""

    def add_to(self, model: Scorer, data: Interactions) -> WithRecency:
        """The model with recency; the data, with times, are what it was fitted on."""
        assert data.log is not None
        added = self.scale * _trend(data.log, data.n_items, self.readout)
        if self.readout.history_half_life:
            half_life, weights = self.readout.history_half_life, data.event_weights
            model = _reading(model, recent_counts(data.log, data.counts.shape, half_life, weights))
        return WithRecency(model, self.readout, added)


def find_recency(model: Scorer, validation: Validation) -> Recency:
    """Search for the half-lives and strengths of recency on validation.

    As the readout of CF-NADE is found: by the same metrics, of which none may get worse.

    Args:
        model: Fitted on the training part.
        validation: With times.

    Returns:
        What to add to the final model.
    """
    data = validation.train_data
    assert data is not None and data.log is not None
    log, held_out = data.log, validation.held_out
    users = np.flatnonzero(np.diff(held_out.indptr))
    own, seen = held_out[users], validation.train[users]
    exclude = None if validation.exclude is None else validation.exclude[users]
    relevance = relevance_of(own, data, validation.ratings)
    known: dict[float, NDArray[np.float32]] = {}  # scores by half-life
    names, n_looks = metrics_to_choose(validation.choose_by), 0

    def scores(half_life: float) -> NDArray[np.float32]:
        if half_life not in known:
            for old in list(known)[:-1]:  # keep the last two: a search compares neighbours
                del known[old]
            counts = recent_counts(log, validation.train.shape, half_life, data.event_weights)
            reader = _reading(model, counts) if half_life else model
            asked = counts[users]
            parts = [reader.scores(asked[rows]) for rows in blocks(len(users), data.n_items)]
            known[half_life] = np.concatenate(parts).astype(np.float32)
        return known[half_life]

    scale = float(scores(0.0).std(axis=1).mean()) / SPREAD

    def judged(readout: Readout) -> dict[str, float]:
        nonlocal n_looks
        n_looks += 1
        added = scale * _trend(log, data.n_items, readout)
        return evaluate(
            KnownScores(scores(readout.history_half_life or 0.0) + added),
            seen,
            own,
            relevance,
            metrics=names,
            candidates=validation.candidates,
            exclude=exclude,
            n_bootstrap=0,
        ).metrics

    plain = judged(NO_READOUT.or_usual())

    def cost(readout: Readout) -> float:
        found = judged(readout)
        if any(
            cost_of(name, found[name]) > cost_of(name, plain[name]) + TOLERATED * plain[name]
            for name in names
        ):
            return math.inf
        return cost_by(found, validation.choose_by)

    return Recency(find_readout(NO_READOUT, cost, half_lives(log)), scale, n_looks)


def _reading(model: Any, recent: CountMatrix) -> Any:
    """The model with the distributions of recent counts, if it has some that it fitted itself."""
    if getattr(model, "relative_rating_", None) is None or model.relative_rating is not None:
        return model
    other = copy(model)
    other.relative_rating_ = RelativeRating().fit(recent)
    return other


def _trend(log: EventLog, n_items: int, readout: Readout) -> NDArray[np.float32]:
    now, ever = (log_watchers(log, n_items, h) for h in (readout.trend_half_life or 0.0, 0.0))
    return trend(now, ever, readout.trend_gain or 0.0, readout.popularity_gain or 0.0)
