"""CF-NADE with an items table in a comparison; all models still rank the items of the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.beyond.features import FeatureStrengths
from cfnade.compare.contender import Contender
from cfnade.data.catalogue import Catalogue
from cfnade.data.described_items import DescribedItems
from cfnade.data.ingest import read_items
from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix
from cfnade.data.ratings import likes_alone
from cfnade.errors import n_of
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.cold_start import add_features
from cfnade.model.inference import NetworkScorer

logger = logging.getLogger(__name__)


def with_items(
    models: Mapping[str, Contender], data: Interactions, items: Any
) -> Mapping[str, Contender]:
    """The contenders, with an items table for those that can use one.

    Items that only the table has are left out: the other models cannot rank them.

    Args:
        models: By name.
        data: What they are compared on.
        items: As `read_items` reads it; None changes nothing.

    Raises:
        DataError: If the table cannot be used, or has none of the items.
    """
    if items is None:
        return models
    catalogue = Catalogue(data.item_ids)
    features = catalogue.described(read_items(items)).features
    if features is None:  # names alone
        return models
    features = features.first(data.n_items)
    n_without = int((np.diff(features.matrix.indptr) == 0).sum())
    if n_without:
        logger.warning("nothing is known about %s", n_of(n_without, "item"))
    table = DescribedItems(data.item_ids, features, {})
    return {
        name: replace(model, fixed={**model.fixed, "items": table}) if model.uses_items else model
        for name, model in models.items()
    }


@dataclass(frozen=True, eq=False)
class DescribedCFNADE:
    """A model whose features count as strongly as validation showed before."""

    model: ImplicitCFNADE
    items: DescribedItems
    strengths: FeatureStrengths
    _scorers: list[NetworkScorer] = field(default_factory=list)

    def fit(self, data: Interactions) -> DescribedCFNADE:
        """Train the network; then add what is known about the items."""
        histories = likes_alone(self.model.fit(data).histories(data))
        self._scorers[:] = [
            add_features(
                self.model.scorer_,
                self.items.features,
                self.strengths,
                histories=histories,
                n_threads=self.model.n_threads,
            )
        ]
        return self

    def histories(self, data: Interactions) -> CountMatrix:
        """As the model reads them."""
        return self.model.histories(data)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Of all items; see `Scorer`."""
        return self._scorers[0].scores(as_count_matrix(histories, signed=True))
