"""How many networks a model is the mean of, and where they start."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cfnade.beyond.factors import FactorPlan
from cfnade.beyond.units import can_be_linear
from cfnade.checks import check_bool, check_whole
from cfnade.data.interactions import CountMatrix
from cfnade.errors import ConfigError
from cfnade.model.config import ModelConfig

FEW_WATCHERS = 10
"""Of an item, on average, below which several networks are trained."""

SEVERAL = 4
"""So many, then."""

SEVERAL_UP_TO = 2 * 10**8
"""Users times items up to which there are several: beyond that one takes long enough."""


@dataclass(frozen=True)
class NetworksConfig:
    """How many networks a model is the mean of, and where they start."""

    n_networks: int | None = None
    """Train so many networks, from other seeds, and take the mean of their logits: one network, as
    wide as all of them. None trains four where items have fewer than ten watchers on average, as
    there much of what one learns is chance, and else one: on denser data the mean of four has an
    MPR that is lower by half a per cent (decision 24). Not in the paper."""

    start_from_factors: bool | None = None
    """Start three quarters of the hidden units with the scores of a matrix factorisation, rather
    than at random: training takes a half to a sixth of the epochs then, and ends a little better
    (decision 25). None does so where that is quick, up to 500,000 pairs, and the network has a
    single layer of tanh or identity, which it needs. Not in the paper."""

    def __post_init__(self) -> None:
        if self.start_from_factors is not None:
            check_bool("start_from_factors", self.start_from_factors)
        if self.n_networks is not None:
            check_whole("n_networks", self.n_networks, 1)

    def starts_from_factors(self, plan: FactorPlan, model: ModelConfig) -> bool:
        """Whether such a network starts from such a factorisation.

        Raises:
            ConfigError: If it is to, and cannot.
        """
        if self.start_from_factors and not can_be_linear(model):
            raise ConfigError(
                "start_from_factors needs a single layer of tanh or identity, got "
                f"n_layers={model.n_layers}, activation={model.activation!r}; leave it out"
            )
        if self.start_from_factors is not None:
            return self.start_from_factors
        return plan.is_quick and can_be_linear(model)

    def n_for(self, counts: CountMatrix) -> int:
        """How many, for these counts."""
        if self.n_networks is not None:
            return self.n_networks
        is_sparse = counts.nnz < FEW_WATCHERS * counts.shape[1]
        return SEVERAL if is_sparse and math.prod(counts.shape) <= SEVERAL_UP_TO else 1
