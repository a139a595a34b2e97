"""The nested protocol of the accuracy benchmark: choose, freeze, then test.

`choose` gets a `Validation`, which has no test part, and returns a `Choice`: settings and nothing
else. `judge` fits them with several seeds and looks at the test. `against` says whether two models
differ significantly. A choice never sees a judgement, so no setting can follow from one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.compare.contender import Contender
from cfnade.compare.protocol import Protocol
from cfnade.errors import ConfigError, DataError
from cfnade.metrics.bootstrap import bootstrap_means, percentile_interval
from cfnade.metrics.formulas import UserSums
from cfnade.metrics.search import Validation

Verdict: TypeAlias = Literal["win", "loss", "within noise"]


@dataclass(frozen=True)
class Choice:
    """Settings chosen on validation."""

    settings: dict[str, Any]
    validation: dict[str, float]
    """Metrics of the chosen settings on validation; MPR in percent."""

    n_settings: int
    """Tried."""

    search_seconds: float
    n_looks: int = 0
    """Evaluations on validation; 0 in earlier files, which do not say."""

    at_edge: tuple[str, ...] = ()
    """Settings that ended at an end of their grid."""


def choose(candidate: Contender, validation: Validation, *, max_trials: int) -> Choice:
    """Choose settings on validation, by the metrics of the validation part.

    Args:
        candidate: The model.
        validation: The data to choose on.
        max_trials: Settings to try at most.

    Returns:
        The choice, for all metrics of the test.
    """
    search = candidate.search(validation, max_trials=max_trials)
    best = search.best
    return Choice(
        best.settings,
        best.metrics,
        len(search.trials),
        round(search.seconds, 1),
        search.n_looks,
        tuple(edge.setting for edge in candidate.edges({**best.settings, **search.chosen})),
    )


@dataclass(frozen=True, eq=False)
class Judgement:
    """The figures of a choice on test."""

    seeds: list[int]
    """Of the final fits."""

    by_seed: dict[str, list[float]]
    """Each metric for each seed; MPR in percent."""

    metrics: dict[str, float]
    """The mean over seeds."""

    intervals: dict[str, tuple[float, float]]
    """95 % bootstrap interval of that mean, over users and seeds."""

    fit_seconds: list[float]
    """Of each final fit."""

    per_user: dict[str, list[UserSums]]
    """Each metric's parts, user by user, for each seed."""


def judge(
    contender_of: Callable[[int], Contender],
    settings: dict[str, Any],
    protocol: Protocol,
    *,
    seeds: Sequence[int] = (0,),
    n_bootstrap: int = 1000,
) -> Judgement:
    """Fit frozen settings on everything known, once for each seed, and look at the test.

    Args:
        contender_of: Gives the contender of a seed.
        settings: Frozen.
        protocol: With the test part.
        seeds: Of the final fits; the split stays the same.
        n_bootstrap: Resamples of users for the intervals.

    Returns:
        Means over seeds, with intervals over users and seeds.
    """
    if not seeds:
        raise ConfigError("a judgement needs at least one seed")
    evaluations, seconds = [], []
    for seed in seeds:
        started = time.perf_counter()
        fitted = contender_of(seed).fit(protocol.known_data, settings, protocol.relative_rating)
        seconds.append(round(time.perf_counter() - started, 2))
        evaluations.append(protocol.test(fitted))
    names = list(evaluations[0].metrics)
    per_user = {name: [each.per_user[name] for each in evaluations] for name in names}
    by_seed = {name: [each.metrics[name] for each in evaluations] for name in names}
    means = resampled_means(
        list(per_user.values()), n_bootstrap=n_bootstrap, rng=protocol.config.seed
    )
    return Judgement(
        list(seeds),
        by_seed,
        {name: float(np.mean(found)) for name, found in by_seed.items()},
        {name: percentile_interval(means[:, place]) for place, name in enumerate(names)},
        seconds,
        per_user,
    )


def resampled_means(
    models: Sequence[Sequence[UserSums]], *, n_bootstrap: int, rng: int = 0
) -> NDArray[np.float64]:
    """Means over resampled users and seeds, (n_bootstrap, n_models).

    Each model has a metric's parts for each of its seeds. All models share the users of a
    resample; the seeds of each are drawn anew, with replacement.
    """
    means = bootstrap_means(
        [sums for seeds in models for sums in seeds], n_bootstrap=n_bootstrap, rng=rng
    )
    seed_draws, first, columns = np.random.default_rng(rng), 0, []
    for seeds in models:
        own = means[:, first : first + len(seeds)]
        drawn = seed_draws.integers(len(seeds), size=own.shape)
        columns.append(np.take_along_axis(own, drawn, axis=1).mean(axis=1))
        first += len(seeds)
    return np.stack(columns, axis=1)


def against(
    mine: Sequence[UserSums],
    theirs: Sequence[UserSums],
    metric: str,
    *,
    n_bootstrap: int = 2000,
    rng: int = 0,
) -> tuple[float, tuple[float, float], Verdict]:
    """Whether a model is significantly better than another on the same users (paired bootstrap).

    Args:
        mine: The metric's parts, user by user, for each seed.
        theirs: Of the other, the same users.
        metric: Its name: MPR is better where it is lower.
        n_bootstrap: Resamples of users, and of the seeds of each.
        rng: Seed.

    Returns:
        The difference, mine less theirs, its 95 % interval, and what it means for mine.

    Raises:
        DataError: If the users differ.
    """
    if not all(np.array_equal(mine[0].weight, each.weight) for each in (*mine, *theirs)):
        raise DataError("other users or pairs were judged; judge both models on one split")
    means = resampled_means([mine, theirs], n_bootstrap=n_bootstrap, rng=rng)
    low, high = percentile_interval(means[:, 0] - means[:, 1])
    totals = [[each.total for each in seeds] for seeds in (mine, theirs)]
    if np.array_equal(*totals):
        low = high = 0.0  # BLAS may round two equal columns differently
    verdict: Verdict = "within noise"
    if not low <= 0.0 <= high:
        is_lower = high < 0.0
        verdict = "win" if is_lower == metric.startswith("mpr") else "loss"
    difference = float(np.mean([s.mean for s in mine]) - np.mean([s.mean for s in theirs]))
    return difference, (low, high), verdict
