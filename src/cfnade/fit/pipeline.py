"""The fit, step by step: plan, hold out, start, train, read out, calibrate, finish on all pairs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.probability import Calibrator, fit_calibrator
from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.factors import start_from_factors
from cfnade.beyond.readout import Readout, ReadoutParts, find_readout
from cfnade.checkpoints import Checkpoints, open_checkpoints
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating, confidence
from cfnade.data.splitting import hold_out
from cfnade.errors import DataError, MissingExtraError
from cfnade.fit.plan import FitPlan, calibration_users
from cfnade.fit.settings import FitSettings
from cfnade.metrics.evaluate import evaluate
from cfnade.metrics.formulas import cost_of
from cfnade.metrics.search import Trial, coordinate_search
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.progress import Callbacks
from cfnade.threads import available_threads, limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch, Look, Trained

logger = logging.getLogger(__name__)


CHECKPOINT_SECONDS = 20.0
"""Minimum time between two checkpoints: writing one takes as long as an epoch of a small fit."""

READOUT_METRIC = "ndcg@100"
"""Metric that the readout is chosen by, with MPR. MPR alone would trade the top of the list for the
tail."""


def hold_out_validation(
    known: CountMatrix, settings: FitSettings, n_users: int
) -> tuple[CountMatrix, CountMatrix | None]:
    """Split counts into a training part, and a validation part from at most `n_users`."""
    share, by = settings.validation_share, settings.validation_by
    train, held_out = hold_out(known, share=share, by=by, n_users=n_users, rng=settings.seed)
    if held_out.nnz == 0:
        if share > 0:
            kind = "items with a single event" if by == "sessions" else "items"
            logger.warning("no user has enough %s for validation: running all epochs", kind)
        return known, None
    return train, held_out


def cost_by(metrics: Mapping[str, float], by: str | None) -> float:
    """The cost to minimise: of one metric, or MPR / nDCG, which weighs both the same."""
    if by is None:
        return metrics["mpr"] / max(metrics[READOUT_METRIC], 1e-3)
    return cost_of(by, metrics[by])


@dataclass(frozen=True)
class Fitted:
    """The result of a fit."""

    scorer: NetworkScorer
    """The network with its readout, and the count distributions."""

    plan: FitPlan
    best_epoch: int
    """Epochs that the network was trained for."""

    validation_mpr: float | None
    """MPR of that epoch with the readout, in percent; None without validation."""

    readout: Readout
    """What was added after training."""

    calibrator: Calibrator | None
    """Fitted on validation."""

    n_looks: int
    """How often an epoch or a readout was judged on validation."""

    epochs: list[Epoch] = field(repr=False)
    """All epochs of the training that was validated."""


def fit_network(
    known: CountMatrix,
    settings: FitSettings,
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
        settings: All settings.
        validation: Held-out counts to choose on, disjoint from `known`, never trained on;
            None holds out a part of `known`.
        relative_rating: Fitted count distributions; None fits them on the training part.
        callbacks: For progress.
        checkpoint: Folder for checkpoints.
        resume: Continue from them.

    Returns:
        The network and how it was trained.

    Raises:
        DataError: If there is nothing to learn from.
        ConfigError: If a setting is invalid.
        ArtifactError: If the folder for checkpoints cannot be used.
        MissingExtraError: If torch is not installed.
        TrainingError: If the loss is no longer finite.
    """
    if known.nnz == 0:
        raise DataError("there is nothing to learn from: no pair has a count above 0")
    try:
        import cfnade.model.training  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("torch", "train", "fitting a model") from error
    if validation is not None and validation.shape != known.shape:
        raise DataError(
            f"validation must have the users and items of the counts, {known.shape}; "
            f"got {validation.shape}"
        )
    plan = FitPlan.of(known, settings)
    for line in plan.lines():
        logger.info("%s", line)
    if settings.recipe.readout.direct and plan.direct is None:
        logger.warning("no direct item-item path: too many items, or not enough memory")
    callbacks = callbacks or Callbacks()
    callbacks.plan(plan.stages, plan.training.max_epochs)
    # Last, once all settings are good: this deletes the checkpoints of an abandoned run.
    with open_checkpoints(checkpoint, resume=resume) as checkpoints:
        fitting = _Fitting(settings, plan, relative_rating, callbacks, checkpoints)
        with limited_threads(settings.n_threads):
            return fitting.fit(known, validation)


