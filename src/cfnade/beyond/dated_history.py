"""Histories at request time whose entries have times: they decay as those of a table do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfnade.beyond.recency import decayed, rounded
from cfnade.data.events import Clock
from cfnade.data.moments import as_time
from cfnade.errors import DataError


@dataclass(frozen=True)
class HistoryDecay:
    """How a model reads the times of a history."""

    half_life: float = 0.0
    """In which an event loses half of its weight; 0 weighs all the same."""

    clock: Clock | None = None
    """What the times are; None if the model was fitted without."""

    def counts(self, history: Any) -> Any:
        """Counts by item id of a history with times; a history without them as it is.

        Ages are those at the latest event of the history, and an entry without a time is as late.
        Without a half-life times make no difference, but must be readable.

        Args:
            history: As for `ImplicitCFNADE.recommend_for`. A value of a mapping may be
                `[count, when]`, or a list of these.

        Raises:
            DataError: If an entry cannot be read.
        """
        if not isinstance(history, Mapping):
            return history
        if not any(isinstance(value, list | tuple) for value in history.values()):
            return history
        owners: list[int] = []
        entries: list[tuple[float, float]] = []  # counts and times
        for place, value in enumerate(history.values()):
            for count, when in _events(value):
                owners.append(place)
                entries.append((count, math.nan if when is None else as_time(when, self.clock)))
        counts, times = np.array(entries, dtype=np.float64).reshape(-1, 2).T
        if self.half_life:
            is_dated = ~np.isnan(times)
            latest = times[is_dated & (counts > 0)].max(initial=-np.inf)
            ages = np.where(is_dated, np.maximum(latest - times, 0.0), 0.0)
            counts = decayed(counts, ages, self.half_life)
        sums = np.zeros(len(history))
        np.add.at(sums, owners, counts)
        if self.half_life:
            sums = np.where(sums > 0, rounded(sums), 0.0)
        return dict(zip(history, sums.tolist(), strict=True))


def _events(value: Any) -> Iterable[tuple[float, Any]]:
    """Counts and times of one entry."""
    if not isinstance(value, list | tuple):
        return [(_count(value), None)]
    pairs = value if all(isinstance(each, list | tuple) for each in value) else [value]
    if any(len(pair) != 2 for pair in pairs):
        raise DataError(
            "an entry of a history is a count, [count, when] or a list of such pairs; got "
            f"{value!r:.60}"
        )
    return [(_count(count), when) for count, when in pairs]


def _count(value: Any) -> float:
    try:
        count = float(value)
    except (TypeError, ValueError):
        raise DataError("the counts in a history must be numbers") from None
    if not 0 <= count < math.inf:
        raise DataError("the counts in a history must be finite and at least 0")
    return count
