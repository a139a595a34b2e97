"""The last touch after training: direct connections, factors, and how much popularity counts.

The network squeezes a history through its hidden layer and loses pairs of rare items on the way.
The direct path gives them back: `logits = d + V h + x B`, with B the strongest positive weights of
a linear model (`beyond/direct.py`). It is added to the trained network rather than trained with
it: in training B has seen the very pairs it predicts, and looks far surer than it is to others.
The scores of a matrix factorisation (`beyond/factors.py`), for which the hidden layer is made
wider, err elsewhere than the network does, and the sum of the two less than either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.direct import NeighbourRegression, usual_candidates
from cfnade.beyond.factors import FACTOR_ALPHAS, Factorisations, FactorPlan
from cfnade.beyond.units import can_be_linear
from cfnade.checks import check_bool, check_number
from cfnade.data.feedback import popularity_logit
from cfnade.errors import ConfigError
from cfnade.metrics.search import Trial, coordinate_search
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork

DIRECT_UP_TO = 100_000
"""Items up to which the direct path is used: each is a regression of up to three milliseconds."""

SEARCH_L2_UP_TO = 10_000
"""Items up to which several L2 are tried: each takes seconds here, and longer above."""

_SWITCHES = {"direct": "direct", "factor": "factors"}
"""What turns a path off, by how its settings begin."""


@dataclass(frozen=True)
class Readout:
    """What is added to a trained network."""

    direct_l2: float = 30.0
    """L2 of the regression that the direct weights come from."""

    direct_neighbours: int = 50
    """Items that speak for each item; 0 leaves the direct path out."""

    direct_gain: float = 10.0
    """Factor on the direct weights."""

    popularity_tilt: float = 0.0
    """How much the logit of an item's share of watchers counts beyond what training gave it: below
    0 rare items come up, above 0 popular ones."""

    factor_alpha: float = 100.0
    """Rate of confidence of the matrix factorisation."""

    factor_gain: float = 1.0
    """Factor on its scores, which have a spread of 1 without it; 0 leaves them out."""

    def settings(self) -> dict[str, Any]:
        """As settings of a model that does not look for them again."""
        settings: dict[str, Any] = {"popularity_tilt": self.popularity_tilt}
        for path, is_there in (("direct", self.direct_neighbours), ("factor", self.factor_gain)):
            if is_there:
                settings |= {n: v for n, v in asdict(self).items() if n.startswith(f"{path}_")}
            else:
                settings[_SWITCHES[path]] = False
        return settings

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Readout:
        """What `settings` told, and the usual for the rest."""
        told = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
        if not settings.get("direct", True):
            told["direct_neighbours"] = 0
        if not settings.get("factors", True):
            told["factor_gain"] = 0.0
        return cls(**told)


@dataclass(frozen=True)
class ReadoutConfig:
    """How the last touch is chosen. What is None is found on validation, if there is one."""

    direct: bool = True
    """Add direct item-item connections beside `V h`. Not in the paper."""

    direct_l2: float | None = None
    """L2 of the direct item-item weights."""

    direct_neighbours: int | None = None
    """Items that speak directly for each item."""

    direct_gain: float | None = None
    """Factor on the direct weights."""

    direct_dropout: float = 0.0
    """Share of the history hidden in the regression that the direct weights come from, as in EDLAE:
    a penalty that grows with the watchers of an item."""

    popularity_tilt: float | None = None
    """How much popularity counts beyond what training gave it: below 0 rare items come up, above 0
    popular ones."""

    factors: bool = True
    """Add the scores of a matrix factorisation, in up to 512 hidden units of their own, beside the
    `n_hidden` that are trained; with more than 500,000 pairs only if `factor_gain` is told. Needs a
    single layer of tanh or identity. Not in the paper."""

    factor_alpha: float | None = None
    """Rate of confidence of the factorisation."""

    factor_gain: float | None = None
    """Factor on its scores, which have a spread of 1 without it."""

    def has_factors(self, plan: FactorPlan, model: ModelConfig) -> bool:
        """Whether such a factorisation is added to such a network."""
        is_wanted = plan.is_quick or self.factor_gain is not None
        return self.factors and is_wanted and can_be_linear(model)

    def __post_init__(self) -> None:
        check_bool("direct", self.direct)
        check_bool("factors", self.factors)
        for name in ("direct_l2", "direct_gain", "direct_neighbours", "factor_gain"):
            value = getattr(self, name)
            if value is not None and check_number(name, value) <= 0:
                raise ConfigError(f"{name} must be above 0, or None, got {value}")
        if self.direct_neighbours is not None and self.direct_neighbours % 1:
            raise ConfigError(
                f"direct_neighbours must be a whole number, got {self.direct_neighbours}"
            )
        if self.popularity_tilt is not None:
            check_number("popularity_tilt", self.popularity_tilt)
        if self.factor_alpha is not None and check_number("factor_alpha", self.factor_alpha) < 0:
            raise ConfigError(f"factor_alpha must be at least 0, or None, got {self.factor_alpha}")
        if not 0 <= check_number("direct_dropout", self.direct_dropout) < 1:
            raise ConfigError(
                f"direct_dropout must be at least 0 and below 1, got {self.direct_dropout}"
            )


_TILTS_UP = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
TILTS = (*(-tilt for tilt in reversed(_TILTS_UP)), 0.0, *_TILTS_UP)

GRID: dict[str, tuple[float, ...]] = {
    "direct_gain": (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0),
    "direct_l2": (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3),
    "direct_neighbours": (5, 10, 20, 50, 100, 200),
    "popularity_tilt": TILTS,
    "factor_gain": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
    "factor_alpha": FACTOR_ALPHAS,
}
"""What is walked along, in this order."""


class ReadoutMaker:
    """Adds a readout to networks trained on the same ratings."""

    def __init__(
        self,
        config: ReadoutConfig,
        ratings: csr_array,
        model: ModelConfig,
        plan: FactorPlan | None = None,
    ) -> None:
        """Prepare.

        Args:
            config: What is fixed.
            ratings: Relative ratings that the networks were trained on, (n_users, n_items).
            model: What the networks are, but for their width.
            plan: Of the factorisation; None for what suits these ratings.
        """
        plan = plan or FactorPlan.of(ratings.nnz, *ratings.shape)
        self.config = config
        self.has_direct = config.direct and ratings.shape[1] <= DIRECT_UP_TO
        self.has_factors = config.has_factors(plan, model)
        self.n_items = ratings.shape[1]
        self._ratings = ratings
        self._found: dict[float, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}  # by L2
        self.factors = Factorisations(ratings, model, plan)

    def start(self) -> Readout:
        """What is fixed, and the usual for the rest."""
        told = {f.name: getattr(self.config, f.name) for f in fields(Readout)}
        if told["factor_alpha"] is None:
            told["factor_alpha"] = self.factors.plan.alpha
        readout = Readout(**{name: value for name, value in told.items() if value is not None})
        if not self.has_direct:
            readout = replace(readout, direct_neighbours=0)
        return readout if self.has_factors else replace(readout, factor_gain=0.0)

    def choose(self, network: NumpyNetwork, judge: Callable[[NumpyNetwork], float]) -> Readout:
        """Find what is not fixed.

        Args:
            network: As trained.
            judge: Judges a network on validation: lower is better.

        Returns:
            The best readout.
        """
        start = self.start()
        grid = {name: values for name, values in GRID.items() if getattr(self.config, name) is None}
        if not self.has_factors:
            grid = {name: v for name, v in grid.items() if not name.startswith("factor")}
        if not self.has_direct:
            grid = {name: v for name, v in grid.items() if not name.startswith("direct")}
        else:
            if "direct_neighbours" in grid:
                most = usual_candidates(self.n_items)
                grid["direct_neighbours"] = tuple(n for n in GRID["direct_neighbours"] if n <= most)
            if self.n_items > SEARCH_L2_UP_TO:
                grid.pop("direct_l2", None)

        def attempt(settings: dict[str, Any]) -> Trial:
            return Trial(settings, judge(self.add(network, Readout(**settings))))

        best = coordinate_search(attempt, asdict(start), grid, max_trials=40).best
        return Readout(**best.settings)

    def add(self, network: NumpyNetwork, readout: Readout) -> NumpyNetwork:
        """The network with the readout; shares the memory of its weights."""
        if self.has_factors and readout.factor_gain:
            network = self.factors.units(readout.factor_alpha).beside(network, readout.factor_gain)
        weights, config = dict(network.weights), network.config
        if readout.popularity_tilt:
            popularity = popularity_logit(self._ratings)  # (n_items,)
            tilt = np.float32(readout.popularity_tilt)
            weights["output_bias"] = weights["output_bias"] + tilt * popularity
        if self.has_direct and readout.direct_neighbours:
            neighbours, weight = self._strongest(readout.direct_l2)
            weights["neighbours"] = neighbours[:, : readout.direct_neighbours].copy()
            gained = np.float32(readout.direct_gain) * weight[:, : readout.direct_neighbours]
            weights["neighbour_weight"] = gained
            config = replace(config, n_neighbours=gained.shape[1])
        return NumpyNetwork(config, weights)

    def neighbours(
        self, readout: Readout, n_neighbours: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The items that speak for each item, and how much, (n_items, n_neighbours) each.

        Items that are too many for it have none: themselves, with weight 0.
        """
        if self.n_items > DIRECT_UP_TO:
            nobody = np.zeros((self.n_items, n_neighbours), dtype=np.float32)
            return np.repeat(np.arange(self.n_items)[:, None], n_neighbours, axis=1), nobody
        neighbours, weight = self._regression.neighbours(readout.direct_l2, n_neighbours)
        return neighbours, np.float32(readout.direct_gain) * weight

    @cached_property
    def _regression(self) -> NeighbourRegression:
        n_candidates = max(usual_candidates(self.n_items), self.config.direct_neighbours or 0)
        return NeighbourRegression(self._ratings, self.config.direct_dropout, n_candidates)

    def _strongest(self, l2: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """As many neighbours as any readout keeps, for one L2."""
        if l2 not in self._found:
            n_kept = self._regression.n_candidates
            self._found[l2] = self._regression.neighbours(l2, n_kept)
        return self._found[l2]