@dataclass(frozen=True)
class TrainingPart:
    """Counts to train on, and what follows from them."""

    counts: CountMatrix
    ratings: RelativeRating
    plan: FitPlan
    n_threads: int | None = None

    @cached_property
    def rated(self) -> csr_array:
        """Relative ratings, (n_users, n_items)."""
        return self.ratings.transform(self.counts)

    @cached_property
    def readout_parts(self) -> ReadoutParts:
        """The direct path."""
        direct, regression = self.plan.direct, None
        if direct is not None:
            regression = NeighbourRegression(
                self.rated, direct.n_candidates, direct.max_users, self.n_threads
            )
        return ReadoutParts(regression)


class Judge:
    """Judges networks and readouts on held-out pairs of users whose other pairs are trained on."""

    def __init__(self, part: TrainingPart, held_out: CountMatrix, choose_by: str | None) -> None:
        """Prepare; users without a pair in `held_out` are left out."""
        users = np.flatnonzero(np.diff(held_out.indptr))
        self._plan, self._by = part.plan, choose_by
        self.histories = part.ratings.transform(part.counts[users])  # (n_judged, n_items)
        self._held_out = held_out[users]
        self._relevance = part.ratings.transform(self._held_out)
        self._direct = part.readout_parts.scores(part.plan.readout, self.histories)
        self.n_looks = 0
        """Number of evaluations so far."""

    def look(self, network: NumpyNetwork) -> Look:
        """Judge an epoch with the usual readout, as the network will be used."""
        from cfnade.model.training import Look

        names = ("mpr",) if self._by is None else ("mpr", self._by)
        found = self._metrics_with(self.logits(network), self._plan.readout, names)
        return Look(found["mpr"], None if self._by is None else cost_by(found, self._by))

    def cost(self, network: NumpyNetwork) -> float:
        """What a search over settings minimises."""
        names = ("mpr", self._by or READOUT_METRIC)
        found = self._metrics_with(self.logits(network), self._plan.readout, names)
        return cost_by(found, self._by)

    def find_readout(self, network: NumpyNetwork) -> tuple[Readout, float]:
        """The best readout of a network, and its MPR in percent."""
        logits, names = self.logits(network), ("mpr", self._by or READOUT_METRIC)

        def cost(readout: Readout) -> float:
            return cost_by(self._metrics_with(logits, readout, names), self._by)

        readout = find_readout(self._plan.readout, cost)
        return readout, self._metrics_with(logits, readout, names)["mpr"]

    def _metrics_with(
        self, logits: NDArray[np.float32], readout: Readout, names: Sequence[str]
    ) -> dict[str, float]:
        """Metrics of logits with a readout that differs from the plan's in its gain alone."""
        if self._direct is not None:
            logits = logits + np.float32(readout.or_usual().direct_gain or 0.0) * self._direct
        return self.metrics(logits, names)

    def logits(self, network: NumpyNetwork) -> NDArray[np.float32]:
        """Scores of a network, (n_judged, n_items)."""
        size = self._plan.rows_per_look
        blocks = range(0, self.histories.shape[0], size)
        return np.concatenate([network.logits(self.histories[at : at + size]) for at in blocks])

    def metrics(self, scores: NDArray[np.float32], names: Sequence[str]) -> dict[str, float]:
        """Metrics of scores, (n_judged, n_items)."""
        self.n_looks += 1
        return evaluate(
            _InOrder(scores),
            self.histories,
            self._held_out,
            self._relevance,
            metrics=names,
            block_size=self._plan.rows_per_look,
            n_bootstrap=0,
        ).metrics


class _InOrder:
    """Scores that are known already; `evaluate` asks for them block by block, in order."""

    def __init__(self, scores: NDArray[np.float32]) -> None:
        self._scores, self._next = scores, 0

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        start, self._next = self._next, self._next + histories.shape[0]
        return self._scores[start : self._next]


