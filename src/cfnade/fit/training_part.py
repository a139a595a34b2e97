"""What follows from data to train on: ratings, the direct path, trends and the model of repeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.direct import NeighbourRegression, Neighbours
from cfnade.beyond.event_kinds import target_features
from cfnade.beyond.factors import evenly_spaced
from cfnade.beyond.logistic import logistic_regression
from cfnade.beyond.readout import Readout, ReadoutParts
from cfnade.beyond.recency import half_lives, log_watchers, recent_counts, trend
from cfnade.beyond.repeats import Repeats, fit_repeats, item_features
from cfnade.beyond.shared_work import once
from cfnade.data.events import EventLog
from cfnade.data.interactions import CountMatrix, Interactions, with_dislikes
from cfnade.data.ratings import RelativeRating, likes_alone
from cfnade.data.splitting import overlap, without_overlap
from cfnade.fit.plan import FEWEST_REPEATS, DirectPlan, FitPlan
from cfnade.model.inference import NetworkScorer, NumpyNetwork

LEAST_SLOPE = 0.1
"""Of the log-odds of new items over their score: repeats are put on that scale."""


@dataclass(frozen=True)
class TrainingPart:
    """Data to train on, and what follows from them."""

    data: Interactions
    ratings: RelativeRating
    plan: FitPlan
    n_threads: int | None = None
    fits_ratings: bool = True
    """Whether the ratings were fitted on these data, not given."""

    @cached_property
    def rated(self) -> csr_array:
        """Relative ratings, (n_users, n_items)."""
        return self.ratings.transform(self.data.counts)

    @cached_property
    def rated_with_dislikes(self) -> csr_array:
        """The same, below 0 for dislikes, (n_users, n_items)."""
        if self.data.dislikes is None:
            return self.rated
        return self.ratings.transform(with_dislikes(self.data.counts, self.data.dislikes))

    @cached_property
    def readout_parts(self) -> ReadoutParts:
        """The direct path."""
        direct = self.plan.direct if self.plan.readout.direct else None
        return ReadoutParts(self._neighbours(direct, self.rated))

    @cached_property
    def start_neighbours(self) -> Neighbours | None:
        """Neighbours that the start has beside the factors, found on the same users."""
        factors = self.plan.factors
        if factors is None:
            return None
        rated = evenly_spaced(self.rated, factors.max_users)
        return self._neighbours(self.plan.start_neighbours, rated)

    def _neighbours(self, direct: DirectPlan | None, rated: csr_array) -> Neighbours | None:
        if direct is None:
            return None
        l2 = self.plan.readout.or_usual().direct_l2
        assert l2 is not None

        def find() -> Neighbours:
            regression = NeighbourRegression(
                rated, direct.n_candidates, direct.max_users, self.n_threads
            )
            return regression.neighbours(l2, regression.n_candidates)

        return once("neighbours", rated, (direct, l2), find)

    @cached_property
    def half_lives(self) -> Sequence[float]:
        """Half-lives to try; none without times."""
        return () if self.data.clock is None else half_lives(self._log)

    @property
    def _log(self) -> EventLog:
        assert self.data.log is not None
        return self.data.log

    def histories(self, half_life: float) -> tuple[RelativeRating, CountMatrix]:
        """Counts that decay with a half-life (0 for none), and their distributions.

        Counts below 0 are dislikes, which do not decay.
        """
        data = self.data
        if half_life == 0 or not self.fits_ratings:
            return self.ratings, with_dislikes(data.counts, data.dislikes)
        counts = recent_counts(self._log, data.counts.shape, half_life, data.event_weights)
        return RelativeRating().fit(counts), with_dislikes(counts, data.dislikes)

    def trend(self, readout: Readout) -> NDArray[np.float32] | None:
        """What recency adds to the scores of all users, (n_items,); None for nothing."""
        if not readout.adds_trend:
            return None
        assert readout.trend_gain is not None and readout.popularity_gain is not None
        now = self._watchers(readout.trend_half_life or 0.0)
        return trend(now, self._watchers(0.0), readout.trend_gain, readout.popularity_gain)

    @cached_property
    def _watchers(self) -> Callable[[float], NDArray[np.float32]]:
        return cache(partial(log_watchers, self._log, self.data.n_items))

    @cached_property
    def repeat_features(self) -> NDArray[np.float64]:
        """What repeats, or target events, depend on beside the count, (n_items, 2)."""
        if self.data.target_event is not None:
            return target_features(self.data)
        return item_features(self._log, self.data.n_items)

    def scorer(self, network: NumpyNetwork, readout: Readout) -> NetworkScorer:
        """A network with its readout, which scores the counts of `histories`."""
        network = self.readout_parts.add(network, readout)
        added: dict[str, NDArray[np.float32]] = {}
        if (rise := self.trend(readout)) is not None:
            added["trend"] = rise
        if readout.repeats and self.data.log is not None:
            repeats = Repeats.of(readout.repeats, self.repeat_features)
            added["repeat_bias"] = repeats.bias
            added["repeat_weight"] = np.array([repeats.weight], dtype=np.float32)
        if added:
            network = NumpyNetwork(network.config, {**network.weights, **added})
        return NetworkScorer(network, self.histories(readout.history_half_life or 0.0)[0])


def find_repeats(
    part: TrainingPart, of_new: NetworkScorer, readout: Readout, held_out: CountMatrix
) -> tuple[float, ...]:
    """Weights of the model of repeats, on the scale of the network's scores of new items.

    Args:
        part: Data before the held-out events.
        of_new: Scores new items.
        readout: What is added to the network.
        held_out: Later pairs, new ones and repeats, (n_users, n_items).

    Returns:
        None of them if there are hardly any repeats.
    """
    repeated = overlap(part.data.counts, held_out)
    data = part.data
    if data.clock is None and data.target_event is None:
        return ()
    users = np.flatnonzero(np.diff(held_out.indptr))
    _, histories = part.histories(readout.history_half_life or 0.0)
    candidates = likes_alone(histories[users])
    if data.target_event is not None:
        candidates = without_overlap(data.target_counts[users], candidates)
        repeated = without_overlap(data.target_counts, repeated)
    if overlap(candidates, repeated[users]).nnz < FEWEST_REPEATS:
        return ()
    weights = fit_repeats(candidates, repeated[users], part.repeat_features)
    # On the scale of the logits of new items: both have the same log-odds of being held out.
    some = users[: part.plan.repeat_users]
    scores = of_new.scores(histories[some])
    is_new, is_true = np.ones(scores.shape, dtype=np.bool_), np.zeros(scores.shape, dtype=np.bool_)
    own, later = part.data.counts[some], held_out[some]
    is_new[np.repeat(np.arange(some.size), np.diff(own.indptr)), own.indices] = False
    is_true[np.repeat(np.arange(some.size), np.diff(later.indptr)), later.indices] = True
    shift, slope = logistic_regression(scores[is_new][:, None], is_true[is_new])
    weights[0] -= shift
    return tuple((weights / max(slope, LEAST_SLOPE)).tolist())
