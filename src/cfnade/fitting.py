"""From counts to a trained network: ratings, validation, early stopping, readout, a last refit."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfnade.calibration import Calibrator, fit_calibrator
from cfnade.data.feedback import check_number, confidence
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import HoldOutBy, check_hold_out_by, hold_out, of_some_users
from cfnade.errors import ArtifactError, ConfigError, DataError, MissingExtraError
from cfnade.evaluation.evaluate import evaluate
from cfnade.evaluation.metrics import cost_of, metric_functions
from cfnade.evaluation.tuning import Trial, coordinate_search
from cfnade.memory import MemoryPlan, parse_bytes, plan_memory
from cfnade.model.config import ITEM_L2, ModelConfig, TrainingConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.readout import DIRECT_UP_TO, Readout, ReadoutConfig, ReadoutMaker
from cfnade.threads import limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch, Look, Trained

logger = logging.getLogger(__name__)

REFIT_ABOVE = 0.01
"""Unless told otherwise, refit if validation took more than this share of the pairs away."""

SEARCH_UP_TO = 2 * 10**8
"""Users times items up to which several strengths of L2 are tried: some minutes."""

READOUT_USERS = 2_000
"""Held-out users at most that the readout is chosen on: it is judged dozens of times."""

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
    was bought many times. Use it where counts are counts of events and recommendations are for
    what comes next."""

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
        if check_number("validation_users", self.validation_users) < 1:
            raise ConfigError(f"validation_users must be at least 1, got {self.validation_users}")
        if check_number("item_l2_trials", self.item_l2_trials) < 1:
            raise ConfigError(f"item_l2_trials must be at least 1, got {self.item_l2_trials}")
        if not 0 <= check_number("validation_share", self.validation_share) < 1:
            raise ConfigError(
                f"validation_share must be at least 0 and below 1, got {self.validation_share}"
            )


@dataclass(frozen=True)
class Callbacks:
    """Who wants to hear of the progress."""

    on_epoch: Callable[[Epoch], None] | None = None
    """Called after every epoch."""

    on_step: Callable[[int, int], None] | None = None
    """Called after every update with its number in the epoch and how many there are."""


@dataclass(frozen=True)
class NetworkScorer:
    """A network with the ratings it was trained on: a `Scorer`."""

    network: NumpyNetwork
    relative_rating: RelativeRating

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Logits of a like of every item, (n_users, n_items)."""
        return self.network.logits(self.relative_rating.transform(histories))


@dataclass(frozen=True)
class _RatedScorer:
    """A network that `evaluate` gives relative ratings, where a `Scorer` is given counts."""

    network: NumpyNetwork

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Logits of a like of every item, (n_users, n_items)."""
        return self.network.logits(histories)


@dataclass(frozen=True)
class Fitted:
    """The outcome of fitting."""

    scorer: NetworkScorer
    """The trained network."""

    best_epoch: int
    """Epochs that it was trained for."""

    item_l2: float
    """Strength of L2 that it was trained with."""

    validation_mpr: float | None
    """MPR of that epoch, with the readout, on the validation part, in percent; None without one."""

    readout: Readout
    """What was added to the network after training."""

    calibrator: Calibrator | None
    """Fitted on the validation part with the network as it was before a refit; None without."""

    epochs: list[Epoch] = field(repr=False)
    """All epochs of the search for the best one."""


