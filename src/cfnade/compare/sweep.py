"""The paper's Figure 2: MPR of CF-NADE and IMF against alpha."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cfnade.compare.comparison import OnProgress, Progress
from cfnade.compare.contenders import (
    STRENGTHS,
    CFNADEContender,
    Contender,
    HasAlpha,
    IMFContender,
    contender,
)
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.data.feedback import check_alpha
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError

DEFAULT_ALPHAS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
SWEPT_MODELS = ("cfnade", "imf")


@dataclass(frozen=True)
class SweepPoint:
    """One model at one alpha."""

    model: str
    alpha: float
    mpr: float
    """On test, in percent."""

    interval: tuple[float, float]
    """95 % bootstrap interval over users."""

    validation_mpr: float
    n_settings: int
    """Tried on validation at this alpha."""

    settings: dict[str, Any]
    """Chosen on validation at this alpha."""

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
    models: Sequence[str] = SWEPT_MODELS,
    dataset: str = "data",
    test: Interactions | None = None,
    config: ProtocolConfig | None = None,
    settings: dict[str, dict[str, Any]] | None = None,
    max_trials: int = 6,
    on_progress: OnProgress | None = None,
) -> Sweep:
    """Test MPR of the models at each alpha.

    At each alpha the other settings that depend on it (IMF's regularisation and iterations,
    CF-NADE's epochs) are chosen on validation. The figure shows test MPR, as the paper's does;
    no alpha is chosen by it.

    Args:
        data: All counts, or the training part if `test` is given.
        alphas: Rates of confidence.
        models: Names of contenders that have an alpha.
        dataset: A name for the outcome.
        test: A fixed test part.
        config: How pairs are held out and judged.
        settings: By model, what to hold fixed, such as a comparison's choice.
        max_trials: Settings that a model may try at each alpha.
        on_progress: Called as the job goes on.

    Returns:
        The points of the figure.

    Raises:
        ConfigError: If there is no alpha, one has no meaning, or a model has none.
    """
    if not alphas:
        raise ConfigError("a sweep needs at least one alpha")
    for alpha in alphas:
        check_alpha(alpha)
    protocol = Protocol(data, test, config)
    notify = on_progress or (lambda progress: None)
    points = []
    for done, alpha in enumerate(alphas):
        candidates = _contenders(models, alpha, protocol.config.seed, settings or {})
        for name, candidate in candidates.items():
            notify(Progress(f"{name} at alpha {alpha:g}", "search", done, len(alphas)))
            search = candidate.search(protocol.validation, max_trials=max_trials)
            started = time.perf_counter()
            fitted = candidate.fit(protocol.known, search.best.settings, protocol.relative_rating)
            seconds = time.perf_counter() - started
            evaluation = protocol.test(fitted)
            points.append(
                SweepPoint(
                    name,
                    alpha,
                    evaluation.metrics["mpr"],
                    evaluation.intervals["mpr"],
                    search.best.cost,
                    len(search.trials),
                    search.best.settings,
                    round(seconds, 3),
                )
            )
    return Sweep(dataset, list(alphas), protocol.facts, points)


def _contenders(
    models: Sequence[str], alpha: float, seed: int, settings: dict[str, dict[str, Any]]
) -> dict[str, Contender]:
    """The models with alpha held fixed, starting from what was chosen at another."""
    chosen = settings.get("imf", {})
    strength = 20.0
    if "regularization" in chosen:
        strength = chosen["regularization"] / math.sqrt(1.0 + chosen["alpha"])
    start = {
        "factors": chosen.get("factors", 128),
        "alpha": alpha,
        "strength": min(STRENGTHS, key=lambda known: abs(math.log(known / strength))),
    }
    changes = {**settings.get("cfnade", {}), "alpha": alpha}
    changes.pop("max_epochs", None)  # found anew at each alpha
    known: dict[str, Contender] = {
        "cfnade": CFNADEContender(seed, grid={}, changes=changes),
        "imf": IMFContender(seed, {"strength": STRENGTHS}, start),
    }
    return {name: known.get(name) or _at_alpha(name, alpha, seed) for name in models}


def _at_alpha(name: str, alpha: float, seed: int) -> Contender:
    candidate = contender(name, seed)
    if not isinstance(candidate, HasAlpha):
        raise ConfigError(f"{name} has no alpha to sweep; leave it out")
    return candidate.at_alpha(alpha)
