"""The fit, step by step: plan, hold out, start, train, read out, calibrate, finish on all pairs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.probability import Calibrator, fit_calibrator
from cfnade.beyond.event_kinds import find_weights
from cfnade.beyond.factors import item_scores, start_from_factors
from cfnade.beyond.features import FeatureStrengths
from cfnade.beyond.low_rank_start import start_with_neighbours
from cfnade.beyond.readout import Readout
from cfnade.checkpoints import Checkpoints, open_checkpoints
from cfnade.data.event_splits import split_by_time, split_last, split_random
from cfnade.data.events import Weights
from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.data.item_features import ItemFeatures
from cfnade.data.ratings import RelativeRating, confidence, likes_alone
from cfnade.data.splitting import sample_users, without_overlap
from cfnade.errors import DataError, MissingExtraError
from cfnade.fit.background import Background
from cfnade.fit.cold_start import add_features, find_strengths
from cfnade.fit.judge import Judge
from cfnade.fit.plan import (
    ALL_EVENTS,
    FEWEST_NEW_TARGETS,
    TRAINED_TWICE,
    FitPlan,
    calibration_users,
)
from cfnade.fit.settings import FitSettings
from cfnade.fit.training_part import TrainingPart, find_repeats
from cfnade.metrics.search import Trial, coordinate_search
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.progress import Callbacks
from cfnade.threads import limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch, Trained

logger = logging.getLogger(__name__)

StartWeights: TypeAlias = "dict[str, NDArray[np.float32]] | None"
"""By name; None starts at random."""

CHECKPOINT_SECONDS = 20.0
"""Minimum time between two checkpoints: writing one takes as long as an epoch of a small fit."""


def hold_out_validation(
    known: Interactions, settings: FitSettings, plan: FitPlan
) -> tuple[Interactions, CountMatrix | None]:
    """Split data into a training part, and a validation part from some users.

    By time, the training part ends for all users where the validation part begins, and some pairs
    are in both: repeats.
    """
    share, by = settings.validation_share, plan.validation_by
    if share == 0:
        return known, None
    if by in TRAINED_TWICE:
        try:
            split = split_by_time if by == "time" else split_last
            found = split(known, share=share)
            if found.new.nnz:
                return found.train, sample_users(found.test, plan.validation_users, settings.seed)
            reason = "no user has new items in the last part"
        except DataError as error:
            reason = str(error)
        logger.warning("validation uses random pairs, not the latest events: %s", reason)
        by = "pairs"
    found = split_random(
        known, share=share, by=by, n_users=plan.validation_users, rng=settings.seed
    )
    if found.test.nnz == 0:
        kind = "items with a single event" if by == "sessions" else "items"
        logger.warning("no user has enough %s for validation: running all epochs", kind)
        return known, None
    return found.train, found.test


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

    event_weights: Weights | None
    """Of each kind of event, given or found; None counts all alike."""

    strengths: FeatureStrengths | None
    """How strongly features of items count; None without features."""

    epochs: list[Epoch] = field(repr=False)
    """All epochs of its training."""


def fit_network(
    known: Interactions | CountMatrix,
    settings: FitSettings,
    *,
    features: ItemFeatures | None = None,
    validation: CountMatrix | None = None,
    relative_rating: RelativeRating | None = None,
    callbacks: Callbacks | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Fitted:
    """Train a network on counts.

    Args:
        known: Interactions to learn from, or their counts alone, (n_users, n_items).
        settings: All settings.
        features: What is known about the items, and about further ones that nobody has touched.
        validation: Held-out counts to choose on, disjoint from `known`, never trained on;
            None holds out a part of `known`.
        relative_rating: Fitted count distributions; None fits them on the training part.
        callbacks: For progress.
        checkpoint: Folder for checkpoints.
        resume: Continue from them, if there are any.

    Returns:
        The network and how it was trained.

    Raises:
        DataError: If there is nothing to learn from.
        ConfigError: If a setting is invalid.
        ArtifactError: If the folder for checkpoints cannot be used.
        MissingExtraError: If torch is not installed.
        TrainingError: If the loss is no longer finite.
    """
    if not isinstance(known, Interactions):
        known = Interactions.from_matrix(known)
    if known.n_pairs == 0:
        raise DataError("there is nothing to learn from: no pair has a count above 0")
    try:
        import cfnade.model.training  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("torch", "train", "fitting a model") from error
    if validation is not None and validation.shape != known.counts.shape:
        raise DataError(
            f"validation must have the users and items of the counts, {known.counts.shape}; "
            f"got {validation.shape}"
        )
    plan = FitPlan.of(known.counts, settings, clock=known.clock)
    for line in plan.lines():
        logger.info("%s", line)
    if settings.recipe.readout.direct and plan.direct is None:
        logger.warning("no direct item-item path: too many items, or not enough memory")
    if features is not None:
        plan.check_features(features, settings.memory_limit)
    callbacks = callbacks or Callbacks()
    callbacks.plan(plan.stages_with(features), plan.training.max_epochs)
    # Last, once all settings are good: this deletes the checkpoints of an abandoned run.
    with (
        open_checkpoints(checkpoint, resume=resume) as kept,
        limited_threads(settings.n_threads) as n_threads,
    ):
        fitting = _Fitting(settings, plan, relative_rating, callbacks, kept, n_threads, features)
        return fitting.fit(known, validation)


@dataclass(frozen=True)
class _Chosen:
    """What was found on held-out pairs."""

    plan: FitPlan
    trained: Trained[NumpyNetwork]
    readout: Readout
    part: TrainingPart | None
    """What was trained on; None if that was not all of the data."""

    validation_mpr: float | None = None
    calibrator: Calibrator | None = None
    n_looks: int = 0
    strengths: FeatureStrengths | None = None


@dataclass(frozen=True)
class _Fitting:
    """One fit and its steps."""

    settings: FitSettings
    plan: FitPlan
    relative_rating: RelativeRating | None
    callbacks: Callbacks
    checkpoints: Checkpoints
    n_threads: int
    """Of a training, at most."""

    features: ItemFeatures | None = None
    factorised: dict[str, Any] = field(default_factory=dict, repr=False)
    """The data of the latest factorisation and its factors of items: the next one begins there."""

    after_factors: Callable[[], None] | None = None
    """Called once there are factors of a part of the data."""

    def fit(self, known: Interactions, validation: CountMatrix | None) -> Fitted:
        """Train, and find the readout on held-out pairs; then add those pairs.

        Random pairs change the count distributions and the direct path, and training again would
        gain nothing (decision 29). The latest events do change the network: a short training
        without them finds the readout, and another one is trained on all: beside it if that fits
        into memory (decision 41).
        """
        train, held_out = known, validation
        if validation is None:
            train, held_out = hold_out_validation(known, self.settings, self.plan)
        if known.target_event is not None and known.event_weights is None:
            known, train = self._weigh_events(known, train, held_out)
        is_beside = train is not known and self.plan.trains_beside and self.n_threads > 1
        last: Background[Trained[NumpyNetwork]] = Background(self.callbacks)
        with last, limited_threads(1 if is_beside else self.n_threads):
            whole = self._part(known) if is_beside else None

            def train_last(callbacks: Callbacks) -> Trained[NumpyNetwork]:
                """Train on all events; the factorisation begins with the factors so far."""
                assert whole is not None
                steps = replace(self, n_threads=1, callbacks=callbacks)
                start = steps._start(self.plan, whole)
                return steps._train_once(ALL_EVENTS, self.plan, whole, None, start)

            if is_beside:
                steps = replace(self, n_threads=1, after_factors=lambda: last.start(train_last))
                chosen = steps._choose(known, train, held_out)
            else:
                chosen = self._choose(known, train, held_out)
            plan, trained, part = chosen.plan, chosen.trained, chosen.part
            if held_out is None or part is None:
                self.callbacks.begin("direct path of all pairs")
            if part is None:
                part = self._part(known) if whole is None else whole
                part.readout_parts.neighbours(chosen.readout)
                if last.is_started:
                    self._announce(ALL_EVENTS, plan)
                    trained = last.result()
                elif plan.refits:
                    start = self._start(plan, part)
                    trained = self._train_once(ALL_EVENTS, plan, part, None, start)
        _, histories = part.histories(chosen.readout.history_half_life or 0.0)
        scorer = part.scorer(trained.network, chosen.readout)
        return Fitted(
            scorer=self._with_features(scorer, chosen.strengths, likes_alone(histories)),
            plan=plan,
            best_epoch=trained.best_epoch,
            validation_mpr=chosen.validation_mpr,
            readout=chosen.readout,
            calibrator=chosen.calibrator,
            n_looks=chosen.n_looks,
            event_weights=known.event_weights,
            strengths=chosen.strengths,
            epochs=trained.epochs,
        )

    def _choose(
        self, known: Interactions, train: Interactions, held_out: CountMatrix | None
    ) -> _Chosen:
        """Train on a part of the data, and find all that depends on what was held out."""
        before_later = part = self._part(train)
        if held_out is None:
            plan, trained = self._train(part, None, self.plan, self._start(self.plan, part))
            strengths = None if self.features is None else FeatureStrengths()
            return _Chosen(plan, trained, plan.readout.or_usual(), part, strengths=strengths)
        new = without_overlap(train.counts, held_out)
        if train.dislikes is not None:  # never recommended
            new = without_overlap(train.dislikes, new)
        if train.target_event is not None and new.nnz < FEWEST_NEW_TARGETS:
            # Most are in the histories, as other events: judge the network on any pair.
            train, new = self._hold_out_any(train)
            part = self._part(train)
        is_rough = self.plan.refits and train is not known and self.plan.trials == 1
        first = self.plan.rough() if is_rough else self.plan  # of a network that is not kept
        start = self._start(first, part)
        if self.after_factors is not None:
            self.after_factors()
        self.callbacks.begin("direct path")
        judge = Judge(part, new, self.settings.choose_by)
        plan, trained = self._train(part, judge, first, start)
        self.callbacks.begin("readout")
        readout, mpr = judge.find_readout(trained.network)
        half_life, n_items = readout.history_half_life or 0.0, known.n_items
        _, histories = part.histories(half_life)
        scorer, strengths = part.scorer(trained.network, readout), None
        if self.features is not None:
            self.callbacks.begin("features")
            likes = likes_alone(histories)
            strengths = find_strengths(
                scorer,
                self.features.first(n_items),
                likes,
                new,
                seed=self.settings.seed,
                n_threads=self.settings.n_threads,
            )
            scorer = self._with_features(scorer, strengths, likes, n_items)
            mpr = judge.metrics(judge.logits(scorer.network, half_life), ("mpr",))["mpr"]
        repeats = plan.readout.repeats
        if repeats is None and (repeats := find_repeats(before_later, scorer, readout, held_out)):
            readout = replace(readout, repeats=repeats)
            scorer = part.scorer(trained.network, readout)
            scorer = self._with_features(scorer, strengths, likes_alone(histories), n_items)
        self.callbacks.begin("calibration")
        if train.target_event is not None:
            _, histories = before_later.histories(half_life)
            new = without_overlap(before_later.data.counts, held_out)
            if not readout.repeats:
                logger.warning(
                    "too few %s events follow other events of the same item: all items of a "
                    "history are left out",
                    train.target_event,
                )
        users = np.flatnonzero(np.diff((new if train.target_event is None else held_out).indptr))
        if plan.refits:
            quiet = self._without_later_items(known, before_later.data, users.size)
            users = np.union1d(users, quiet)
        calibrator = _calibrate(scorer, histories[users], new[users], more_missing=not plan.refits)
        kept = part if train is known else None  # else its memory is free for that of all pairs
        return _Chosen(plan, trained, readout, kept, mpr, calibrator, judge.n_looks, strengths)

    def _weigh_events(
        self, known: Interactions, train: Interactions, held_out: CountMatrix | None
    ) -> tuple[Interactions, Interactions]:
        """Weigh kinds of events by what they say about the target event."""
        assert known.log is not None
        if held_out is None:
            logger.warning("nothing is held out to find the weights of events: all count alike")
            weights = dict.fromkeys(known.log.kinds, 1.0)
        else:
            weights = find_weights(train, held_out)
        shown = ", ".join(f"{kind}={weight:g}" for kind, weight in weights.items())
        logger.info("weights of events: %s", shown)
        later = known.weighed(weights, known.target_event)
        return later, later if train is known else train.weighed(weights, known.target_event)

    def _hold_out_any(self, train: Interactions) -> tuple[Interactions, CountMatrix]:
        """Hold out random pairs, of any kind of event, of some users."""
        settings, any_kind = self.settings, replace(train, target_event=None)
        share, n_users = settings.validation_share, self.plan.validation_users
        found = split_random(any_kind, share=share, n_users=n_users, rng=settings.seed)
        return replace(found.train, target_event=train.target_event), found.test

    def _without_later_items(
        self, known: Interactions, train: Interactions, n_judged: int
    ) -> NDArray[np.intp]:
        """Users with a history and nothing new after it, as many for each judged user as in all."""
        n_before = np.diff(train.counts.indptr)
        has_new = np.diff(known.target_counts.indptr) > np.diff(train.target_counts.indptr)
        quiet = np.flatnonzero(~has_new & (n_before > 0))
        n_active = int(np.count_nonzero(has_new & (n_before > 0)))
        n_quiet = min(quiet.size, round(quiet.size * n_judged / max(n_active, 1)))
        return np.random.default_rng(self.settings.seed).choice(quiet, n_quiet, replace=False)

    def _part(self, data: Interactions) -> TrainingPart:
        given = self.relative_rating
        ratings = given or RelativeRating().fit(data.counts)
        return TrainingPart(data, ratings, self.plan, self.settings.n_threads, given is None)

    def _with_features(
        self,
        scorer: NetworkScorer,
        strengths: FeatureStrengths | None,
        histories: CountMatrix,
        n_items: int | None = None,
    ) -> NetworkScorer:
        """The scorer with what is known about items; of the first ones, or of all."""
        if self.features is None or strengths is None:
            return scorer
        known = self.features if n_items is None else self.features.first(n_items)
        n_threads = self.settings.n_threads
        return add_features(scorer, known, strengths, histories=histories, n_threads=n_threads)

    def _train(
        self, part: TrainingPart, judge: Judge | None, first: FitPlan, start: StartWeights
    ) -> tuple[FitPlan, Trained[NumpyNetwork]]:
        """Train once as `first` says, or search for settings; returns the plan with those found."""
        plan = self.plan
        if judge is None or plan.trials == 1:
            return plan, self._train_once("training", first, part, judge, start)
        names = (name for name in plan.stages if name.startswith("training"))
        best: list[tuple[float, FitPlan, Trained[NumpyNetwork]]] = []

        def attempt(settings: dict[str, Any]) -> Trial:
            changed = plan.changed(**settings)
            start = self._start(changed, part)
            found = self._train_once(next(names), changed, part, judge, start)
            cost = judge.cost(found.network)
            if not best or cost < best[0][0]:
                best[:] = [(cost, changed, found)]
            return Trial(settings, cost)

        usual = {**vars(plan.model), **vars(plan.training)}
        at_first = {name: usual[name] for name in plan.grid}
        coordinate_search(attempt, at_first, plan.grid, max_trials=plan.trials)
        return best[0][1:]

    def _start(self, plan: FitPlan, part: TrainingPart) -> StartWeights:
        """Weights to start from."""
        from cfnade.model.training import first_weights

        if plan.factors is None:
            return None
        factors, first = plan.factors, self.factorised.get("items")
        if first is None:
            self.callbacks.begin("factors")
        else:
            is_same = self.factorised["data"] is part.data
            factors = replace(factors, n_iterations=0) if is_same else factors.rough()
        scores = item_scores(
            part.rated,
            plan.model,
            **asdict(factors),
            first=first,
            n_threads=self.settings.n_threads,
        )
        self.factorised.update(data=part.data, items=scores.items)
        drawn = first_weights(plan.model, plan.training, part.rated)
        seed, found = plan.training.seed, part.start_neighbours
        if found is None:
            return start_from_factors(drawn, scores, seed=seed)
        return start_with_neighbours(drawn, plan.model, scores, found, seed=seed)

    def _announce(self, name: str, plan: FitPlan) -> None:
        self.callbacks.plan({}, plan.training.max_epochs)
        self.callbacks.begin(name)

    def _train_once(
        self,
        name: str,
        plan: FitPlan,
        part: TrainingPart,
        judge: Judge | None,
        start: StartWeights,
    ) -> Trained[NumpyNetwork]:
        from cfnade.model.training import train

        self._announce(name, plan)
        checkpoint, resume = self.checkpoints.of(name)
        with limited_threads(plan.training_threads(self.n_threads)):
            return train(
                plan.model,
                plan.training,
                part.rated_with_dislikes,
                start=start,
                validate=None if judge is None else judge.look,
                on_epoch=self.callbacks.on_epoch,
                on_step=self.callbacks.on_step,
                checkpoint=checkpoint,
                checkpoint_seconds=CHECKPOINT_SECONDS,
                resume=resume,
                resume_key={
                    "start": None if plan.factors is None else asdict(plan.factors),
                    "start_neighbours": plan.start_neighbours is not None,
                    "readout": None if judge is None else asdict(plan.readout),
                    "choose_by": None if judge is None else self.settings.choose_by,
                },
            )


def _calibrate(
    scorer: NetworkScorer, histories: CountMatrix, held_out: CountMatrix, *, more_missing: bool
) -> Calibrator | None:
    """Fit the calibrator, if there are enough histories."""
    try:
        return calibrate(scorer, histories, held_out, more_missing=more_missing)
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
    rated = scorer.relative_rating.transform(likes_alone(histories))
    likes = confidence(rated.data, scorer.network.config.alpha)
    mean = float(likes.mean()) if likes.size else 1.0
    return fit_calibrator(
        scorer,
        histories,
        held_out,
        mean_confidence=mean,
        more_missing=more_missing,
        max_users=calibration_users(histories.shape[1]),
    )
