"""From counts to a trained network: ratings, validation, early stopping, readout, a last refit."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from cfnade.answer.probability import Calibrator, fit_calibrator
from cfnade.beyond.factors import FactorPlan
from cfnade.beyond.readout import (
    DIRECT_UP_TO,
    Readout,
    ReadoutConfig,
    ReadoutMaker,
)
from cfnade.beyond.units import mean_of
from cfnade.data.feedback import confidence
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import sample_users
from cfnade.errors import ArtifactError, DataError, MissingExtraError
from cfnade.fit.memory import MemoryPlan, parse_bytes, plan_memory
from cfnade.fit.networks import NetworksConfig
from cfnade.fit.validation import (
    READOUT_BY,
    ValidationConfig,
    cost_by,
    hold_out_validation,
    judge_on,
    refits,
)
from cfnade.metrics.formulas import metric_functions
from cfnade.metrics.search import Trial, coordinate_search
from cfnade.model.config import ITEM_L2, ModelConfig, TrainingConfig
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.threads import limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch, Look, Trained

logger = logging.getLogger(__name__)

_NEXT_SEED = 1_000_003  # from one network to the next: fits with seeds 0, 1, 2 share none

SEARCH_UP_TO = 2 * 10**8
"""Users times items up to which several strengths of L2 are tried: some minutes."""

DIRECT_LOOK_UP_TO = 500_000
"""Pairs up to which an epoch is judged with the direct path beside the network, as it will be used:
what is best alone is not what is best with it, but such a look takes twice as long."""

READOUT_USERS = 2_000
"""Held-out users at most that the readout is chosen on: it is judged dozens of times."""


@dataclass(frozen=True)
class Callbacks:
    """Who wants to hear of the progress."""

    on_epoch: Callable[[Epoch], None] | None = None
    """Called after every epoch."""

    on_step: Callable[[int, int], None] | None = None
    """Called after every update with its number in the epoch and how many there are."""


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
        settings: Fields of `ModelConfig`, `TrainingConfig`, `ReadoutConfig`, `ValidationConfig`
            and `NetworksConfig` by name, `n_threads` and `memory_limit`.
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
        import cfnade.model.training  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("torch", "train", "fitting a model") from error
    if validation is not None and validation.shape != known.shape:
        raise DataError(
            f"validation must have the users and items of the counts, {known.shape}; "
            f"got {validation.shape}"
        )
    fitting = _Fitting(
        known,
        plain_settings(settings),
        relative_rating,
        callbacks or Callbacks(),
        checkpoint,
        resume=resume,
    )
    with limited_threads(fitting.n_threads):
        return fitting.fit(validation)


class _Checkpoints:
    """Folders that the trainings of one fit keep their checkpoints in, if there is a place."""

    def __init__(self, folder: Path | None, *, resume: bool) -> None:
        if resume and (folder is None or not (folder / "search").exists()):
            raise ArtifactError(f"there is no checkpoint in {folder}; start without resuming")
        if folder is not None and not resume:
            shutil.rmtree(folder, ignore_errors=True)  # of a run that is given up
        self._folder, self._resume = folder, resume

    def of(self, part: str) -> tuple[Path | None, bool]:
        """The folder of one training, and whether to go on from it."""
        if self._folder is None:
            return None, False
        folder = self._folder / part
        return folder, self._resume and folder.exists()

    def forget(self, parts: str) -> None:
        """Give up what trainings left, by a pattern of their names."""
        for left in [] if self._folder is None else self._folder.glob(parts):
            shutil.rmtree(left, ignore_errors=True)


class _Fitting:
    """One fit: what it is made of, and its steps."""

    def __init__(
        self,
        known: CountMatrix,
        settings: Mapping[str, Any],
        relative_rating: RelativeRating | None,
        callbacks: Callbacks,
        checkpoint: Path | None,
        *,
        resume: bool,
    ) -> None:
        self.known = known
        self.model = ModelConfig(n_items=known.shape[1], **settings_of(ModelConfig, settings))
        self.training = TrainingConfig(**settings_of(TrainingConfig, settings))
        self.validating = ValidationConfig(**settings_of(ValidationConfig, settings))
        if self.training.choose_by is not None:
            metric_functions([self.training.choose_by])  # refuses unknown names
        reading = ReadoutConfig(**settings_of(ReadoutConfig, settings))
        networks = NetworksConfig(**settings_of(NetworksConfig, settings))
        self.n_networks = networks.n_for(known)
        self.factor_plan = FactorPlan.of(known.nnz, *known.shape)
        self.starts_from_factors = networks.starts_from_factors(self.factor_plan, self.model)
        self.is_judged_with_direct = known.nnz <= DIRECT_LOOK_UP_TO
        self.plan = self._memory_plan(reading, settings)
        self.reading = replace(reading, direct=self.plan.direct > 0)
        self.seed, self.n_threads = settings.get("seed", 0), settings.get("n_threads")
        self.relative_rating = relative_rating
        self.callbacks = callbacks
        self.n_epochs_run = 0  # by this call, not resumed ones
        # Last: it deletes those of a run that is given up, once all settings have a meaning.
        self.checkpoints = _Checkpoints(checkpoint, resume=resume)

    def fit(self, validation: CountMatrix | None) -> Fitted:
        """Find L2 and epochs, then the readout, then train on all pairs if some were held out."""
        train_counts, held_out = self.known, validation
        if validation is None:
            train_counts, held_out = hold_out_validation(self.known, self.validating, self.seed)
        part = self._part(train_counts)
        item_l2, trained = self._search(part, held_out)
        if self.n_epochs_run:  # the search went on: what came after it in an earlier run is void
            self.checkpoints.forget("again-*")
            self.checkpoints.forget("refit-*")
        best_epoch, epochs = trained.best_epoch, trained.epochs
        fixed: dict[str, Any] = {"item_l2": item_l2, "max_epochs": best_epoch}
        network = self._with_others("again", trained.network, part, fixed)
        found = _FoundReadout(part.maker.start())
        if held_out is not None:
            found = self._read_out(part, network, held_out)
        if refits(self.validating, train_counts.nnz / self.known.nnz):
            logger.info("training again on all pairs, for %d epochs", best_epoch)
            del part, trained, network  # they hold what the next ones need room for
            part = self._part(self.known)
            network = self._with_others("refit", None, part, fixed)
        scorer = NetworkScorer(part.maker.add(network, found.readout), part.ratings)
        return Fitted(
            scorer, best_epoch, item_l2, found.mpr, found.readout, found.calibrator, epochs
        )

    def _part(self, counts: CountMatrix) -> _Part:
        ratings = self.relative_rating or RelativeRating().fit(counts)
        rated = ratings.transform(counts)
        maker = ReadoutMaker(self.reading, rated, self.model, self.factor_plan)
        return _Part(counts, ratings, rated, maker)

    def _search(self, part: _Part, held_out: CountMatrix | None) -> tuple[float, Trained]:
        """Train with the strength of L2 that is given, or up to so many from the usual one on."""
        counts = part.counts
        usual = self.training.item_l2_for(counts.nnz, *counts.shape)
        validate = None if held_out is None else self._validator(part, held_out)

        def train_with(item_l2: float) -> Trained:
            name = "search" if item_l2 == usual else f"search-{item_l2:g}"
            return self._train(name, part, validate, item_l2=item_l2)

        n_trials = self.validating.item_l2_trials
        is_small = counts.shape[0] * counts.shape[1] <= SEARCH_UP_TO
        is_free = self.training.item_l2 is None and held_out is not None
        if not (is_free and is_small and n_trials > 1):
            return usual, train_with(usual)
        tried: dict[float, Trained] = {}

        def attempt(chosen: dict[str, Any]) -> Trial:
            item_l2 = chosen["item_l2"]
            trained = tried[item_l2] = train_with(item_l2)
            looks = {e.cost: e.validation_mpr for e in trained.epochs if e.cost is not None}
            cost = min(looks, default=math.inf)
            logger.info("item_l2 %g: validation MPR %.2f %%", item_l2, looks.get(cost, math.nan))
            return Trial(chosen, cost)

        grid, start = {"item_l2": ITEM_L2}, {"item_l2": usual}
        best = coordinate_search(attempt, start, grid, max_trials=n_trials).best
        return best.settings["item_l2"], tried[best.settings["item_l2"]]

    def _with_others(
        self,
        name: str,
        first: NumpyNetwork | None,
        part: _Part,
        fixed: Mapping[str, Any],
    ) -> NumpyNetwork:
        """The mean of a network and of others like it, from other seeds; None trains that too."""
        networks = [] if first is None else [first]
        for number in range(len(networks), self.n_networks):
            seed = self.training.seed + _NEXT_SEED * number
            done = self._train(f"{name}-{number}", part, **fixed, seed=seed)
            networks.append(done.network)
        return mean_of(networks)

    def _train(
        self,
        name: str,
        part: _Part,
        validate: Callable[[NumpyNetwork], Look] | None = None,
        **changes: Any,
    ) -> Trained:
        from cfnade.model.training import first_weights, train

        checkpoint, resume = self.checkpoints.of(name)
        training = replace(self.training, **changes)
        start = None
        if self.starts_from_factors:
            units = part.maker.factors.units(self.factor_plan.alpha)
            start = units.start_weights(
                first_weights(self.model, training, part.rated), training.seed
            )
        return train(
            self.model,
            training,
            part.rated,
            start=start,
            validate=validate,
            on_epoch=self._on_epoch,
            on_step=self.callbacks.on_step,
            checkpoint=checkpoint,
            resume=resume,
            told=self._told(part, validate is not None),
        )

    def _told(self, part: _Part, is_judged: bool) -> dict[str, Any]:
        """What tells a training from others, beside its settings and data."""
        beside = self._judged_with(part) if is_judged else None
        return {
            "start": asdict(self.factor_plan) if self.starts_from_factors else None,
            "judged with": None if beside is None else asdict(beside),
        }

    def _on_epoch(self, epoch: Epoch) -> None:
        self.n_epochs_run += 1
        if self.callbacks.on_epoch is not None:
            self.callbacks.on_epoch(epoch)

    def _validator(self, part: _Part, held_out: CountMatrix) -> Callable[[NumpyNetwork], Look]:
        """What an epoch is judged by."""
        from cfnade.model.training import Look

        by = self.training.choose_by
        judge = self._judge(part, held_out, ("mpr",) if by is None else ("mpr", by))
        beside = self._judged_with(part)

        def look(network: NumpyNetwork) -> Look:
            judged = judge(network if beside is None else part.maker.add(network, beside))
            return Look(judged["mpr"], None if by is None else cost_by(judged, by))

        return look

    def _judged_with(self, part: _Part) -> Readout | None:
        """What stands beside a network when an epoch is judged."""
        if not self.is_judged_with_direct:
            return None
        return replace(part.maker.start(), factor_gain=0.0)

    def _judge(
        self, part: _Part, held_out: CountMatrix, metrics: Sequence[str]
    ) -> Callable[[NumpyNetwork], dict[str, float]]:
        block_size = max(1, self.plan.block // (2 * 4 * part.counts.shape[1]))
        return judge_on(part.counts, held_out, part.ratings, metrics, block_size=block_size)

    def _read_out(self, part: _Part, network: NumpyNetwork, held_out: CountMatrix) -> _FoundReadout:
        """Choose what is added to the network, and calibrate the two together."""
        by = self.training.choose_by
        few = sample_users(held_out, READOUT_USERS, 0)
        judge = self._judge(part, few, ("mpr", by or READOUT_BY))
        readout = part.maker.choose(network, lambda each: cost_by(judge(each), by))
        chosen = part.maker.add(network, readout)
        calibrator = _calibrate(NetworkScorer(chosen, part.ratings), part.counts, few)
        return _FoundReadout(readout, judge(chosen)["mpr"], calibrator)

    def _memory_plan(self, reading: ReadoutConfig, settings: Mapping[str, Any]) -> MemoryPlan:
        """What fitting takes of memory, within the limit if there is one; tells it in the log."""
        known, model, limit = self.known, self.model, settings.get("memory_limit")
        has_direct = reading.direct and model.n_items <= DIRECT_UP_TO
        if reading.direct and not has_direct:
            logger.info("no direct item-item path: %d items are too many for it", model.n_items)
        n_factors = self.factor_plan.n_factors
        plan = plan_memory(
            known.shape[0],
            known.nnz,
            model,
            self.training,
            direct=has_direct,
            n_networks=self.n_networks,
            n_factors=n_factors if reading.has_factors(self.factor_plan, model) else 0,
            n_start=n_factors if self.starts_from_factors else 0,
            is_judged_with_direct=self.is_judged_with_direct,
            limit=None if limit is None else parse_bytes(limit),
        )
        logger.info("%s", plan.describe())
        if has_direct and not plan.direct:
            logger.warning("the direct item-item path does not fit %s and is left out", limit)
        return plan


@dataclass(frozen=True)
class _Part:
    """Counts that networks are trained on, all or all but those held out."""

    counts: CountMatrix
    ratings: RelativeRating
    rated: csr_array
    """Their relative ratings, (n_users, n_items)."""

    maker: ReadoutMaker


@dataclass(frozen=True)
class _FoundReadout:
    """What is added to a network, and what came of it on validation."""

    readout: Readout
    mpr: float | None = None
    calibrator: Calibrator | None = None


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


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Numpy's numbers as Python's own, which JSON and torch take."""
    return {n: v.item() if isinstance(v, np.generic) else v for n, v in settings.items()}


def settings_of(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are fields of this configuration."""
    return {f.name: settings[f.name] for f in fields(config) if f.name in settings}
