"""What a fit holds out, and how it judges networks and readouts on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import hold_out
from cfnade.fit.plan import VALIDATION_USERS
from cfnade.fit.settings import FitSettings
from cfnade.metrics.evaluate import evaluate
from cfnade.metrics.formulas import cost_of
from cfnade.model.inference import NumpyNetwork

logger = logging.getLogger(__name__)

READOUT_METRIC = "ndcg@100"
"""What the readout is chosen by beside MPR. MPR alone would trade the top of the list for the
tail."""


def hold_out_validation(
    known: CountMatrix, settings: FitSettings
) -> tuple[CountMatrix, CountMatrix | None]:
    """Split counts into what to train on and what to stop early on, if there is enough."""
    share, by = settings.validation_share, settings.validation_by
    train, held_out = hold_out(
        known, share=share, by=by, n_users=VALIDATION_USERS, rng=settings.seed
    )
    if held_out.nnz == 0:
        if share > 0:
            kind = "items with a single event" if by == "sessions" else "items"
            logger.warning("no user has enough %s for validation: running all epochs", kind)
        return known, None
    return train, held_out


class Judge:
    """Judges scores of held-out users, whose histories are what was trained on."""

    def __init__(
        self, counts: CountMatrix, held_out: CountMatrix, ratings: RelativeRating, block_size: int
    ) -> None:
        """Prepare.

        Args:
            counts: Trained on, (n_users, n_items).
            held_out: Held out, (n_users, n_items); users without any are left out.
            ratings: Count distributions.
            block_size: Users to rank at once.
        """
        users = np.flatnonzero(np.diff(held_out.indptr))
        self.histories = ratings.transform(counts[users])
        """Relative ratings, (n_judged, n_items)."""
        self._held_out = held_out[users]
        self._relevance = ratings.transform(self._held_out)
        self._block_size = block_size

    def logits(self, network: NumpyNetwork) -> NDArray[np.float32]:
        """Scores of a network, (n_judged, n_items)."""
        n_users = self.histories.shape[0]
        blocks = range(0, n_users, self._block_size)
        rows = [network.logits(self.histories[at : at + self._block_size]) for at in blocks]
        return np.concatenate(rows)

    def metrics(self, scores: NDArray[np.float32], names: Sequence[str]) -> dict[str, float]:
        """Metrics of scores, (n_judged, n_items)."""
        return evaluate(
            _InOrder(scores),
            self.histories,
            self._held_out,
            self._relevance,
            metrics=names,
            block_size=self._block_size,
            n_bootstrap=0,
        ).metrics


def cost_by(metrics: Mapping[str, float], by: str | None) -> float:
    """What a choice minimises: a metric's cost, or MPR over nDCG, which weighs both the same."""
    if by is None:
        return metrics["mpr"] / max(metrics[READOUT_METRIC], 1e-3)
    return cost_of(by, metrics[by])


class _InOrder:
    """Scores that are known already; `evaluate` asks for them block by block, in order."""

    def __init__(self, scores: NDArray[np.float32]) -> None:
        self._scores, self._next = scores, 0

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        start, self._next = self._next, self._next + histories.shape[0]
        return self._scores[start : self._next]
