"""The paper's Figure 2: MPR of CF-NADE and IMF against alpha."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cfnade.checks import check_at_least
from cfnade.compare.comparison import JobProgress, OnProgress
from cfnade.compare.contender import Contender
from cfnade.compare.described import with_items
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.registry import STRENGTHS, contender
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError

DEFAULT_ALPHAS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
SWEPT_MODELS = ("cfnade", "imf")
_FOUND = ("max_epochs", "feature_strengths")  # by each fit of CF-NADE


@dataclass(frozen=True)
class SweepPoint:
    """One model at one alpha; its settings are chosen on validation at this alpha."""

    model: str
    alpha: float
    mpr: float
    """On test, in percent, with its 95 % bootstrap interval over users."""

    interval: tuple[float, float]
    validation_mpr: float
    n_settings: int
    settings: dict[str, Any]
    fit_seconds: float


@dataclass(frozen=True)
class Sweep:
    """All points of the figure."""

    dataset: str
    alphas: list[float]
    protocol: dict[str, Any]
    points: list[SweepPoint]

    def to_json(self) -> dict[str, Any]:
        """As the commands write it; the format is in docs/json.md."""
        return asdict(self)


def sweep(
    data: Interactions,
    alphas: Sequence[float] = DEFAULT_ALPHAS,
    *,
    models: Sequence[str] | Mapping[str, Contender] = SWEPT_MODELS,
    dataset: str = "data",
    test: Interactions | None = None,
    items: Any = None,
    config: ProtocolConfig | None = None,
    settings: dict[str, dict[str, Any]] | None = None,
    max_trials: int = 6,
    on_progress: OnProgress | None = None,
) -> Sweep:
    """Test MPR of the models at each alpha.

    At each alpha the settings that depend on it (IMF's regularisation and iterations, CF-NADE's
    readout) are chosen on validation. The figure shows test MPR, as the paper's does; no alpha is
    chosen by it.

    Arguments are those of `compare`, and `settings` to start from by model, such as those that a
    comparison chose. Every model must have an alpha, and may try `max_trials` settings at each.
    """
    if not alphas:
        raise ConfigError("a sweep needs at least one alpha")
    for alpha in alphas:
        check_at_least(0, alpha=alpha)
    protocol = Protocol(data, test, config)
    if not isinstance(models, Mapping):
        models = {name: contender(name, protocol.config.seed) for name in models}
    models = with_items(models, data, items)
    notify = on_progress or (lambda progress: None)
    points = []
    for done, alpha in enumerate(alphas):
        for name, candidate in models.items():
            swept = _at_alpha(name, candidate, alpha, (settings or {}).get(name, {}))
            notify(JobProgress(f"{name} at alpha {alpha:g}", "search", done, len(alphas)))
            search = swept.search(protocol.validation, max_trials=max_trials)
            validation_mpr, chosen = search.best.metrics["mpr"], search.best.settings
            started = time.perf_counter()
            fitted = swept.fit(protocol.known_data, chosen, protocol.relative_rating)
            seconds = round(time.perf_counter() - started, 3)
            found = protocol.test(fitted)
            mpr, interval = found.metrics["mpr"], found.intervals["mpr"]
            n_tried = len(search.trials)
            points.append(
                SweepPoint(name, alpha, mpr, interval, validation_mpr, n_tried, chosen, seconds)
            )
    return Sweep(dataset, list(alphas), protocol.facts, points)


def _at_alpha(name: str, candidate: Contender, alpha: float, chosen: dict[str, Any]) -> Contender:
    """The contender with alpha held fixed, starting from settings chosen at another alpha."""
    if "alpha" not in {**candidate.start, **candidate.grid}:
        raise ConfigError(f"{name} has no alpha to sweep; leave it out")
    if name in ("cfnade", "cfnade-network"):  # one fit, which finds epochs and readout
        held = {key: value for key, value in chosen.items() if key not in _FOUND}
        return replace(candidate, grid={}).holding(**{**held, "alpha": alpha})
    if name == "imf":  # only the regularisation is searched again
        strength = 20.0
        if "regularization" in chosen:
            strength = chosen["regularization"] / math.sqrt(1.0 + chosen["alpha"])
        nearest = min(STRENGTHS, key=lambda known: abs(math.log(known / strength)))
        start = {"factors": chosen.get("factors", 128), "alpha": alpha, "strength": nearest}
        return replace(candidate, start=start, grid={"strength": STRENGTHS})
    return candidate.holding(alpha=alpha)
