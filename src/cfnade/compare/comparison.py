"""The comparison: every model is tuned on validation in the same way, then tested once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cfnade.answer.probability import Calibrator
from cfnade.beyond.readout import RECENCY
from cfnade.compare.contender import Contender
from cfnade.compare.described import with_items
from cfnade.compare.kept import KeptModels
from cfnade.compare.outcome import Comparison, Result
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.recency_search import find_recency
from cfnade.compare.registry import contender
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, TrainingError, n_of
from cfnade.metrics.evaluate import Evaluation, distances_to_best
from cfnade.metrics.search import Trial
from cfnade.scorer import Scorer

logger = logging.getLogger(__name__)

# Strong models that can try several settings in their time.
DEFAULT_MODELS = ("popularity", "imf", "ials", "ease", "edlae", "cfnade")
BUDGET = 60.0  # seconds of search for each model
MAX_TRIALS = 20
FEW_USERS = 20  # with fewer tested, models are not compared with the best: chance would decide


@dataclass(frozen=True)
class JobProgress:
    """How far a comparison or sweep has come."""

    model: str
    doing: Literal["search", "fit", "test", "done"]
    n_done: float = 0
    n_most: float = 0
    """Seconds of a search with a budget, else trials; alphas of a sweep."""

    n_trials: int = 0
    best_mpr: float | None = None
    """MPR of the best settings on validation so far."""

    result: Result | None = None
    """Set once the model is done; `is_kept` if an earlier call did it."""

    is_kept: bool = False


OnProgress = Callable[[JobProgress], None]


def compare(
    data: Interactions,
    models: Sequence[str] | Mapping[str, Contender] = DEFAULT_MODELS,
    *,
    dataset: str = "data",
    test: Interactions | None = None,
    items: Any = None,
    config: ProtocolConfig | None = None,
    budget: float | None = BUDGET,
    max_trials: int | dict[str, int] = MAX_TRIALS,
    beyond_accuracy: bool = False,
    keep: Path | None = None,
    fresh: bool = False,
    on_progress: OnProgress | None = None,
    on_fitted: Callable[[str, Scorer], None] | None = None,
) -> Comparison:
    """Compare models on one split.

    Each model's settings are chosen on validation, all models by the same metrics
    (`ProtocolConfig.choose_by`); then it is fitted on train and validation together and judged on
    test, once. A row of the table is one fitted model, whatever the metric.

    Args:
        data: All counts, or the training part if `test` is given.
        models: Names, see `cfnade.compare.registry.CONTENDERS`, or contenders by name.
        dataset: A name for the outcome.
        test: A fixed test part.
        items: What is known about items, as `read_items` reads it, for models that can use it.
        config: How pairs are held out and judged.
        budget: Seconds that each model has for its search; None for no limit. A running trial is
            finished, so a search may take longer; models that are searched later then have as long.
        max_trials: Settings that each model may try, for all models or by name.
        beyond_accuracy: Measure coverage, novelty and diversity of each model's lists as well.
        keep: Folder in which finished models are kept until all are done. A second call with the
            same arguments continues from there.
        fresh: Delete the kept results of these models first.
        on_progress: Called as the job progresses.
        on_fitted: Called with each final model that this call fits.

    Returns:
        All figures, best MPR first.

    Raises:
        ConfigError: If there is no such model.
        DataError: If nothing can be held out, or the items table cannot be used.
        TrainingError: If no model could be fitted. A model that fails is left out.
    """
    if not models:
        raise ConfigError("name at least one model to compare")
    protocol = Protocol(data, test, config)
    if not isinstance(models, Mapping):
        models = {name: contender(name, protocol.config.seed) for name in models}
    models = with_items(models, data, items)
    if protocol.config.candidates == "all" and data.clock is None and data.target_event is None:
        _report_untrained_repeats(models)
    notify = on_progress or (lambda progress: None)
    limits = {"seconds": budget, "max_trials": max_trials}
    options = {"config": asdict(protocol.config), "limits": limits, "lists": beyond_accuracy}
    kept = KeptModels(keep, data, test, options)
    if fresh:
        kept.clear(models)
    entries: list[tuple[Result, Evaluation]] = []
    allowed = budget
    for name, candidate in sorted(models.items(), key=lambda item: not item[1].is_slow):
        most = max_trials if isinstance(max_trials, int) else max_trials.get(name, MAX_TRIALS)
        entry = kept.read(name, candidate)
        is_kept = entry is not None
        if entry is None:
            try:
                entry, fitted = _enter(name, candidate, protocol, most, allowed, notify)
                if beyond_accuracy:
                    lists = protocol.test_lists(fitted)
                    entry = (replace(entry[0], beyond_accuracy=lists), entry[1])
            except TrainingError as error:
                logger.warning("%s is left out: %s", name, error)
                continue
            kept.write(candidate, *entry)
            if on_fitted is not None:
                on_fitted(name, fitted)
        notify(JobProgress(name, "done", result=entry[0], is_kept=is_kept))
        entries.append(entry)
        if allowed is not None:
            allowed = max(allowed, entry[0].search_seconds)
    if not entries:
        raise TrainingError(f"none of the models could be fitted: {', '.join(models)}")
    results = [result for result, _ in entries]
    n_tested = int(protocol.facts["n_test_users"])
    if n_tested >= FEW_USERS:
        for metric in results[0].metrics:
            evaluations = [evaluation for _, evaluation in entries]
            found = distances_to_best(evaluations, metric, rng=protocol.config.seed)
            for result, distance in zip(results, found, strict=True):
                result.to_best[metric] = distance
    else:
        logger.warning("only %s tested: too few to compare models", n_of(n_tested, "user"))
    results.sort(key=lambda result: result.metrics["mpr"])
    kept.clear(models)
    sizes = (data.n_users, data.n_items, data.n_pairs)
    return Comparison(dataset, *sizes, protocol.facts, results, limits)


def _report_untrained_repeats(models: Iterable[str]) -> None:
    """Say that CF-NADE learns nothing about items of the history, if it is compared."""
    names = [name for name in models if name.startswith("cfnade")]
    if names:
        logger.warning(
            "without times or an event to predict, the scores of %s for items of the history are "
            "not trained; --candidates unseen leaves these items out",
            ", ".join(names),
        )


def _enter(
    name: str,
    candidate: Contender,
    protocol: Protocol,
    max_trials: int,
    budget: float | None,
    notify: OnProgress,
) -> tuple[tuple[Result, Evaluation], Scorer]:
    """Choose the settings of one model, fit it and test it."""
    started, n_most = time.perf_counter(), budget or max_trials
    tried: list[Trial] = []

    def on_trial(n_trials: int, max_trials: int, trial: Trial) -> None:
        tried.append(trial)
        best_mpr = min(tried, key=lambda each: each.cost).metrics.get("mpr")
        n_done = n_trials if budget is None else round(time.perf_counter() - started)
        notify(JobProgress(name, "search", min(n_done, n_most), n_most, n_trials, best_mpr))

    notify(JobProgress(name, "search", 0, n_most))
    seconds = math.inf if budget is None else budget
    search = candidate.search(
        protocol.validation, max_trials=max_trials, seconds=seconds, on_trial=on_trial
    )
    best, recency, n_looks = search.best, None, search.n_looks
    search_seconds, found = search.seconds, dict(best.settings)
    validation, data = protocol.validation, protocol.known_data
    if candidate.gets_recency and data.clock is not None and protocol.config.recency:
        assert validation.train_data is not None
        started = time.perf_counter()
        on_train = candidate.fit(validation.train_data, best.settings, validation.relative_rating)
        recency = find_recency(on_train, validation)
        search_seconds += time.perf_counter() - started
        n_looks += recency.n_looks
        found |= {name: getattr(recency.readout, name) for name in RECENCY}
    notify(JobProgress(name, "fit"))
    started = time.perf_counter()
    fitted = candidate.fit(data, best.settings, protocol.relative_rating)
    if recency is not None:
        fitted = recency.add_to(fitted, data)
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
        round(search_seconds, 3),
        len(search.trials),
        best.metrics["mpr"],
        found,
        calibration,
        n_looks,
        tuple(candidate.edges({**best.settings, **search.chosen})),
        stopped_by=search.stopped_by,
        seconds_allowed=budget,
    )
    return (result, evaluation), fitted
