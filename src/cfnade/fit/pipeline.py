"""The fit, step by step: plan, hold out, train, read out, calibrate, refit."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.probability import Calibrator, fit_calibrator
from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.factors import start_from_factors
from cfnade.beyond.readout import Readout, ReadoutParts, ReadoutScores, find_readout
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating, confidence
from cfnade.data.splitting import hold_out
from cfnade.errors import ArtifactError, DataError, MissingExtraError
from cfnade.fit.plan import FitPlan, calibration_users
from cfnade.fit.settings import FitSettings
from cfnade.metrics.evaluate import evaluate
from cfnade.metrics.formulas import cost_of
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.threads import limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch, Trained, Validate

logger = logging.getLogger(__name__)


READOUT_METRIC = "ndcg@100"
"""What the readout is chosen by beside MPR. MPR alone would trade the top of the list for the
tail."""


def hold_out_validation(
    known: CountMatrix, settings: FitSettings, n_users: int
) -> tuple[CountMatrix, CountMatrix | None]:
    """Split counts into what to train on and what to stop early on, of at most `n_users`."""
    share, by = settings.validation_share, settings.validation_by
    train, held_out = hold_out(known, share=share, by=by, n_users=n_users, rng=settings.seed)
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
    """The cost to minimise: of one metric, or MPR / nDCG, which weighs both the same."""
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


@dataclass(frozen=True)
class Callbacks:
    """Functions to call as a fit progresses."""

    on_epoch: Callable[[Epoch], None] | None = None
    """Called after every epoch."""

    on_step: Callable[[int, int], None] | None = None
    """Called after every update with its number in the epoch and their total."""


@dataclass(frozen=True)
class Fitted:
    """The result of a fit."""

    scorer: NetworkScorer
    """The network with its readout, and the count distributions."""

    plan: FitPlan
    best_epoch: int
    """Epochs that the network was trained for."""

    validation_mpr: float | None
    """Of that epoch with the readout, in percent; None without validation."""

    readout: Readout
    """What was added after training."""

    calibrator: Calibrator | None
    """Fitted on validation, before a refit."""

    epochs: list[Epoch] = field(repr=False)
    """All epochs up to early stopping."""


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
        validation: Held-out counts for early stopping, disjoint from `known`, never trained on;
            None holds out a part of `known`.
        relative_rating: Fitted count distributions; None fits them on the training part.
        callbacks: For progress.
        checkpoint: Folder for checkpoints.
        resume: Continue from them.

    Returns:
        The network and how it came about.

    Raises:
        DataError: If there is nothing to learn from.
        ConfigError: If a setting is invalid.
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
    # Last, once all settings are good: this deletes the checkpoints of an abandoned run.
    checkpoints = _Checkpoints(checkpoint, resume=resume)
    fitting = _Fitting(settings, plan, relative_rating, callbacks or Callbacks(), checkpoints)
    with limited_threads(settings.n_threads):
        return fitting.fit(known, validation)


class _Checkpoints:
    """Folders for the checkpoints of the trainings of one fit."""

    def __init__(self, folder: Path | None, *, resume: bool) -> None:
        if resume and (folder is None or not (folder / "search").exists()):
            raise ArtifactError(f"there is no checkpoint in {folder}; start without resuming")
        if folder is not None and not resume:
            shutil.rmtree(folder, ignore_errors=True)
        self._folder, self._resume = folder, resume

    def of(self, part: str) -> tuple[Path | None, bool]:
        """The folder of one training, and whether to continue from it."""
        if self._folder is None:
            return None, False
        folder = self._folder / part
        return folder, self._resume and folder.exists()


@dataclass(frozen=True)
class _Part:
    """Counts to train on, and what follows from them."""

    counts: CountMatrix
    ratings: RelativeRating
    plan: FitPlan

    @cached_property
    def rated(self) -> csr_array:
        """Relative ratings, (n_users, n_items)."""
        return self.ratings.transform(self.counts)

    @cached_property
    def readout_parts(self) -> ReadoutParts:
        """The direct path and popularity."""
        direct, regression = self.plan.direct, None
        if direct is not None:
            regression = NeighbourRegression(self.rated, direct.n_candidates, direct.max_users)
        return ReadoutParts(self.rated, regression)


@dataclass(frozen=True)
class _Fitting:
    """One fit and its steps."""

    settings: FitSettings
    plan: FitPlan
    relative_rating: RelativeRating | None
    callbacks: Callbacks
    checkpoints: _Checkpoints

    def fit(self, known: CountMatrix, validation: CountMatrix | None) -> Fitted:
        """Find the epochs, then the readout; then train on all pairs if some were held out."""
        train_counts, held_out = known, validation
        if validation is None:
            train_counts, held_out = hold_out_validation(
                known, self.settings, self.plan.validation_users
            )
        part = self._part(train_counts)
        judge = None
        if held_out is not None:
            judge = Judge(train_counts, held_out, part.ratings, self.plan.rows_per_look)
        trained = self._train("search", part, judge)
        readout, mpr, calibrator = self.plan.readout.or_usual(), None, None
        if judge is not None and held_out is not None:
            readout, mpr = self._read_out(part, trained.network, judge)
            scorer = NetworkScorer(part.readout_parts.add(trained.network, readout), part.ratings)
            calibrator = _calibrate(scorer, train_counts, held_out)
        network = trained.network
        if self.plan.refits(train_counts.nnz / known.nnz):
            logger.info("training again on all pairs, for %d epochs", trained.best_epoch)
            del judge  # it holds the scores of all held-out users
            part = self._part(known)
            network = self._train("refit", part, None, max_epochs=trained.best_epoch).network
        scorer = NetworkScorer(part.readout_parts.add(network, readout), part.ratings)
        return Fitted(
            scorer, self.plan, trained.best_epoch, mpr, readout, calibrator, trained.epochs
        )

    def _part(self, counts: CountMatrix) -> _Part:
        return _Part(counts, self.relative_rating or RelativeRating().fit(counts), self.plan)

    def _train(self, name: str, part: _Part, judge: Judge | None, **changes: Any) -> Trained:
        from cfnade.model.training import first_weights, train

        plan, training = self.plan, replace(self.plan.training, **changes)
        start = None
        if plan.factors is not None:
            start = start_from_factors(
                first_weights(plan.model, training, part.rated),
                part.rated,
                plan.model,
                **asdict(plan.factors),
                seed=training.seed,
                n_threads=self.settings.n_threads,
            )
        checkpoint, resume = self.checkpoints.of(name)
        return train(
            plan.model,
            training,
            part.rated,
            start=start,
            validate=None if judge is None else self._validate(part, judge),
            on_epoch=self.callbacks.on_epoch,
            on_step=self.callbacks.on_step,
            checkpoint=checkpoint,
            resume=resume,
            resume_key={
                "start": None if plan.factors is None else asdict(plan.factors),
                "readout": None if judge is None else asdict(plan.readout),
                "choose_by": None if judge is None else self.settings.choose_by,
            },
        )

    def _validate(self, part: _Part, judge: Judge) -> Validate:
        """Judge an epoch with the usual readout, as the network will be used."""
        from cfnade.model.training import Look

        by = self.settings.choose_by
        names = ("mpr",) if by is None else ("mpr", by)
        added = ReadoutScores(part.readout_parts, judge.histories).of(self.plan.readout)

        def look(network: NumpyNetwork) -> Look:
            scores = judge.logits(network)
            scores += added
            found = judge.metrics(scores, names)
            return Look(found["mpr"], None if by is None else cost_by(found, by))

        return look

    def _read_out(self, part: _Part, network: NumpyNetwork, judge: Judge) -> tuple[Readout, float]:
        """Find the readout, and its validation MPR in percent."""
        by = self.settings.choose_by
        names = ("mpr", by or READOUT_METRIC)
        logits, added = judge.logits(network), ReadoutScores(part.readout_parts, judge.histories)

        def metrics(readout: Readout) -> dict[str, float]:
            return judge.metrics(logits + added.of(readout), names)

        readout = find_readout(
            self.plan.readout, self.plan.readout_grid, lambda tried: cost_by(metrics(tried), by)
        )
        return readout, metrics(readout)["mpr"]


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
