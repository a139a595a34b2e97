"""One plan for a fit: every decision that depends on the data is made here, and nowhere else.

`FitPlan.of(counts, settings)` fills in the settings that are None and estimates the memory that
fitting takes; the other modules follow it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from cfnade.beyond.direct import regression_bytes
from cfnade.beyond.factors import can_start_from_factors
from cfnade.beyond.readout import RECENCY, Readout
from cfnade.checks import check_bytes
from cfnade.data.events import Clock
from cfnade.data.interactions import CountMatrix
from cfnade.data.item_features import ItemFeatures
from cfnade.errors import ConfigError
from cfnade.fit.settings import FitSettings, Recipe, ValidationBy
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.scorer import BLOCK_BYTES
from cfnade.threads import has_fast_bfloat16

logger = logging.getLogger(__name__)

MOST_VALIDATION_USERS, LEAST_VALIDATION_USERS, VALIDATION_USER_SHARE = 2_000, 500, 0.25
"""Users to hold out from for validation: a share of all within bounds. That is enough to choose a
readout and to calibrate, while nearly all pairs are trained on."""

LEAST_TIMED_USERS, TIMED_SCORES = 250, 15_000_000
"""With times: fewest users to hold out from, and about how many of their scores to judge at once,
since the search for the readout takes about 50 looks."""

LOOK_BYTES = 4 * 2**20
"""Scores to rank at once when a network is judged: they stay in the cache."""

FEWEST_REPEATS, REPEAT_SCORES = 50, 1_000_000
"""Held-out repeats without which none are modelled, and scores of new items to compare with."""

FEWEST_NEW_TARGETS = 300
"""Held-out target events with items new to the user, below which the network is judged on any."""

TRAINED_TWICE = ("time", "last")
"""Ways of validation after which the network is trained again, on the latest events too."""

ALL_EVENTS = "training on all events"
"""Name of the stage that trains again, once the readout is found on the latest events."""

N_UPDATES, MOST_EPOCHS = 500, 25
"""Approximate updates after a start from factors, as the step size falls to 0; and the most epochs
if items have few watchers, as more would overfit."""

MOST_CALIBRATION_USERS, LEAST_CALIBRATION_USERS, CALIBRATION_PAIRS = 2_000, 200, 30_000_000
"""Most and fewest users to fit the calibrator on, and the most pairs of these with items."""

WELL_KNOWN_WATCHERS, WELL_KNOWN_SHARE = 130, 0.03
"""Items with this many watchers, or this share of all users, are well known: they need little
regularisation."""

N_FACTORS, FACTOR_USERS = 256, 30_000
"""Factors of the factorisation, and the most users to make it from: it takes seconds."""

FACTOR_ITERATIONS, ROUGH_ITERATIONS = 15, 6
"""Iterations of its ALS, and of one that needs few: on a sample of users, for a network that only
finds the readout, or from the factors of a part of the data."""

ROUGH_EPOCHS = 0.5
"""Share of the epochs that a network is trained for to find the readout, if another one is then
trained on all events (docs/decisions/0041)."""

FACTOR_ALPHAS = (10.0, 30.0, 100.0, 300.0, 1000.0)
"""Rates of confidence of the factorisation, from many to few watchers per item."""

DIRECT_MAX_ITEMS = 100_000
"""Maximum number of items for a direct path: each item takes a regression."""

MANY_NEIGHBOURS, FEW_NEIGHBOURS = 100, 32
"""Neighbours in the direct path, of items with many and with few watchers."""

DENSE_MAX_ITEMS = 20_000
"""Maximum number of items for a dense array of shared watchers (1.6 GB)."""

SPARSE_USERS = 50_000
"""Users sampled for the sparse array above that."""

SEVERAL_THREADS_LOGITS = 1_000_000
"""Logits per update above which training is faster on several threads than on one."""

_LEAST_BATCH, _BATCH, _MOST_BATCH = 16, 200, 1000  # users
_LEAST_UPDATES, _MANY_UPDATES = 8, 250  # in an epoch: fewer with smaller, more with larger batches
_PATIENCE, _PATIENCE_UPDATES = 6, 200  # epochs; updates
_VALIDATE, _VALIDATE_UPDATES = 2, 50

# Bytes, and copies of arrays at the same time.
_INTERPRETER = 400 * 10**6  # Python with torch and the libraries beneath
_LEAST_BLOCK = 2**20
_PAIR_BYTES = 100  # counts, ratings and confidences of a pair, and temporary copies
_WEIGHT_COPIES = 7  # weights, gradients, two of Adam, best, and two while items move
_FACTOR_COPIES = 3  # of users, of items, and temporary copies
_JUDGED_COPIES = 3  # of the scores of held-out users: network, direct path, their sum
_ANSWER_BYTES = 40  # id and score of a recommended item, and temporary copies
_BLOCK_COPIES = 3  # scores, the direct path's part of them, and the marks of the selection


@dataclass(frozen=True)
class FactorPlan:
    """The factorisation that training starts from."""

    n_factors: int
    alpha: float
    max_users: int = FACTOR_USERS
    """Users to sample at most."""

    n_iterations: int = FACTOR_ITERATIONS

    def rough(self) -> FactorPlan:
        """The same with few iterations: for a rough start, or from factors of similar data."""
        return replace(self, n_iterations=min(self.n_iterations, ROUGH_ITERATIONS))


@dataclass(frozen=True)
class DirectPlan:
    """The regressions of the direct path."""

    n_candidates: int
    max_users: int | None
    """Users to sample for a sparse array of shared watchers; None uses all, dense."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that the parts of fitting take at most."""

    data: int
    """Counts, ratings and confidences."""

    weights: int
    """Weights, and all copies that training keeps."""

    update: int
    """Logits of one batch."""

    direct: int
    """Regressions of the direct path, or of the neighbours that the start has instead."""

    factors: int
    """The factorisation that training starts from."""

    judged: int
    """Scores of the held-out users."""

    block: int
    """Scores that are ranked at once."""

    @classmethod
    def of(
        cls,
        n_users: int,
        n_pairs: int,
        model: ModelConfig,
        training: TrainingConfig,
        *,
        direct: int = 0,
        n_factors: int = 0,
        judged_users: int = 0,
        n_trainings: int = 1,
    ) -> MemoryPlan:
        """Estimate what fitting takes, with the bytes of the direct path and several trainings."""
        share, n_items = training.context_share, model.n_items
        n_targets = n_items if share is None else int((1.0 - share) * n_items) + 1
        return cls(
            data=_PAIR_BYTES * n_pairs,
            weights=4 * 3 * n_items * model.n_hidden * _WEIGHT_COPIES * n_trainings,
            update=4 * training.batch_size * n_targets * 2 * n_trainings,
            direct=direct,
            factors=4 * (min(n_users, FACTOR_USERS) + n_items) * n_factors * _FACTOR_COPIES,
            judged=4 * judged_users * n_items * _JUDGED_COPIES,
            block=2 * BLOCK_BYTES,
        )

    @property
    def total(self) -> int:
        """Most bytes in use at the same time."""
        held = self.data + self.weights + self.direct + self.judged + self.block
        return _INTERPRETER + held + max(self.update, self.factors)

    def describe(self) -> str:
        """In one line."""
        parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in vars(self).items() if size)
        return f"fitting takes about {self.total / 1e9:.1f} GB at most ({parts})"

    def within(self, limit: int) -> MemoryPlan:
        """Stay within a limit: rank fewer scores at once, then leave the direct path out.

        Raises:
            ConfigError: If that is not enough.
        """
        for wanted in (self, replace(self, direct=0)):
            too_much = max(0, wanted.total - limit)
            smaller = replace(wanted, block=max(_LEAST_BLOCK, wanted.block - too_much))
            if smaller.total <= limit:
                return smaller
        raise ConfigError(
            f"{smaller.describe()}: more than the limit of {limit / 1e9:.1f} GB; allow more, or "
            "use fewer items, hidden units or users in a batch"
            + (", or recipe__start='random'" if self.factors else "")
        )


