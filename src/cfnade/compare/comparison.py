"""The comparison: every model is tuned on validation in the same way, then tested once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cfnade.answer.probability import Calibrator
from cfnade.compare.contender import Contender
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.registry import contender
from cfnade.compare.reliability import Calibration
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, TrainingError, n_of
from cfnade.metrics.evaluate import Evaluation, distances_to_best
from cfnade.metrics.search import Trial
from cfnade.scorer import Scorer

logger = logging.getLogger(__name__)

# Strong models whose search takes no longer than CF-NADE's.
DEFAULT_MODELS = ("popularity", "imf", "ials", "ease", "edlae", "cfnade")
MAX_TRIALS = 10
FEW_USERS = 20  # with fewer tested, models are not compared with the best: chance would decide


@dataclass(frozen=True)
class Result:
    """The figures of one model: metrics on test, and the settings chosen on validation."""

    model: str
    metrics: dict[str, float]
    """MPR in percent; `intervals` are 95 % bootstrap intervals over users."""

    intervals: dict[str, tuple[float, float]]
    fit_seconds: float
    search_seconds: float
    n_settings: int
    """Tried on validation."""

    validation_mpr: float
    settings: dict[str, Any]
    calibration: Calibration | None = None
    """How well its probabilities hold on test; None if it gives none."""

    to_best: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By metric, the 95 % interval of the difference to the best model (paired bootstrap over
    users). The best has (0, 0). Empty if few users are tested."""

    def is_best(self, metric: str) -> bool:
        """Whether no model is better by this metric."""
        return self.to_best.get(metric) == (0.0, 0.0)

    def is_level_with_best(self, metric: str) -> bool:
        """Whether its difference to the best is not significant."""
        low, high = self.to_best.get(metric, (1.0, 1.0))
        return low <= 0.0 <= high and not self.is_best(metric)


@dataclass(frozen=True)
class Comparison:
    """The figures of all models on one split, lowest MPR first."""

    dataset: str
    n_users: int
    n_items: int
    n_pairs: int
    protocol: dict[str, Any]
    results: list[Result]

    def to_json(self) -> dict[str, Any]:
        """As the commands write it; the format is in docs/json.md."""
        return asdict(self)


@dataclass(frozen=True)
class JobProgress:
    """How far a comparison or sweep has come."""

    model: str
    doing: Literal["search", "fit", "test"]
    n_done: int = 0
    n_most: int = 0
    trial: Trial | None = None


OnProgress = Callable[[JobProgress], None]


def compare(
    data: Interactions,
    models: Sequence[str] | Mapping[str, Contender] = DEFAULT_MODELS,
    *,
    dataset: str = "data",
    test: Interactions | None = None,
    config: ProtocolConfig | None = None,
    max_trials: int | dict[str, int] = MAX_TRIALS,
    on_progress: OnProgress | None = None,
    on_fitted: Callable[[str, Scorer], None] | None = None,
) -> Comparison:
    """Compare models on one split.

    Each model's settings are chosen on validation; then it is fitted on train and validation
    together and judged on test, once.

    Args:
        data: All counts, or the training part if `test` is given.
        models: Names, see `cfnade.compare.registry.CONTENDERS`, or contenders by name.
        dataset: A name for the outcome.
        test: A fixed test part.
        config: How pairs are held out and judged.
        max_trials: Settings that each model may try, for all models or by name.
        on_progress: Called as the job goes on.
        on_fitted: Called with each final model.

    Returns:
        All figures, best MPR first.

    Raises:
        ConfigError: If there is no such model.
        DataError: If nothing can be held out.
        TrainingError: If no model could be fitted. A model that fails is left out.
    """
    if not models:
        raise ConfigError("name at least one model to compare")
    protocol = Protocol(data, test, config)
    if not isinstance(models, Mapping):
        models = {name: contender(name, protocol.config.seed) for name in models}
    notify = on_progress or (lambda progress: None)
    results, evaluations = [], []
    for name, candidate in models.items():
        most = max_trials if isinstance(max_trials, int) else max_trials.get(name, MAX_TRIALS)
        try:
            result, evaluation, fitted = _enter(name, candidate, protocol, most, notify)
        except TrainingError as error:
            logger.warning("%s is left out: %s", name, error)
            continue
        results.append(result)
        evaluations.append(evaluation)
        if on_fitted is not None:
            on_fitted(name, fitted)
    if not results:
        raise TrainingError(f"none of the models could be fitted: {', '.join(models)}")
    n_tested = int(protocol.facts["n_test_users"])
    if n_tested >= FEW_USERS:
        _add_distances(results, evaluations, protocol.config.seed)
    else:
        logger.warning("only %s tested: too few to compare models", n_of(n_tested, "user"))
    results.sort(key=lambda result: result.metrics["mpr"])
    return Comparison(dataset, data.n_users, data.n_items, data.n_pairs, protocol.facts, results)


def _enter(
    name: str, candidate: Contender, protocol: Protocol, max_trials: int, notify: OnProgress
) -> tuple[Result, Evaluation, Scorer]:
    """Choose the settings of one model, fit it and test it."""
    notify(JobProgress(name, "search", 0, max_trials))
    search = candidate.search(
        protocol.validation,
        max_trials=max_trials,
        on_trial=lambda *done: notify(JobProgress(name, "search", *done)),
    )
    best = search.best
    notify(JobProgress(name, "fit"))
    started = time.perf_counter()
    fitted = candidate.fit(protocol.known, best.settings, protocol.relative_rating)
    seconds = time.perf_counter() - started
    notify(JobProgress(name, "test"))
    evaluation, calibration = protocol.test(fitted), None
    if isinstance(best.extra, Calibrator):
        calibration = protocol.test_probabilities(fitted, best.extra)
    result = Result(
        name,
        evaluation.metrics,
        evaluation.intervals,
        round(seconds, 3),
        round(search.seconds, 3),
        len(search.trials),
        best.cost,
        best.settings,
        calibration,
    )
    return result, evaluation, fitted


def _add_distances(results: list[Result], evaluations: list[Evaluation], seed: int) -> None:
    """Add each model's difference to the best, by every metric."""
    for metric in results[0].metrics:
        distances = distances_to_best(evaluations, metric, rng=seed)
        for result, distance in zip(results, distances, strict=True):
            result.to_best[metric] = distance
