"""Judges networks and readouts on held-out pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.readout import Readout, find_readout
from cfnade.data.interactions import CountMatrix
from cfnade.fit.training_part import TrainingPart
from cfnade.metrics.evaluate import KnownScores, evaluate
from cfnade.metrics.formulas import cost_by, cost_of, metrics_to_choose
from cfnade.model.inference import NumpyNetwork

if TYPE_CHECKING:
    from cfnade.model.training import Look

TOLERATED = 0.003
"""Share by which recency may make MPR or nDCG worse on validation; both must gain."""


class Judge:
    """Judges networks and readouts on held-out pairs of users whose other pairs are trained on."""

    def __init__(self, part: TrainingPart, held_out: CountMatrix, choose_by: str | None) -> None:
        """Prepare; users without a pair in `held_out` are left out."""
        self._users = np.flatnonzero(np.diff(held_out.indptr))
        self._part, self._plan, self._by = part, part.plan, choose_by
        self.histories = self._rated_histories(0.0)
        self._held_out = held_out[self._users]
        self._relevance = part.ratings.transform(self._held_out)
        self._direct = part.readout_parts.scores(part.plan.readout, self.histories)
        self.n_looks = 0
        """Number of evaluations so far."""

    def _rated_histories(self, half_life: float) -> csr_array:
        """Relative ratings of the judged users, (n_judged, n_items)."""
        ratings, counts = self._part.histories(half_life)
        return ratings.transform(counts[self._users])

    def look(self, network: NumpyNetwork) -> Look:
        """Judge an epoch with the usual readout, as the network will be used."""
        from cfnade.model.training import Look

        names = metrics_to_choose(self._by)
        found = self._metrics_with(self.logits(network), self._plan.readout, names)
        return Look(found["mpr"], cost_by(found, self._by))

    def cost(self, network: NumpyNetwork) -> float:
        """What a search over settings minimises."""
        names = metrics_to_choose(self._by)
        found = self._metrics_with(self.logits(network), self._plan.readout, names)
        return cost_by(found, self._by)

    def find_readout(self, network: NumpyNetwork) -> tuple[Readout, float]:
        """The best readout of a network, and its MPR in percent."""
        names = metrics_to_choose(self._by)
        part, given = self._part, self._plan.readout
        if not part.fits_ratings and part.half_lives:
            given = replace(given, history_half_life=0.0)
        logits: dict[float, NDArray[np.float32]] = {}  # by half-life of the histories

        def judged(readout: Readout) -> dict[str, float]:
            half_life = readout.history_half_life or 0.0
            if half_life not in logits:
                for old in list(logits)[:-1]:  # keep the last two: a search compares neighbours
                    del logits[old]
                logits[half_life] = self.logits(network, half_life)
            return self._metrics_with(logits[half_life], readout, names)

        plain = judged(given.or_usual())

        def cost(readout: Readout) -> float:
            found = judged(readout)
            if part.half_lives and any(
                cost_of(name, found[name]) > cost_of(name, plain[name]) + TOLERATED * plain[name]
                for name in names
            ):
                return math.inf
            return cost_by(found, self._by)

        readout = find_readout(given, cost, part.half_lives)
        return readout, judged(readout)["mpr"]

    def _metrics_with(
        self, logits: NDArray[np.float32], readout: Readout, names: Sequence[str]
    ) -> dict[str, float]:
        """Metrics of logits with a readout that differs from the plan's in its strengths alone."""
        readout = readout.or_usual()
        gain, trend = readout.direct_gain or 0.0, self._part.trend(readout)
        return self._judged(KnownScores(logits, self._direct, gain, trend), names)

    def logits(self, network: NumpyNetwork, half_life: float = 0.0) -> NDArray[np.float32]:
        """Scores of a network for histories that decay with a half-life, (n_judged, n_items)."""
        histories = self.histories if half_life == 0 else self._rated_histories(half_life)
        size = self._plan.rows_per_block
        blocks = range(0, histories.shape[0], size)
        return np.concatenate([network.logits(histories[at : at + size]) for at in blocks])

    def metrics(self, scores: NDArray[np.float32], names: Sequence[str]) -> dict[str, float]:
        """Metrics of scores, (n_judged, n_items)."""
        return self._judged(KnownScores(scores), names)

    def _judged(self, scores: KnownScores, names: Sequence[str]) -> dict[str, float]:
        self.n_looks += 1
        return evaluate(
            scores,
            self.histories,
            self._held_out,
            self._relevance,
            metrics=names,
            block_size=self._plan.rows_per_look,
            n_bootstrap=0,
        ).metrics
