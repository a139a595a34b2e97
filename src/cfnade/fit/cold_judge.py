"""How strongly features of items should count, judged on validation.

On held-out pairs, and on a part of the items whose pairs are all held back, as if nobody had
touched these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.direct import likes_of
from cfnade.beyond.features import FeatureModel, FeatureStrengths, with_levels
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.item_features import ItemFeatures
from cfnade.fit.plan import feature_users
from cfnade.metrics.evaluate import KnownScores, evaluate
from cfnade.metrics.search import Trial, coordinate_search
from cfnade.model.inference import NetworkScorer, NumpyNetwork

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
HALVES = (0.0, 2.0, 8.0, 32.0, 128.0)
LIKE_GAINS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
COLUMN_WEIGHTS = (0.0, 0.3, 1.0)
"""Strengths to try."""

METRICS = ("mpr", "ndcg@100")
HELD_BACK = 0.1
"""Share of the items held back to judge strengths."""

_FEWEST = 20  # items with features and watchers, to judge strengths on a part of them
_DIRECTIONS = 64  # leading directions of V, enough to compare regressions
_MOST_TRIALS = 24  # of a search


class ColdJudge:
    """Judges strengths on users whose history lacks the held-back items."""

    def __init__(
        self,
        scorer: NetworkScorer,
        features: ItemFeatures,
        histories: CountMatrix,
        held_out: CountMatrix,
        seed: int,
        n_threads: int | None,
        n_watchers: NDArray[np.integer] | None = None,
    ) -> None:
        self._features, self._network, self._n_threads = features, scorer.network, n_threads
        if n_watchers is None:
            n_watchers = np.bincount(histories.indices, minlength=features.n_items)
        self._n_watchers = n_watchers.copy()
        rng = np.random.default_rng([seed, features.n_items])
        self._back = self._choose_items(rng)
        self._n_watchers[self._back] = 0
        users = np.flatnonzero(np.diff(held_out.indptr))
        users = np.sort(rng.permutation(users)[: feature_users(features.n_items)])
        own, self._held_out = histories[users], held_out[users]
        is_back = np.zeros(features.n_items, dtype=np.bool_)
        is_back[self._back] = True
        self._kept = _without(own, is_back)
        self._of_back = as_count_matrix((own + self._held_out)[:, self._back])
        self._ratings = scorer.relative_rating.transform(self._kept)

    def _choose_items(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A part of the items with features and watchers, ascending."""
        has_features = np.diff(self._features.matrix.indptr) > 0
        usable = np.flatnonzero(has_features & (self._n_watchers > 0))
        if usable.size < _FEWEST:
            return np.empty(0, dtype=np.int64)
        chosen = rng.choice(usable, round(HELD_BACK * usable.size), replace=False)
        return np.sort(chosen).astype(np.int64)

    @property
    def can_judge(self) -> bool:
        """Whether there are pairs to judge by."""
        return bool(self._of_back.nnz and self._held_out.nnz)

    def find_columns(self) -> dict[str, float]:
        """Weights of the table's columns."""
        names = self._features.columns
        if len(names) < 2:
            return {}

        def attempt(weights: dict[str, Any]) -> Trial:
            if not any(weights.values()):
                return Trial(weights, np.inf)
            return Trial(weights, self.cost_of_held_back(weights, FeatureStrengths.l2))

        grid = dict.fromkeys(names, COLUMN_WEIGHTS)
        start = dict.fromkeys(names, 1.0)
        found = coordinate_search(attempt, start, grid, max_trials=_MOST_TRIALS)
        return dict(found.chosen)

    def cost_of_held_back(self, columns: Mapping[str, float], l2: float) -> float:
        """MPR / nDCG of the held-back items among each other, by the leading directions of V."""
        model = FeatureModel(
            self._features,
            self._n_watchers,
            columns,
            asked=self._back,
            n_threads=self._n_threads,
        )
        V = self._network.weights["output_weight"]
        hidden = self._network.hidden(self._ratings)
        mean = hidden.mean(axis=0)
        level = with_levels(V, self._network.bias, mean)[:, -1:]
        _, axes = np.linalg.eigh(V.T.astype(np.float64) @ V)  # ascending
        kept = axes[:, -_DIRECTIONS:].astype(np.float32)
        found = model.predicted(np.hstack([V @ kept, level]), l2)
        found = model.shrunk(found, FeatureStrengths.level)
        scores = ((hidden - mean) @ kept) @ found[:, :-1].T + found[:, -1]
        if self._network.direct_weight is not None:
            direct, like = model.direct_scores(self._network, self._ratings)
            scores += direct + np.float32(FeatureStrengths.like_gain) * like
        return self._cost_of_back(scores)

    def find_rest(self, start: FeatureStrengths) -> FeatureStrengths:
        """The strengths that concern items with watchers as well."""
        model = FeatureModel(
            self._features, self._n_watchers, start.columns, n_threads=self._n_threads
        )
        weights = self._network.weights
        W, outputs = weights["like_weight"], (weights["output_weight"], self._network.bias)
        predicted_W = model.predicted(W, start.l2)
        found = model.predicted(np.column_stack(outputs), start.l2)
        predicted = (found[:, :-1], found[:, -1])
        direct, like = model.direct_scores(self._network, self._ratings)

        @cache
        def centred(half: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            """The hidden layer of users around its mean, and the mean."""
            blended = {**weights, "like_weight": model.blend(W, predicted_W, half)}
            hidden = NumpyNetwork(self._network.config, blended).hidden(self._ratings)
            mean = hidden.mean(axis=0)
            return hidden - mean, mean

        def attempt(values: dict[str, Any]) -> Trial:
            hidden, mean = centred(values["half"])
            shrunk = model.shrunk(with_levels(*predicted, mean), values["level"])
            rows = model.blend(with_levels(*outputs, mean), shrunk, values["half"])
            scores = hidden @ rows[:, :-1].T + rows[:, -1] + direct
            scores += np.float32(values["like_gain"]) * model.share(values["half"]) * like
            mixed = _cost(scores, self._kept, self._held_out)
            return Trial(values, mixed * self._cost_of_back(scores[:, self._back]))

        grid: dict[str, Any] = {"level": LEVELS, "half": HALVES, "like_gain": LIKE_GAINS}
        if self._network.direct_weight is None:
            grid["like_gain"] = (0.0,)
        first = {name: min(getattr(start, name), max(values)) for name, values in grid.items()}
        chosen = coordinate_search(attempt, first, grid, max_trials=_MOST_TRIALS).chosen
        return replace(start, **chosen)

    def _cost_of_back(self, scores: NDArray[np.floating]) -> float:
        nothing = as_count_matrix(csr_array(self._of_back.shape, dtype=np.float64))
        return _cost(scores, nothing, self._of_back)


def _cost(scores: NDArray[np.floating], histories: CountMatrix, held_out: CountMatrix) -> float:
    """MPR / nDCG@100 of scores, all held-out pairs weighing the same, (n_users, n_items) each."""
    users = np.flatnonzero(np.diff(held_out.indptr))
    relevance = likes_of(held_out[users])
    found = evaluate(
        KnownScores(scores[users].astype(np.float32)),
        histories[users],
        held_out[users],
        relevance,
        metrics=METRICS,
        n_bootstrap=0,
    ).metrics
    return found["mpr"] / max(found["ndcg@100"], 1e-3)


def _without(counts: CountMatrix, is_left_out: NDArray[np.bool_]) -> CountMatrix:
    """The counts without those of some items, (n_users, n_items)."""
    kept = counts.copy()
    kept.data[is_left_out[kept.indices]] = 0.0
    return as_count_matrix(kept)