def fit_network(
    known: CountMatrix,
    settings: Mapping[str, Any],
    *,
    validation: CountMatrix | None = None,
    relative_rating: RelativeRating | None = None,
    callbacks: Callbacks | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Fitted:
    """Train a network on counts.

    Args:
        known: Counts to learn from, (n_users, n_items).
        settings: Fields of `ModelConfig`, `TrainingConfig`, `ReadoutConfig` and
            `ValidationConfig` by name, `n_threads` and `memory_limit`.
        validation: Held-out counts to stop early on, disjoint from `known`; if None, a part of
            `known` is held out. One given is never trained on.
        relative_rating: Fitted count distributions; None fits them on what is trained on.
        callbacks: For progress.
        checkpoint: Folder to keep checkpoints in.
        resume: Go on from them.

    Returns:
        The network and how it came about.

    Raises:
        DataError: If there is nothing to learn from.
        ConfigError: If a setting has no meaning.
        MissingExtraError: If torch is not installed.
        TrainingError: If the loss is no longer finite.
    """
    if known.nnz == 0:
        raise DataError("there is nothing to learn from: no pair has a count above 0")
    try:
        from cfnade.model.training import Look, train
    except ImportError as error:
        raise MissingExtraError("torch", "train", "fitting a model") from error
    settings = plain_settings(settings)
    if validation is not None and validation.shape != known.shape:
        raise DataError(
            f"validation must have the users and items of the counts, {known.shape}; "
            f"got {validation.shape}"
        )
    model = ModelConfig(n_items=known.shape[1], **settings_of(ModelConfig, settings))
    reading = ReadoutConfig(**settings_of(ReadoutConfig, settings))
    validating = ValidationConfig(**settings_of(ValidationConfig, settings))
    training = TrainingConfig(**settings_of(TrainingConfig, settings))
    by = training.choose_by
    if by is not None:
        metric_functions([by])  # refuses unknown names
    callbacks = callbacks or Callbacks()
    plan = _plan(known, model, reading, settings)
    reading = replace(reading, direct=plan.direct > 0)

    n_run: list[int] = []  # epochs that this call ran, not resumed ones

    def on_epoch(epoch: Epoch) -> None:
        n_run.append(epoch.number)
        if callbacks.on_epoch is not None:
            callbacks.on_epoch(epoch)

    def run(
        counts: CountMatrix,
        ratings: RelativeRating,
        held_out: CountMatrix | None,
        part: str,
        **changes: Any,
    ) -> Trained:
        folder = None if checkpoint is None else checkpoint / part
        return train(
            model,
            replace(training, **changes),
            ratings.transform(counts),
            validate=None if held_out is None else validator(counts, held_out, ratings),
            on_epoch=on_epoch,
            on_step=callbacks.on_step,
            checkpoint=folder,
            resume=resume and folder is not None and folder.exists(),
        )

    def validator(
        counts: CountMatrix, held_out: CountMatrix, ratings: RelativeRating
    ) -> Callable[[NumpyNetwork], Look]:
        judge = _judge(counts, held_out, ratings, plan, ("mpr",) if by is None else ("mpr", by))

        def look(network: NumpyNetwork) -> Look:
            judged = judge(network)
            return Look(judged["mpr"], None if by is None else _cost(judged, by))

        return look

    if checkpoint is not None and not resume:
        shutil.rmtree(checkpoint, ignore_errors=True)  # of a run that is given up
    if resume and (checkpoint is None or not (checkpoint / "search").exists()):
        raise ArtifactError(f"there is no checkpoint in {checkpoint}; start without resuming")
    with limited_threads(settings.get("n_threads")):
        train_counts, held_out = known, validation
        if validation is None:
            train_counts, held_out = _hold_out(known, validating, settings.get("seed", 0))
        ratings = relative_rating or RelativeRating().fit(train_counts)
        usual = training.item_l2_for(train_counts.nnz, *known.shape)

        def search(item_l2: float) -> Trained:
            part = "search" if item_l2 == usual else f"search-{item_l2:g}"
            return run(train_counts, ratings, held_out, part, item_l2=item_l2)

        is_searched = training.item_l2 is None and held_out is not None
        is_searched = is_searched and known.shape[0] * known.shape[1] <= SEARCH_UP_TO
        n_trials = validating.item_l2_trials if is_searched else 1
        item_l2, trained = _search_item_l2(search, usual, n_trials)
        best_epoch, epochs = trained.best_epoch, trained.epochs
        maker = ReadoutMaker(reading, ratings.transform(train_counts))
        readout, mpr, calibrator = maker.start(), None, None
        if held_out is not None:
            few = of_some_users(held_out, READOUT_USERS, 0)
            judge = _judge(train_counts, few, ratings, plan, ("mpr", by or READOUT_BY))
            readout = maker.choose(trained.network, lambda network: _cost(judge(network), by))
            chosen = maker.add(trained.network, readout)
            mpr = judge(chosen)["mpr"]
            calibrator = _calibrate(NetworkScorer(chosen, ratings), train_counts, few)
        if n_run and checkpoint is not None:  # the search went on: an earlier refit is void
            shutil.rmtree(checkpoint / "refit", ignore_errors=True)
        if train_counts.nnz < known.nnz and _refits(validating, train_counts.nnz / known.nnz):
            logger.info("training again on all pairs, for %d epochs", best_epoch)
            del maker, judge, chosen  # they hold what the next ones need room for
            ratings = relative_rating or RelativeRating().fit(known)
            changes = {"item_l2": item_l2, "max_epochs": best_epoch, "patience": best_epoch}
            trained = run(known, ratings, None, "refit", **changes)
            maker = ReadoutMaker(reading, ratings.transform(known))
        scorer = NetworkScorer(maker.add(trained.network, readout), ratings)
    return Fitted(scorer, best_epoch, item_l2, mpr, readout, calibrator, epochs)


def _search_item_l2(
    train_with: Callable[[float], Trained], usual: float, n_trials: int
) -> tuple[float, Trained]:
    """Train with up to `n_trials` strengths of L2, from the usual one on; gives the best."""
    if n_trials == 1:
        return usual, train_with(usual)
    tried: dict[float, Trained] = {}

    def attempt(chosen: dict[str, Any]) -> Trial:
        item_l2 = chosen["item_l2"]
        trained = tried[item_l2] = train_with(item_l2)
        looks = {e.cost: e.validation_mpr for e in trained.epochs if e.cost is not None}
        cost = min(looks, default=math.inf)
        logger.info("item_l2 %g: validation MPR %.2f %%", item_l2, looks.get(cost, math.nan))
        return Trial(chosen, cost)

    grid = {"item_l2": ITEM_L2}
    best = coordinate_search(attempt, {"item_l2": usual}, grid, max_trials=n_trials).best
    return best.settings["item_l2"], tried[best.settings["item_l2"]]


def _cost(metrics: Mapping[str, float], by: str | None) -> float:
    """What is chosen by a metric has least of this.

    Without one, one per cent of MPR is worth one per cent of nDCG.
    """
    if by is None:
        return metrics["mpr"] / max(metrics[READOUT_BY], 1e-3)
    return cost_of(by, metrics[by])


def _calibrate(
    scorer: NetworkScorer, histories: CountMatrix, held_out: CountMatrix
) -> Calibrator | None:
    """Fit what turns scores into probabilities, where there are histories to fit it on."""
    users = np.flatnonzero(np.diff(held_out.indptr))  # of the others nothing was to be held out
    try:
        return calibrate(scorer, histories[users], held_out[users])
    except DataError as error:
        logger.warning("the model has no calibrated probabilities: %s", error)
        return None


def calibrate(scorer: NetworkScorer, histories: CountMatrix, held_out: CountMatrix) -> Calibrator:
    """Fit what turns a network's scores into probabilities; see `fit_calibrator`."""
    likes = confidence(
        scorer.relative_rating.transform(histories).data, scorer.network.config.alpha
    )
    mean = float(likes.mean()) if likes.size else 1.0
    return fit_calibrator(scorer, histories, held_out, mean_confidence=mean)


def _hold_out(
    known: CountMatrix, validating: ValidationConfig, seed: int
) -> tuple[CountMatrix, CountMatrix | None]:
    """Part the counts into what to train on and what to stop early on."""
    rng = np.random.default_rng(seed)
    chosen = of_some_users(known, validating.validation_users, rng)
    _, held_out = hold_out(
        chosen, share=validating.validation_share, by=validating.validation_by, rng=rng
    )
    if held_out.nnz == 0:
        if validating.validation_share > 0:
            logger.warning("nobody has enough items to stop early on; running all epochs")
        return known, None
    return as_count_matrix(known - held_out), held_out


def _refits(validating: ValidationConfig, share_trained_on: float) -> bool:
    if validating.refit is not None:
        return validating.refit
    return share_trained_on < 1.0 - REFIT_ABOVE


def _plan(
    known: CountMatrix, model: ModelConfig, reading: ReadoutConfig, settings: Mapping[str, Any]
) -> MemoryPlan:
    """What fitting takes of memory, within the limit if there is one; tells it in the log."""
    limit = settings.get("memory_limit")
    has_direct = reading.direct and model.n_items <= DIRECT_UP_TO
    if reading.direct and not has_direct:
        logger.info("no direct item-item path: %d items are too many for it", model.n_items)
    plan = plan_memory(
        known.shape[0],
        known.nnz,
        model,
        TrainingConfig(**settings_of(TrainingConfig, settings)),
        direct=has_direct,
        limit=None if limit is None else parse_bytes(limit),
    )
    logger.info("%s", plan.describe())
    if has_direct and not plan.direct:
        logger.warning("the direct item-item path does not fit %s and is left out", limit)
    return plan


def _judge(
    counts: CountMatrix,
    held_out: CountMatrix,
    ratings: RelativeRating,
    plan: MemoryPlan,
    metrics: tuple[str, ...],
) -> Callable[[NumpyNetwork], dict[str, float]]:
    """Metrics of a network on held-out counts, given what was trained on as history."""
    users = np.flatnonzero(np.diff(held_out.indptr))
    held_out = held_out[users]
    relevance = ratings.transform(held_out)
    block_size = max(1, plan.block // (2 * 4 * counts.shape[1]))
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


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Numpy's numbers as Python's own, which JSON and torch take."""
    return {n: v.item() if isinstance(v, np.generic) else v for n, v in settings.items()}


def settings_of(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are fields of this configuration."""
    return {f.name: settings[f.name] for f in fields(config) if f.name in settings}
