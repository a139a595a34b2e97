"""What a fit is validated on, and what it is judged by there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfnade.checks import check_bool, check_number
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import HoldOutBy, check_hold_out_by, hold_out
from cfnade.errors import ConfigError
from cfnade.metrics.evaluate import evaluate
from cfnade.metrics.formulas import cost_of
from cfnade.model.inference import NumpyNetwork

logger = logging.getLogger(__name__)

REFIT_ABOVE = 0.01
"""Unless told otherwise, refit if validation took more than this share of the pairs away."""

READOUT_BY = "ndcg@100"
"""What the readout is chosen by, beside MPR. Chosen by MPR alone it gives the top of the list away
for the tail: a stronger tilt against popularity lowers MPR by one per cent, and nDCG as well."""


@dataclass(frozen=True)
class ValidationConfig:
    """What training is stopped early on."""

    validation_share: float = 0.1
    """Share of each user's items held out for early stopping; with 0 all epochs are run."""

    validation_by: HoldOutBy = "pairs"
    """Hold out pairs, all alike, or as if a share of the events were held out (`events`): then it
    is items new to a user that are predicted, as they are in the next weeks, and hardly ever what
    was bought many times. With `sessions` it is such items that belong together, as in the next
    basket. Use these where counts are counts of events and recommendations are for what comes
    next."""

    validation_users: int = 2_000
    """Hold out from this many users at most: as many as in a comparison, enough
    to tell epochs apart."""

    item_l2_trials: int = 2
    """Where `item_l2` is None, train with so many strengths at most, from the usual one on as long
    as it gets better, and keep the best; 1 takes the usual one. With more than 200 million users
    times items it is taken anyway."""

    refit: bool | None = None
    """Once the best number of epochs is known, train again on all pairs, those held out
    included; None does so if more than 1 % of the pairs were held out."""

    def __post_init__(self) -> None:
        check_hold_out_by("validation_by", self.validation_by)
        if self.refit is not None:
            check_bool("refit", self.refit)
        if check_number("validation_users", self.validation_users) < 1:
            raise ConfigError(f"validation_users must be at least 1, got {self.validation_users}")
        if check_number("item_l2_trials", self.item_l2_trials) < 1:
            raise ConfigError(f"item_l2_trials must be at least 1, got {self.item_l2_trials}")
        if not 0 <= check_number("validation_share", self.validation_share) < 1:
            raise ConfigError(
                f"validation_share must be at least 0 and below 1, got {self.validation_share}"
            )


def hold_out_validation(
    known: CountMatrix, validating: ValidationConfig, seed: int
) -> tuple[CountMatrix, CountMatrix | None]:
    """Part the counts into what to train on and what to stop early on."""
    train, held_out = hold_out(
        known,
        share=validating.validation_share,
        by=validating.validation_by,
        n_users=validating.validation_users,
        rng=seed,
    )
    if held_out.nnz == 0:
        if validating.validation_share > 0:
            kind = "items of a single event" if validating.validation_by == "sessions" else "items"
            logger.warning("nobody has enough %s to stop early on; running all epochs", kind)
        return known, None
    return train, held_out


def refits(validating: ValidationConfig, share_trained_on: float) -> bool:
    """Whether to train again, after all but this share was held out."""
    if share_trained_on == 1.0:
        return False
    if validating.refit is not None:
        return validating.refit
    return share_trained_on < 1.0 - REFIT_ABOVE


def judge_on(
    counts: CountMatrix,
    held_out: CountMatrix,
    ratings: RelativeRating,
    metrics: Sequence[str],
    *,
    block_size: int,
) -> Callable[[NumpyNetwork], dict[str, float]]:
    """Metrics of a network on held-out counts, given what was trained on as history."""
    users = np.flatnonzero(np.diff(held_out.indptr))
    held_out = held_out[users]
    relevance = ratings.transform(held_out)
    rated = ratings.transform(counts[users])  # once for all networks

    def judge(network: NumpyNetwork) -> dict[str, float]:
        return evaluate(
            _RatedScorer(network),
            rated,
            held_out,
            relevance,
            metrics=metrics,
            block_size=block_size,
            n_bootstrap=0,
        ).metrics

    return judge


def cost_by(metrics: Mapping[str, float], by: str | None) -> float:
    """What is chosen by a metric has least of this.

    Without one, one per cent of MPR is worth one per cent of nDCG.
    """
    if by is None:
        return metrics["mpr"] / max(metrics[READOUT_BY], 1e-3)
    return cost_of(by, metrics[by])


@dataclass(frozen=True)
class _RatedScorer:
    """A network that `evaluate` gives relative ratings, where a `Scorer` is given counts."""

    network: NumpyNetwork

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Logits of a like of every item, (n_users, n_items)."""
        return self.network.logits(histories)