@dataclass(frozen=True)
class _Fitting:
    """One fit and its steps."""

    settings: FitSettings
    plan: FitPlan
    relative_rating: RelativeRating | None
    callbacks: Callbacks
    checkpoints: Checkpoints

    def fit(self, known: CountMatrix, validation: CountMatrix | None) -> Fitted:
        """Train, and find the readout on the held-out pairs; then add those pairs.

        They change the count distributions and the direct path. Training again with them would
        gain nothing (decision 29).
        """
        train_counts, held_out = known, validation
        if validation is None:
            train_counts, held_out = hold_out_validation(
                known, self.settings, self.plan.validation_users
            )
        part = self._part(train_counts)
        judge = None
        if held_out is not None:
            self.callbacks.begin("direct path")
            judge = Judge(part, held_out, self.settings.choose_by)
        plan, trained = self._train(part, judge)
        readout, mpr, calibrator, n_looks = plan.readout.or_usual(), None, None, 0
        if judge is not None and held_out is not None:
            self.callbacks.begin("readout")
            readout, mpr = judge.find_readout(trained.network)
            n_looks = judge.n_looks
            self.callbacks.begin("calibration")
            scorer = NetworkScorer(part.readout_parts.add(trained.network, readout), part.ratings)
            calibrator = _calibrate(scorer, train_counts, held_out)
        if judge is None or train_counts.nnz < known.nnz:
            self.callbacks.begin("direct path of all pairs")
        if train_counts.nnz < known.nnz:
            part = self._part(known)
        scorer = NetworkScorer(part.readout_parts.add(trained.network, readout), part.ratings)
        return Fitted(
            scorer, plan, trained.best_epoch, mpr, readout, calibrator, n_looks, trained.epochs
        )

    def _part(self, counts: CountMatrix) -> TrainingPart:
        ratings = self.relative_rating or RelativeRating().fit(counts)
        return TrainingPart(counts, ratings, self.plan, self.settings.n_threads)

    def _train(self, part: TrainingPart, judge: Judge | None) -> tuple[FitPlan, Trained]:
        """Train once, or search for training settings; returns the plan that was carried out."""
        plan = self.plan
        if judge is None or plan.trials == 1:
            return plan, self._train_once("training", plan, part, judge)
        names = (name for name in plan.stages if name.startswith("training"))
        best: list[tuple[float, FitPlan, Trained]] = []

        def attempt(settings: dict[str, Any]) -> Trial:
            changed = plan.changed(**settings)
            self.callbacks.plan({}, changed.training.max_epochs)
            found = self._train_once(next(names), changed, part, judge)
            cost = judge.cost(found.network)
            if not best or cost < best[0][0]:
                best[:] = [(cost, changed, found)]
            return Trial(settings, cost)

        usual = {**vars(plan.model), **vars(plan.training)}
        start = {name: usual[name] for name in plan.grid}
        coordinate_search(attempt, start, plan.grid, max_trials=plan.trials)
        return best[0][1:]

    def _start(
        self, name: str, plan: FitPlan, part: TrainingPart
    ) -> dict[str, NDArray[np.float32]] | None:
        """Weights to start from; None starts at random."""
        from cfnade.model.training import first_weights

        if plan.factors is None:
            return None
        if name == "training":
            self.callbacks.begin("factors")
        return start_from_factors(
            first_weights(plan.model, plan.training, part.rated),
            part.rated,
            plan.model,
            **asdict(plan.factors),
            seed=plan.training.seed,
            n_threads=self.settings.n_threads,
        )

    def _train_once(
        self, name: str, plan: FitPlan, part: TrainingPart, judge: Judge | None
    ) -> Trained:
        from cfnade.model.training import train

        start = self._start(name, plan, part)
        self.callbacks.begin(name)
        checkpoint, resume = self.checkpoints.of(name)
        n_threads = plan.training_threads(self.settings.n_threads or available_threads())
        with limited_threads(n_threads):
            return train(
                plan.model,
                plan.training,
                part.rated,
                start=start,
                validate=None if judge is None else judge.look,
                on_epoch=self.callbacks.on_epoch,
                on_step=self.callbacks.on_step,
                checkpoint=checkpoint,
                checkpoint_seconds=CHECKPOINT_SECONDS,
                resume=resume,
                resume_key={
                    "start": None if plan.factors is None else asdict(plan.factors),
                    "readout": None if judge is None else asdict(plan.readout),
                    "choose_by": None if judge is None else self.settings.choose_by,
                },
            )


def _calibrate(
    scorer: NetworkScorer, histories: CountMatrix, held_out: CountMatrix
) -> Calibrator | None:
    """Fit the calibrator, if there are enough histories."""
    users = np.flatnonzero(np.diff(held_out.indptr))
    try:
        return calibrate(scorer, histories[users], held_out[users], more_missing=True)
    except DataError as error:
        logger.warning("the model has no calibrated probabilities: %s", error)
        return None


def calibrate(
    scorer: NetworkScorer,
    histories: CountMatrix,
    held_out: CountMatrix,
    *,
    more_missing: bool = False,
) -> Calibrator:
    """Fit what turns a network's scores into probabilities; see `fit_calibrator`."""
    likes = confidence(
        scorer.relative_rating.transform(histories).data, scorer.network.config.alpha
    )
    mean = float(likes.mean()) if likes.size else 1.0
    return fit_calibrator(
        scorer,
        histories,
        held_out,
        mean_confidence=mean,
        more_missing=more_missing,
        max_users=calibration_users(histories.shape[1]),
    )
