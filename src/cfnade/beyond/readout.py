"""The readout: what is added to the logits after training, found on validation.

`logits = d + V h + direct_gain * x B + popularity_tilt * p`, with B the direct path
(`beyond/direct.py`) and p the logit of each item's share of watchers. The parts add up, so their
scores are computed once, and trying another strength costs one sum. The readout is not trained with
the network: B was fitted on the training pairs and would look too good there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.direct import NeighbourRegression
from cfnade.checks import check_above_zero, check_bool, check_number, check_whole
from cfnade.data.ratings import popularity_logit
from cfnade.metrics.search import Trial, coordinate_search
from cfnade.model.inference import NumpyNetwork, direct_path, direct_weight

MAX_TRIALS = 40


@dataclass(frozen=True)
class Readout:
    """What is added after training.

    `direct_gain` and `popularity_tilt` are tuned on validation if they are None; the plan of a fit
    decides the rest.
    """

    direct: bool = True
    """Add the direct item-item path. Not in the paper."""

    direct_l2: float | None = None
    """L2 of the regression behind the direct path."""

    direct_neighbours: int | None = None
    """Neighbours of each item in the direct path."""

    direct_gain: float | None = None
    """Strength of the direct path."""

    popularity_tilt: float | None = None
    """Strength of popularity beyond what training learnt: below 0 rare items move up, above 0
    popular ones."""

    def __post_init__(self) -> None:
        check_bool("direct", self.direct)
        for name in ("direct_l2", "direct_gain"):
            if getattr(self, name) is not None:
                check_above_zero(**{name: getattr(self, name)})
        if self.direct_neighbours is not None:
            check_whole("direct_neighbours", self.direct_neighbours, 1)
        if self.popularity_tilt is not None:
            check_number("popularity_tilt", self.popularity_tilt)

    def or_usual(self) -> Readout:
        """Replace None by the usual values."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(USUAL, **given)


NO_READOUT = Readout(direct=False, popularity_tilt=0.0)
"""The network alone, as in the paper."""

USUAL = Readout(True, direct_l2=10.0, direct_neighbours=32, direct_gain=10.0, popularity_tilt=0.0)
"""Where the search starts, and what an epoch is judged with."""

_TILTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)

GRID: dict[str, tuple[float, ...]] = {
    "direct_gain": (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0),
    "popularity_tilt": (*(-tilt for tilt in reversed(_TILTS)), 0.0, *_TILTS),
}
"""Values to try, in the order of the search."""


class ReadoutParts:
    """The parts of a readout for networks trained on the same ratings."""

    def __init__(self, ratings: csr_array, regression: NeighbourRegression | None) -> None:
        """Prepare.

        Args:
            ratings: Relative ratings that the networks are trained on, (n_users, n_items).
            regression: Finds the neighbours of the direct path; None leaves the path out.
        """
        self.popularity = popularity_logit(ratings)  # (n_items,)
        self._regression = regression
        self._neighbours: dict[float, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}  # by L2

    def neighbours(self, readout: Readout) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Neighbours of each item and their weights, gain included; None without a direct path.

        Returns:
            (n_items, n_neighbours) each.
        """
        readout = readout.or_usual()
        if self._regression is None or not readout.direct:
            return None
        assert readout.direct_l2 is not None and readout.direct_gain is not None
        l2, n_kept = readout.direct_l2, self._regression.n_candidates
        if l2 not in self._neighbours:
            self._neighbours[l2] = self._regression.neighbours(l2, n_kept)
        neighbours, weight = self._neighbours[l2]
        kept = slice(readout.direct_neighbours)
        return neighbours[:, kept].copy(), np.float32(readout.direct_gain) * weight[:, kept]

    def add(self, network: NumpyNetwork, readout: Readout) -> NumpyNetwork:
        """The network with the readout; shares the memory of its weights."""
        readout = readout.or_usual()
        weights, config = dict(network.weights), network.config
        if readout.popularity_tilt:
            tilt = np.float32(readout.popularity_tilt) * self.popularity
            weights["output_bias"] = weights["output_bias"] + tilt
        found = self.neighbours(readout)
        if found is not None:
            weights["neighbours"], weights["neighbour_weight"] = found
            config = replace(config, n_neighbours=found[0].shape[1])
        return NumpyNetwork(config, weights)


class ReadoutScores:
    """What readouts add to the logits of some histories; the direct path is computed once."""

    def __init__(self, parts: ReadoutParts, histories: csr_array) -> None:
        """Prepare for histories of relative ratings, (n_users, n_items)."""
        self._parts, self._histories = parts, histories
        self._direct: tuple[object, NDArray[np.float32]] | None = None  # key, scores

    def of(self, readout: Readout) -> NDArray[np.float32]:
        """The scores to add, (n_users, n_items)."""
        readout = readout.or_usual()
        added = np.float32(readout.direct_gain or 0.0) * self._direct_scores(readout)
        added += np.float32(readout.popularity_tilt or 0.0) * self._parts.popularity
        return added

    def _direct_scores(self, readout: Readout) -> NDArray[np.float32]:
        """Scores of the direct path at a gain of 1."""
        key = (readout.direct, readout.direct_l2, readout.direct_neighbours)
        if self._direct is None or self._direct[0] != key:
            scores = np.zeros(self._histories.shape, dtype=np.float32)
            found = self._parts.neighbours(replace(readout, direct_gain=1.0))
            if found is not None:
                scores = direct_path(self._histories, direct_weight(*found))
            self._direct = (key, scores)
        return self._direct[1]


def find_readout(
    given: Readout, cost: Callable[[Readout], float], grid: Mapping[str, Sequence[Any]] = GRID
) -> Readout:
    """Search for the strengths that are None.

    Args:
        given: What is fixed.
        cost: Judges a readout on validation: lower is better.
        grid: Values to try, by name.

    Returns:
        The best readout, without None.
    """
    start = given.or_usual()
    free = {
        name: values
        for name, values in grid.items()
        if getattr(given, name) is None and (given.direct or not name.startswith("direct_"))
    }

    def attempt(settings: dict[str, Any]) -> Trial:
        return Trial(settings, cost(Readout(**settings)))

    return Readout(
        **coordinate_search(attempt, asdict(start), free, max_trials=MAX_TRIALS).best.settings
    )
