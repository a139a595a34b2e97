"""The readout: what is added to the logits after training, found on validation.

`logits = d + V h + direct_gain * x B + trend`, with B the direct path (`beyond/direct.py`) and the
trend of each item (`beyond/recency.py`) if events have times. The scores of the direct path are
computed once, so trying another strength costs one sum. The readout is not trained with the
network: B was fitted on the training pairs and would look too good there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.checks import check_above_zero, check_at_least, check_bool, check_whole
from cfnade.errors import ConfigError, TrainingError
from cfnade.metrics.search import Trial, coordinate_search
from cfnade.model.inference import NumpyNetwork, direct_path, direct_weight

RECENCY = ("history_half_life", "trend_half_life", "trend_gain", "popularity_gain")
"""Fields of a readout that need times."""

N_REPEAT_WEIGHTS = 4
"""A constant, the weight of the count, and those of two features of items."""


@dataclass(frozen=True)
class Readout:
    """What is added after training.

    Gains and half-lives are tuned on validation if they are None; the plan of a fit decides the
    rest. The last four need events with times. Half-lives are in seconds, or in the unit of the
    time column if that is not a date.
    """

    direct: bool = True
    """Add the direct item-item path. Not in the paper."""

    direct_l2: float | None = None
    """L2 of the regression behind the direct path."""

    direct_neighbours: int | None = None
    """Neighbours of each item in the direct path."""

    direct_gain: float | None = None
    """Strength of the direct path."""

    history_half_life: float | None = None
    """Time in which an event of a history loses half of its weight, down to a tenth; 0 weighs all
    the same."""

    trend_half_life: float | None = None
    """Time in which a watcher loses half of their weight in an item's recent popularity."""

    trend_gain: float | None = None
    """Strength of the rise or fall of an item's popularity; 0 leaves it out."""

    popularity_gain: float | None = None
    """Strength of an item's recent popularity; 0 leaves it out."""

    repeats: tuple[float, ...] | None = None
    """Weights of the model of repeats (`beyond/repeats.py`); empty for none."""

    def __post_init__(self) -> None:
        check_bool("direct", self.direct)
        for name in ("direct_l2", "direct_gain"):
            if getattr(self, name) is not None:
                check_above_zero(**{name: getattr(self, name)})
        if self.direct_neighbours is not None:
            check_whole("direct_neighbours", self.direct_neighbours, 1)
        if self.repeats is not None:
            given = self.repeats
            if not isinstance(given, (list, tuple)) or len(given) not in (0, N_REPEAT_WEIGHTS):
                raise ConfigError(
                    f"repeats must be a list of {N_REPEAT_WEIGHTS} weights or of none, "
                    f"got {given!r:.100}"
                )
            check_at_least(-math.inf, **{f"repeats[{n}]": w for n, w in enumerate(given)})
            object.__setattr__(self, "repeats", tuple(given))  # JSON has lists
        for name in RECENCY:
            if getattr(self, name) is not None:
                check_at_least(0, **{name: getattr(self, name)})

    @property
    def adds_trend(self) -> bool:
        """Whether popularity is added to the scores."""
        return bool(self.trend_gain or self.popularity_gain)

    def without_recency(self) -> Readout:
        """The same with all events weighing the same and no trend."""
        return replace(self, history_half_life=0.0, trend_gain=0.0, popularity_gain=0.0)

    def or_usual(self) -> Readout:
        """Replace None by the usual values."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(USUAL, **given)


NO_READOUT = Readout(direct=False)
"""The network alone, as in the paper."""

USUAL = Readout(
    direct_l2=10.0,
    direct_neighbours=32,
    direct_gain=10.0,
    history_half_life=0.0,
    trend_half_life=0.0,
    trend_gain=0.0,
    popularity_gain=0.0,
    repeats=(),
)
"""What an epoch is judged with, and what is added without validation."""

MAX_LOOKS = 60
"""Readouts to try at most if events have times."""

GAINS = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
"""Strengths of the direct path to try."""


_OTHER_STARTS = (("trend_half_life", 1), ("history_half_life", 2))  # by place in the half-lives


class ReadoutParts:
    """Makes readouts for networks trained on the same ratings."""

    def __init__(self, found: tuple[NDArray[np.int64], NDArray[np.float32]] | None) -> None:
        """Take what `NeighbourRegression.neighbours` found; None leaves the direct path out."""
        self._found = found

    def neighbours(self, readout: Readout) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Neighbours of each item and their weights, gain included; None without a direct path.

        Returns:
            (n_items, n_neighbours) each.
        """
        readout = readout.or_usual()
        if self._found is None or not readout.direct:
            return None
        assert readout.direct_gain is not None
        neighbours, weight = self._found
        kept = slice(readout.direct_neighbours)
        return neighbours[:, kept].copy(), np.float32(readout.direct_gain) * weight[:, kept]

    def add(self, network: NumpyNetwork, readout: Readout) -> NumpyNetwork:
        """The network with the readout; shares the memory of its weights."""
        found = self.neighbours(readout)
        if found is None:
            return network
        neighbours, weight = found
        weights = {**network.weights, "neighbours": neighbours, "neighbour_weight": weight}
        return NumpyNetwork(replace(network.config, n_neighbours=neighbours.shape[1]), weights)

    def scores(self, readout: Readout, histories: csr_array) -> NDArray[np.float32] | None:
        """What the direct path adds at a gain of 1; None without one.

        Args:
            readout: Its `direct_gain` does not count.
            histories: Relative ratings, (n_users, n_items).

        Returns:
            (n_users, n_items).
        """
        found = self.neighbours(replace(readout, direct_gain=1.0))
        return None if found is None else direct_path(histories, direct_weight(*found))


def find_readout(
    given: Readout, cost: Callable[[Readout], float], half_lives: Sequence[float] = ()
) -> Readout:
    """Search for the strengths of the readout that are not given.

    Without times all gains of the direct path are tried. With times it goes on from there, one
    strength at a time, as long as the cost falls.

    Args:
        given: What is fixed.
        cost: Judges a readout on validation: lower is better.
        half_lives: To try, longest first; none without times.

    Returns:
        The best readout, without None.
    """
    usual = given.or_usual()
    if not half_lives:
        if not given.direct or given.direct_gain is not None:
            return usual
        return min((replace(usual, direct_gain=gain) for gain in GAINS), key=cost)
    grid: dict[str, Sequence[Any]] = {
        "trend_half_life": tuple(half_lives),
        "trend_gain": (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0),
        "popularity_gain": (0.0, 0.5, 1.0, 2.0, 4.0, 8.0),
        "direct_gain": (1.0, *GAINS),
        "history_half_life": (0.0, *half_lives),
    }
    first = {"trend_half_life": half_lives[2], "trend_gain": 0.5}  # the others: as usual
    if not given.direct:
        del grid["direct_gain"]
    grid = {name: values for name, values in grid.items() if getattr(given, name) is None}
    start = {name: first.get(name, getattr(usual, name)) for name in grid}

    def attempt(values: dict[str, Any]) -> Trial:
        return Trial(values, cost(replace(usual, **values)))

    if not grid:
        return usual
    others = [{name: half_lives[at]} for name, at in _OTHER_STARTS if name in grid]
    try:
        found = coordinate_search(attempt, start, grid, max_trials=MAX_LOOKS, other_starts=others)
    except TrainingError:  # the cost of all is infinite
        return usual
    return replace(usual, **found.chosen)
