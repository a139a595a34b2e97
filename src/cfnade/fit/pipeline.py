"""The fit, step by step: plan, hold out, start, train, read out, calibrate, finish on all pairs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.probability import Calibrator, fit_calibrator
from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.event_kinds import find_weights, target_features
from cfnade.beyond.factors import start_from_factors
from cfnade.beyond.features import FeatureStrengths
from cfnade.beyond.readout import Readout, ReadoutParts, find_readout
from cfnade.beyond.recency import half_lives, log_watchers, recent_counts, trend
from cfnade.beyond.repeats import Repeats, fit_repeats, item_features, logistic_regression
from cfnade.checkpoints import Checkpoints, open_checkpoints
from cfnade.data.event_splits import split_by_time, split_last, split_random
from cfnade.data.events import EventLog, Weights
from cfnade.data.interactions import CountMatrix, Interactions, with_dislikes
from cfnade.data.item_features import ItemFeatures
from cfnade.data.ratings import RelativeRating, confidence, likes_alone
from cfnade.data.splitting import overlap, sample_users, without_overlap
from cfnade.errors import DataError, MissingExtraError
from cfnade.fit.cold_start import add_features, find_strengths
from cfnade.fit.plan import (
    ALL_EVENTS,
    FEWEST_NEW_TARGETS,
    FEWEST_REPEATS,
    FitPlan,
    calibration_users,
)
from cfnade.fit.settings import FitSettings
from cfnade.metrics.evaluate import KnownScores, evaluate
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

LEAST_SLOPE = 0.1
"""Of the log-odds of new items over their score: repeats are put on that scale."""

TOLERATED = 0.003
"""Share by which recency may make MPR or nDCG worse on validation; both must gain."""

READOUT_METRIC = "ndcg@100"
"""Metric that the readout is chosen by, with MPR. MPR alone would trade the top of the list for the
tail."""


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
    if by in ("time", "last"):
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

    event_weights: Weights | None
    """Of each kind of event, given or found; None counts all alike."""

    strengths: FeatureStrengths | None
    """How strongly features of items count; None without features."""

    epochs: list[Epoch] = field(repr=False)
    """All epochs of the training that was validated."""


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
    with open_checkpoints(checkpoint, resume=resume) as checkpoints:
        fitting = _Fitting(settings, plan, relative_rating, callbacks, checkpoints, features)
        with limited_threads(settings.n_threads):
            return fitting.fit(known, validation)


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
        direct, regression = self.plan.direct, None
        if direct is not None:
            regression = NeighbourRegression(
                self.rated, direct.n_candidates, direct.max_users, self.n_threads
            )
        return ReadoutParts(regression)

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
        names = ("mpr", self._by or READOUT_METRIC)
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

        plain = judged(given.or_usual().without_recency())

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
        if (added := self._part.trend(readout)) is not None:
            logits = logits + added
        if self._direct is not None:
            logits = logits + np.float32(readout.direct_gain or 0.0) * self._direct
        return self.metrics(logits, names)

    def logits(self, network: NumpyNetwork, half_life: float = 0.0) -> NDArray[np.float32]:
        """Scores of a network for histories that decay with a half-life, (n_judged, n_items)."""
        histories = self.histories if half_life == 0 else self._rated_histories(half_life)
        size = self._plan.rows_per_look
        blocks = range(0, histories.shape[0], size)
        return np.concatenate([network.logits(histories[at : at + size]) for at in blocks])

    def metrics(self, scores: NDArray[np.float32], names: Sequence[str]) -> dict[str, float]:
        """Metrics of scores, (n_judged, n_items)."""
        self.n_looks += 1
        return evaluate(
            KnownScores(scores),
            self.histories,
            self._held_out,
            self._relevance,
            metrics=names,
            block_size=self._plan.rows_per_look,
            n_bootstrap=0,
        ).metrics


@dataclass(frozen=True)
class _Chosen:
    """What was found on held-out pairs."""

    plan: FitPlan
    trained: Trained
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
    features: ItemFeatures | None = None

    def fit(self, known: Interactions, validation: CountMatrix | None) -> Fitted:
        """Train, and find the readout on held-out pairs; then add those pairs.

        Random pairs change the count distributions and the direct path, and training again would
        gain nothing (decision 29). The latest events do change the network: it is trained again on
        all of them (decision 33).
        """
        train, held_out = known, validation
        if validation is None:
            train, held_out = hold_out_validation(known, self.settings, self.plan)
        if known.target_event is not None and known.event_weights is None:
            known, train = self._weigh_events(known, train, held_out)
        chosen = self._choose(known, train, held_out)
        plan, trained, part = chosen.plan, chosen.trained, chosen.part
        if part is None:
            part = self._part(known)
            if plan.refits:
                trained = self._train_once(ALL_EVENTS, plan, part, None)
        if held_out is None or part is not chosen.part:
            self.callbacks.begin("direct path of all pairs")
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
            plan, trained = self._train(part, None)
            strengths = None if self.features is None else FeatureStrengths()
            return _Chosen(plan, trained, plan.readout.or_usual(), part, strengths=strengths)
        self.callbacks.begin("direct path")
        new = without_overlap(train.counts, held_out)
        if train.dislikes is not None:  # never recommended
            new = without_overlap(train.dislikes, new)
        if train.target_event is not None and new.nnz < FEWEST_NEW_TARGETS:
            # Most are in the histories, as other events: judge the network on any pair.
            train, new = self._hold_out_any(train)
            part = self._part(train)
        judge = Judge(part, new, self.settings.choose_by)
        plan, trained = self._train(part, judge)
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
        users = np.flatnonzero(np.diff(new.indptr))
        if plan.refits:
            users = np.union1d(users, self._without_later_items(known, train, users.size))
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
        has_new = np.diff(known.counts.indptr) > n_before
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
                    "readout": None if judge is None else asdict(plan.readout),
                    "choose_by": None if judge is None else self.settings.choose_by,
                },
            )


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
    if (data.clock is None and data.target_event is None) or repeated.nnz < FEWEST_REPEATS:
        return ()
    users = np.flatnonzero(np.diff(held_out.indptr))
    _, histories = part.histories(readout.history_half_life or 0.0)
    candidates = likes_alone(histories[users])
    if data.target_event is not None:
        candidates = without_overlap(data.target_counts[users], candidates)
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
