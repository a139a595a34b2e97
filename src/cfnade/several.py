"""How many networks a model is the mean of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cfnade.data.interactions import CountMatrix
from cfnade.model.config import check_at_least

FEW_WATCHERS = 10
"""Of an item, on average, below which several networks are trained."""

SEVERAL = 4
"""So many, then."""

SEVERAL_UP_TO = 2 * 10**8
"""Users times items up to which there are several: beyond that one takes long enough."""


@dataclass(frozen=True)
class NetworksConfig:
    """How many networks a model is the mean of."""

    n_networks: int | None = None
    """Train so many networks, from other seeds, and take the mean of their logits: one network, as
    wide as all of them. None trains four where items have fewer than ten watchers on average, as
    there much of what one learns is chance, and else one: on denser data the mean of four has an
    MPR that is lower by half a per cent (decision 24). Not in the paper."""

    def __post_init__(self) -> None:
        if self.n_networks is not None:
            check_at_least("n_networks", self.n_networks, 1)

    def n_for(self, counts: CountMatrix) -> int:
        """How many, for these counts."""
        if self.n_networks is not None:
            return self.n_networks
        is_sparse = counts.nnz < FEW_WATCHERS * counts.shape[1]
        return SEVERAL if is_sparse and math.prod(counts.shape) <= SEVERAL_UP_TO else 1
