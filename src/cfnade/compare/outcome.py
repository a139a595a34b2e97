"""The figures of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cfnade.compare.contender import Edge
from cfnade.compare.reliability import Calibration, Reliability
from cfnade.metrics.lists import ListQuality


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
    """Number of settings tried on validation."""

    validation_mpr: float
    settings: dict[str, Any]
    calibration: Calibration | None = None
    """How well its probabilities hold on test; None if it gives none."""

    n_looks: int = 1
    """How often the search looked at validation."""

    at_edge: tuple[Edge, ...] = ()
    """Chosen settings at an end of their grid: a wider one may be better."""

    to_best: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By metric, the 95 % interval of the difference to the best model (paired bootstrap over
    users). The best has (0, 0). Empty if few users are tested."""

    beyond_accuracy: ListQuality | None = None
    """Coverage, novelty and diversity of its lists for the tested users, if asked for."""

    stopped_by: Literal["time", "trials"] | None = None
    """What ended its search; None if no step on the grid was better."""

    seconds_allowed: float | None = None
    """Time that its search had; None for no limit."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Result:
        """The result that `asdict` wrote."""
        fields = dict(value)
        for name in ("intervals", "to_best"):
            fields[name] = {metric: tuple(ends) for metric, ends in value[name].items()}
        fields["at_edge"] = tuple(Edge(**edge) for edge in value["at_edge"])
        if (lists := value["beyond_accuracy"]) is not None:
            fields["beyond_accuracy"] = ListQuality(**lists)
        if (found := value["calibration"]) is not None:
            kinds = {k: Reliability(**v) for k, v in found.items() if isinstance(v, dict)}
            fields["calibration"] = Calibration(**{**found, **kinds})
        return cls(**fields)

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
    budget: dict[str, Any] = field(default_factory=dict)
    """Limits of each model's search: `seconds` (None for no limit) and `max_trials`."""

    def to_json(self) -> dict[str, Any]:
        """As the commands write it; the format is in docs/json.md."""
        return asdict(self)
