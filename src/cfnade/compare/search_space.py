"""The settings that `cfnade tune` searches, and between which values: all of it is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import Trial


@dataclass(frozen=True)
class Between:
    """Any number of a range."""

    low: float
    high: float
    is_log: bool = False
    """Whether factors matter rather than differences."""

    def holds(self, value: Any) -> bool:
        """Whether a setting lies in the range."""
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def suggest(self, trial: Trial, name: str) -> float:
        """The trial's choice, in three digits: more say nothing, and read badly in a file."""
        return float(f"{trial.suggest_float(name, self.low, self.high, log=self.is_log):.3g}")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', by factors' if self.is_log else ''}"


@dataclass(frozen=True)
class OneOf:
    """One of some values."""

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether a setting is one of them."""
        return value in self.values

    def suggest(self, trial: Trial, name: str) -> Any:
        """The trial's choice."""
        return trial.suggest_categorical(name, self.values)

    def __str__(self) -> str:
        return ", ".join(str(value) for value in self.values)


SPACE: Mapping[str, Between | OneOf] = {
    "alpha": Between(1.0, 300.0, is_log=True),
    "item_l2": Between(0.01, 3.0, is_log=True),
    "dropout": Between(0.0, 0.7),
    "learning_rate": Between(1e-3, 2e-2, is_log=True),
    "context_share": Between(0.2, 0.8),
    "n_hidden": OneOf((64, 128, 256, 512)),
    "direct_dropout": Between(0.0, 0.8),
}
"""By setting; what each does is told in `cfnade.model.config` and `cfnade.beyond.readout`.

What is not here keeps the preset's value. The number of epochs and the readout (`direct_l2`,
`direct_neighbours`, `direct_gain`, `popularity_tilt`, `factor_alpha`, `factor_gain`) need no
search: every fit finds them on validation by itself. Where training starts (`start_from_factors`)
follows from the size of the data. `n_networks`, `batch_size`, `schedule` and
`zero_share` trade time for accuracy, which a search for accuracy alone would answer in one way;
depth did not pay on any data tried."""
