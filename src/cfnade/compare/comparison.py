"""The comparison: every model tuned on validation with the same care, then tested once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from cfnade.compare.contenders import Contender, contender
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.reliability import Calibration
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, TrainingError, n_of
from cfnade.metrics.evaluate import Evaluation, distances_to_best
from cfnade.metrics.search import Trial
from cfnade.scorer import Scorer

logger = logging.getLogger(__name__)

DEFAULT_MODELS = ("popularity", "imf", "ials", "ease", "edlae", "cfnade")
"""The fast ones among the strong: each search takes minutes where CF-NADE's does."""

MAX_TRIALS = 10

FEW_USERS = 20
"""Tested users below which nothing is said of who is best: who was tested decides."""


@dataclass(frozen=True)
class Result:
    """What one model reached."""

    model: str
    metrics: dict[str, float]
    """On test; MPR in percent."""

    intervals: dict[str, tuple[float, float]]
    """95 % bootstrap interval over users."""

    fit_seconds: float
    """Of the final fit."""

    search_seconds: float
    """Of choosing the settings."""

    n_settings: int
    """Tried on validation."""

    validation_mpr: float
    """Of the chosen ones."""

    settings: dict[str, Any]
    """Chosen."""

    calibration: Calibration | None = None
    """How its probabilities hold on test, where the model gives any."""

    to_best: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By metric, the 95 % interval of its value less that of the model that is best by it, user
    by user (paired bootstrap over users); the best itself has (0, 0). Empty with few users."""

    def is_best(self, metric: str) -> bool:
        """Whether no model is better by this metric."""
        return self.to_best.get(metric) == (0.0, 0.0)

    def is_level_with_best(self, metric: str) -> bool:
        """Whether it is behind the best by no more than the noise."""
        low, high = self.to_best.get(metric, (1.0, 1.0))
        return low <= 0.0 <= high and not self.is_best(metric)


@dataclass(frozen=True)
class Comparison:
    """What all models reached on one split."""

    dataset: str
    n_users: int
    n_items: int
    n_pairs: int
    protocol: dict[str, Any]
    results: list[Result]
    """Lowest MPR first."""

    def to_json(self) -> dict[str, Any]:
        """As the commands write it; the format is in docs/json.md."""
        return asdict(self)


@dataclass(frozen=True)
class Progress:
    """Where a long job is, for whoever shows it."""

    model: str
    doing: str
    """`search`, `fit` or `test`."""

    n_done: int = 0
    n_most: int = 0
    trial: Trial | None = None


OnProgress = Callable[[Progress], None]


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
        models: Names, see `cfnade.compare.contenders.CONTENDERS`, or contenders by name.
        dataset: A name for the outcome.
        test: A fixed test part.
        config: How pairs are held out and judged.
        max_trials: Settings that a model may try on validation; by model name if it differs.
        on_progress: Called as the job goes on.
        on_fitted: Called with each final model.

    Returns:
        All figures, best MPR first.

    Raises:
        ConfigError: If there is no such model.
        DataError: If nothing can be held out.
        TrainingError: If no model could be fitted; one that cannot be is left out.
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
        results = _with_distances(results, evaluations, protocol.config.seed)
    else:
        logger.warning("only %s tested: that says little", n_of(n_tested, "user"))
    results.sort(key=lambda result: result.metrics["mpr"])
    return Comparison(dataset, data.n_users, data.n_items, data.n_pairs, protocol.facts, results)


def _enter(
    name: str, candidate: Contender, protocol: Protocol, max_trials: int, notify: OnProgress
) -> tuple[Result, Evaluation, Scorer]:
    """Choose the settings of one model, fit it and test it."""
    notify(Progress(name, "search", 0, max_trials))
    search = candidate.search(
        protocol.validation, max_trials=max_trials, on_trial=partial(_report_trial, notify, name)
    )
    notify(Progress(name, "fit"))
    started = time.perf_counter()
    fitted = candidate.fit(protocol.known, search.best.settings, protocol.relative_rating)
    seconds = time.perf_counter() - started
    notify(Progress(name, "test"))
    evaluation, calibrator = protocol.test(fitted), search.best.calibrator
    result = Result(
        name,
        evaluation.metrics,
        evaluation.intervals,
        round(seconds, 3),
        round(search.seconds, 3),
        len(search.trials),
        search.best.cost,
        search.best.settings,
        None if calibrator is None else protocol.test_probabilities(fitted, calibrator),
    )
    return result, evaluation, fitted


def _with_distances(
    results: Sequence[Result], evaluations: Sequence[Evaluation], seed: int
) -> list[Result]:
    """Tell each how far it is from the best by every metric."""
    by_metric = {
        metric: distances_to_best(evaluations, metric, rng=seed) for metric in results[0].metrics
    }
    return [
        replace(result, to_best={metric: found[place] for metric, found in by_metric.items()})
        for place, result in enumerate(results)
    ]


def _report_trial(notify: OnProgress, name: str, n_done: int, n_most: int, trial: Trial) -> None:
    notify(Progress(name, "search", n_done, n_most, trial))