@dataclass(frozen=True)
class FitPlan:
    """All decisions of one fit."""

    n_users: int
    n_pairs: int
    model: ModelConfig
    training: TrainingConfig
    readout: Readout
    """Values that are None are searched for."""

    factors: FactorPlan | None
    """None starts at random."""

    direct: DirectPlan | None
    """None leaves the direct path out."""

    start_neighbours: DirectPlan | None
    """Neighbours that the start has beside the factors; None has none, as always if there is a
    direct path."""

    trials: int
    """Maximum number of trainings in the search for `max_epochs`, `alpha` and `item_l2`."""

    memory: MemoryPlan
    trains_beside: bool = False
    """Whether training on all events runs beside the steps that find the readout."""

    memory_limit: int | None = None
    validation_by: ValidationBy = "pairs"
    """How validation is held out."""

    clock: Clock | None = None
    """What the times of events are; None without times."""

    @classmethod
    def of(cls, counts: CountMatrix, settings: FitSettings, clock: Clock | None = None) -> FitPlan:
        """Plan the fit of counts, (n_users, n_items), with times of this clock if there are any.

        Raises:
            ConfigError: If a setting is invalid, or the fit cannot stay within the limit of
                memory.
        """
        n_users, n_items = counts.shape
        return cls.of_size(n_users, n_items, counts.nnz, settings, clock)

    @classmethod
    def of_size(
        cls,
        n_users: int,
        n_items: int,
        n_pairs: int,
        settings: FitSettings,
        clock: Clock | None = None,
    ) -> FitPlan:
        """Plan the fit of data of this size; see `of`."""
        recipe = settings.recipe
        model = ModelConfig(n_items, **_shared(ModelConfig, recipe))
        factors = _factors(recipe, model, n_users, n_pairs)
        if recipe.schedule is None:
            recipe = replace(recipe, schedule="constant" if factors is None else "linear")
        direct = start_neighbours = None
        if n_items <= DIRECT_MAX_ITEMS:
            regressions = _direct(recipe.readout, n_users, n_items, n_pairs)
            if recipe.readout.direct:
                direct = regressions
            elif factors is not None and recipe.start is None:
                start_neighbours = regressions
        training = _training(
            recipe, n_users, n_items, n_pairs, settings.seed, start_neighbours is not None
        )
        given = settings.memory_limit
        limit = None if given is None else check_bytes("memory_limit", given)
        by = _validation_by(settings.validation_by, clock)
        trains_beside = recipe.trials == 1 and by in TRAINED_TWICE
        sizes = partial(
            MemoryPlan.of,
            n_users,
            n_pairs,
            model,
            training,
            direct=_direct_bytes(direct or start_neighbours, n_users, n_items, n_pairs),
            n_factors=0 if factors is None else factors.n_factors,
            judged_users=_validation_users(n_users, n_items, clock),
        )
        memory = sizes(n_trainings=1 + trains_beside)
        if limit is not None and memory.total > limit:
            trains_beside, memory = False, sizes().within(limit)
        if not memory.direct:
            direct = start_neighbours = None
        readout = replace(recipe.readout, direct=False)
        if direct is not None:
            readout = replace(recipe.readout, direct_neighbours=direct.n_candidates)
        return cls(
            n_users,
            n_pairs,
            model,
            training,
            readout,
            factors,
            direct,
            start_neighbours,
            recipe.trials,
            memory,
            trains_beside,
            limit,
            by,
            clock,
        )

    def training_threads(self, n_threads: int) -> int:
        """Number of threads to train with, at most `n_threads`."""
        n_logits = self.memory.update // (8 * (1 + self.trains_beside))
        return n_threads if n_logits >= SEVERAL_THREADS_LOGITS else 1

    @property
    def validation_users(self) -> int:
        """Maximum number of users to hold out from for validation."""
        return _validation_users(self.n_users, self.model.n_items, self.clock)

    @property
    def repeat_users(self) -> int:
        """Users whose scores of new items the model of repeats is compared with."""
        return max(1, REPEAT_SCORES // self.model.n_items)

    @property
    def refits(self) -> bool:
        """Whether to train again on all events, the latest included."""
        return self.validation_by in TRAINED_TWICE

    def rough(self) -> FitPlan:
        """The same with a short training, for a network that only finds the readout."""
        training, factors = self.training, self.factors
        if factors is None or training.schedule != "linear":
            return self
        n_epochs = max(1, round(ROUGH_EPOCHS * training.max_epochs))
        short = self.changed(self.model.alpha, training.item_l2, n_epochs)
        return replace(short, factors=factors.rough())

    @property
    def rows_per_block(self) -> int:
        """Users whose scores are made at once when a network is judged."""
        return max(1, self.memory.block // (2 * 4 * self.model.n_items))

    @property
    def rows_per_look(self) -> int:
        """Users whose scores are ranked at once."""
        return max(1, min(self.rows_per_block, LOOK_BYTES // (4 * self.model.n_items)))

    @property
    def stages(self) -> dict[str, float]:
        """The stages of the fit in order, and about how many billions of operations each takes."""
        model, training = self.model, self.training
        n_items, n_updates = model.n_items, training.updates_per_epoch(self.n_users)
        product = 6e-9 * n_items * model.n_hidden / 2  # of a user in training
        stages = {
            "factors": 0.0,
            "direct path": 0.0,
            "training": training.max_epochs * n_updates * training.batch_size * product,
            "readout": 7e-6 * self.validation_users * n_items,
            "calibration": 20.0,
        }
        if self.direct is not None:
            stages["direct path"] = 1e-6 * n_items * self.direct.n_candidates**2
        if self.factors is not None:
            n_rows = min(self.n_users, self.factors.max_users) + n_items
            stages["factors"] = 2e-7 * n_rows * self.factors.n_factors**2
            if self.start_neighbours is not None:
                stages["factors"] += 1e-6 * n_items * self.start_neighbours.n_candidates**2
        for number in range(2, self.trials + 1):
            stages[f"training {number}"] = stages["training"]
        after = {name: stages.pop(name) for name in ("readout", "calibration")}
        if self.clock is not None:
            after["readout"] *= 6  # more to search
        after["direct path of all pairs"] = stages["direct path"]
        if self.refits:
            if self.trials == 1 and self.factors is not None:
                stages["factors"] *= self.factors.rough().n_iterations / self.factors.n_iterations
            again = stages["factors"] + stages["training"]
            if self.trials == 1:
                stages["training"] *= self.rough().training.max_epochs / training.max_epochs
            if self.trains_beside:  # what is left of it
                again = max(0.0, again - stages["training"] - sum(after.values()))
            after[ALL_EVENTS] = again
        return stages | after

    def stages_with(self, features: ItemFeatures | None) -> dict[str, float]:
        """The stages of a fit with features of items."""
        if features is None:
            return self.stages
        work = 1e-8 * features.matrix.nnz * self.model.n_hidden + 1e-6 * features.n_items
        names = list(self.stages)
        names.insert(names.index("calibration"), "features")
        return {name: self.stages.get(name, work) for name in names}

    def check_features(self, features: ItemFeatures, limit: str | None) -> None:
        """Refuse features that do not fit the limit of memory."""
        needed = self.memory.total + feature_bytes(features, self.model)
        if limit is not None and needed > check_bytes("memory_limit", limit):
            raise ConfigError(
                f"fitting with {features.n_items:,} items and {features.n_features:,} features "
                f"takes about {needed / 1e9:.1f} GB, more than the limit of {limit}; allow more, "
                "or leave out items or columns of the items table"
            )

    @property
    def grid(self) -> dict[str, Sequence[Any]]:
        """Values to try if there are several trials."""
        n_epochs, alpha, l2 = self.training.max_epochs, self.model.alpha, self.training.item_l2
        return {
            "max_epochs": sorted({max(1, n_epochs // 2), n_epochs, 2 * n_epochs, 4 * n_epochs}),
            "alpha": sorted({alpha / 9, alpha / 3, alpha, 3 * alpha, 9 * alpha}),
            "item_l2": sorted({l2 / 4, l2, 4 * l2}),  # all the same if it is 0
        }

    def changed(self, alpha: float, item_l2: float, max_epochs: int) -> FitPlan:
        """The plan with other values of the grid."""
        training = replace(self.training, item_l2=item_l2, max_epochs=max_epochs)
        if training.schedule == "linear":
            training = replace(training, validate_every=max_epochs, patience=max_epochs)
        return replace(self, model=replace(self.model, alpha=alpha), training=training)

    def has_most_pairs(self, seen: Sequence[Mapping[str, Any]]) -> bool:
        """Whether these data have at least as many pairs as any in `seen`, by fingerprint.

        If so, they replace the direct neighbours of the known items.
        """
        return all(self.n_pairs >= data.get("n_pairs", 0) for data in seen)

    def lines(self) -> list[str]:
        """The plan in a few readable lines."""
        model, training = self.model, self.training
        start = "random weights"
        if self.factors is not None:
            start = f"{self.factors.n_factors} factors (alpha {self.factors.alpha:g})"
            if self.start_neighbours is not None:
                start += f" and {self.start_neighbours.n_candidates} neighbours for each item"
        direct = "none"
        if self.direct is not None:
            users = self.direct.max_users
            direct = f"{self.direct.n_candidates} neighbours for each item"
            direct += "" if users is None else f", found on {users:,} users at most"
        is_searched = self.direct is not None and self.readout.direct_gain is None
        searched = ["direct_gain"] if is_searched else []
        if self.clock is not None:
            searched += [name for name in RECENCY if getattr(self.readout, name) is None]
        return [
            f"data: {self.n_users:,} users, {model.n_items:,} items, {self.n_pairs:,} pairs, "
            f"{self.n_pairs / max(model.n_items, 1):.1f} watchers per item",
            f"network: {model.n_hidden} hidden units, alpha {model.alpha:g}, start from {start}",
            f"training: {training.optimizer}, step {training.learning_rate:g}, batches of "
            f"{training.batch_size}, item_l2 {training.item_l2:g}, "
            f"{self._epochs_in_words()}, {training.precision} products"
            f"{'' if self.trials == 1 else f'; up to {self.trials} trials around that'}",
            f"direct path: {direct}",
            f"readout: searches {', '.join(searched) or 'nothing'}; validation by "
            f"{self.validation_by}",
            self.memory.describe(),
        ]

    def _epochs_in_words(self) -> str:
        training = self.training
        if training.schedule == "linear":
            return f"{training.max_epochs} epochs with a falling step"
        return (
            f"at most {training.max_epochs} epochs, validated every {training.validate_every}, "
            f"patience {training.patience}"
        )


def _validation_users(n_users: int, n_items: int, clock: Clock | None) -> int:
    """Maximum number of users to hold out from."""
    share = int(VALIDATION_USER_SHARE * n_users)
    most = MOST_VALIDATION_USERS
    if clock is not None:  # some of them have no later events, and there is more to search
        share, most = n_users, min(most, max(LEAST_TIMED_USERS, TIMED_SCORES // max(n_items, 1)))
    return min(n_users, most, max(LEAST_VALIDATION_USERS, share))


def _validation_by(given: ValidationBy | None, clock: Clock | None) -> ValidationBy:
    """As given, or by time if there are times: that is how the model is used."""
    if given is not None:
        return given
    if clock is None:
        return "pairs"
    return "last" if clock == "order" else "time"


def _shared(kind: type, recipe: Recipe) -> dict[str, Any]:
    """Fields that a recipe and a configuration share."""
    return {f.name: getattr(recipe, f.name) for f in fields(kind) if hasattr(recipe, f.name)}


def _training(
    recipe: Recipe, n_users: int, n_items: int, n_pairs: int, seed: int, with_neighbours: bool
) -> TrainingConfig:
    settings: Mapping[str, Any] = _shared(TrainingConfig, recipe)
    decided: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    decided["context_share"] = recipe.context_share  # None has a meaning of its own
    if recipe.batch_size is None:
        few = min(_BATCH, max(_LEAST_BATCH, n_users // _LEAST_UPDATES))
        decided["batch_size"] = max(few, min(_MOST_BATCH, n_users // _MANY_UPDATES))
    is_well_known = _is_well_known(n_users, n_items, n_pairs)
    if recipe.item_l2 is None:
        weak, strong = (0.1, 0.4) if with_neighbours else (0.02, 0.8)
        decided["item_l2"] = weak if is_well_known else strong
    if recipe.learning_rate is None:
        overfits = recipe.schedule == "linear" and not is_well_known
        more = max(1.0, decided["batch_size"] / _BATCH)
        decided["learning_rate"] = 3e-3 if overfits else 5e-3 * math.sqrt(more)
    if recipe.precision is None:
        decided["precision"] = "bfloat16" if has_fast_bfloat16() else "float32"
    training = TrainingConfig(**decided, seed=seed)
    n_updates = max(training.updates_per_epoch(n_users), 1)  # in an epoch
    is_linear = training.schedule == "linear"
    if recipe.max_epochs is None and is_linear:
        n_epochs = max(1, round(N_UPDATES / n_updates))
        n_epochs = n_epochs if is_well_known else min(n_epochs, MOST_EPOCHS)
        training = replace(training, max_epochs=n_epochs)
    # With few users an epoch has few updates, so patience and validation are set in updates.
    if recipe.patience is None:
        patience = max(_PATIENCE, math.ceil(_PATIENCE_UPDATES / n_updates))
        training = replace(training, patience=training.max_epochs if is_linear else patience)
    if recipe.validate_every is None:
        at_most = max(_VALIDATE, min(training.max_epochs // 4, training.patience))
        every = max(_VALIDATE, math.ceil(_VALIDATE_UPDATES / n_updates))
        every = training.max_epochs if is_linear else min(every, at_most)
        training = replace(training, validate_every=every)
    return training


def _factors(recipe: Recipe, model: ModelConfig, n_users: int, n_pairs: int) -> FactorPlan | None:
    can = can_start_from_factors(model)
    if recipe.start == "factors" and not can:
        raise ConfigError(
            "starting from factors needs a single layer of tanh or identity, got "
            f"n_layers={model.n_layers}, activation={model.activation!r}; use start='random'"
        )
    if recipe.start == "random" or not can:
        return None
    is_sample = n_users > FACTOR_USERS
    n_pairs = n_pairs * FACTOR_USERS // n_users if is_sample else n_pairs
    n_watchers = max(n_pairs / max(model.n_items, 1), 1e-9)
    # The fewer watchers an item has, the more each of them counts.
    wanted = 10.0 * max(WELL_KNOWN_WATCHERS / n_watchers, 1.0) ** 2
    alpha = min(FACTOR_ALPHAS, key=lambda alpha: abs(math.log(alpha / wanted)))
    n_factors = max(1, min(N_FACTORS, min(n_users, model.n_items) // 2))
    n_iterations = ROUGH_ITERATIONS if is_sample else FACTOR_ITERATIONS
    return FactorPlan(n_factors, alpha, FACTOR_USERS, n_iterations)


def _direct_bytes(direct: DirectPlan | None, n_users: int, n_items: int, n_pairs: int) -> int:
    if direct is None:
        return 0
    return regression_bytes(n_users, n_items, n_pairs, direct.n_candidates, direct.max_users)


def _direct(readout: Readout, n_users: int, n_items: int, n_pairs: int) -> DirectPlan:
    usual = MANY_NEIGHBOURS if _is_well_known(n_users, n_items, n_pairs) else FEW_NEIGHBOURS
    max_users = None if n_items <= DENSE_MAX_ITEMS else SPARSE_USERS
    return DirectPlan(readout.direct_neighbours or usual, max_users)


def _is_well_known(n_users: int, n_items: int, n_pairs: int) -> bool:
    """Whether items have many watchers."""
    least = min(WELL_KNOWN_WATCHERS, WELL_KNOWN_SHARE * n_users)
    return n_pairs / max(n_items, 1) >= least


def feature_users(n_items: int) -> int:
    """Users on which it is judged how strongly features count."""
    return min(1000, max(20_000_000 // n_items, 1))


def feature_bytes(features: ItemFeatures, model: ModelConfig) -> int:
    """Memory that features take at most, beside a network of the items with watchers."""
    rows = features.n_items * (4 * model.n_hidden * 12 + 100 * 12 * 4)
    coefficients = 4 * features.n_features * model.n_hidden * 2
    judged = 4 * feature_users(features.n_items) * features.n_items * 6
    return int(rows + coefficients + judged + 40 * features.matrix.nnz)


def calibration_users(n_items: int) -> int:
    """Maximum number of users to fit the calibrator on."""
    affordable = CALIBRATION_PAIRS // n_items
    return min(MOST_CALIBRATION_USERS, max(LEAST_CALIBRATION_USERS, affordable))


def recommending_block(n_users: int, n_pairs: int, n: int, model: ModelConfig, limit: int) -> int:
    """Bytes of scores to hold at once when recommending, within a limit.

    Args:
        n_users: To recommend for.
        n_pairs: In their histories.
        n: Items for each user.
        model: The network.
        limit: Bytes.

    Raises:
        ConfigError: If not even the scores of one user fit.
    """
    weights = model.n_items * (4 * 3 * model.n_hidden + 12 * model.n_neighbours)
    answers = _ANSWER_BYTES * n_users * n
    fixed = _INTERPRETER + weights + _PAIR_BYTES // 4 * n_pairs + answers
    block = min(BLOCK_BYTES, max(4 * model.n_items, (limit - fixed) // _BLOCK_COPIES))
    total = fixed + _BLOCK_COPIES * block
    message = f"recommending takes about {total / 1e9:.1f} GB at most"
    if total > limit:
        raise ConfigError(
            f"{message}: more than the limit of {limit / 1e9:.1f} GB; allow more, or recommend "
            "for fewer users at a time"
        )
    logger.info("%s", message)
    return block
